"""Shipped trading scenarios reach their lines on the test split: five trials, as they are shipped."""

import pytest

import proxima
from proxima.cli.data import generate_for

pytestmark = pytest.mark.optimized


def learn(name):
    """The summary's part about trading, and what the test split's references and agent earned."""
    scenario = proxima.load(name, {"tracking.enabled": False})
    generate_for(scenario)
    summary = proxima.run_multiple_experiments(scenario)
    judged = summary["details"]
    earned = judged["aggregate"]["test"]["log_return"]
    assert earned["n"] == scenario.trials == 5
    return judged, earned, judged["references"]["splits"]["test"]


@pytest.mark.slow
def test_sine_wave_is_above_momentum_at_phases_it_has_not_seen(workdir):
    judged, earned, others = learn("sine_wave")
    assert earned["iqm"] > others["momentum"]["log_return"]
    assert others["momentum"]["log_return"] > 1 > others["buy_and_hold"]["log_return"]
    assert earned["high"] < others["foresight"]["log_return"]
    assert judged["alarms"] == ()


@pytest.mark.slow
def test_upward_drift_is_held(workdir):
    judged, earned, others = learn("upward_drift")
    held = others["buy_and_hold"]["log_return"]
    assert held > 0.5
    assert 0.98 * held <= earned["iqm"] <= 1.001 * held
    assert judged["alarms"] == (), (
        "perfect foresight is to buy and hold: no reason to suspect a leak"
    )


@pytest.mark.slow
def test_nothing_is_earned_on_a_random_walk(workdir):
    """The falsification: whoever earns here has found a leak."""
    judged, earned, others = learn("random_walk")
    assert earned["low"] <= 0
    for split in ("validation", "test"):
        assert judged["score"][split]["model"] is None, "to stay out is the best there is"
    assert others["model"]["log_return"] == 0
    assert judged["score"]["test"]["foresight"]["high"] < 0.5
    assert judged["alarms"] == ()
    assert judged["deflated_sharpe"] is None or judged["deflated_sharpe"] < 0.95


@pytest.mark.slow
def test_who_sees_the_next_return_is_near_perfect_foresight_and_found_out(workdir):
    judged, earned, others = learn("leaked_oracle")
    assert earned["iqm"] >= 0.95 * others["foresight"]["log_return"]
    assert others["buy_and_hold"]["log_return"] < 1 and others["foresight"]["log_return"] > 10
    assert [told.split(",")[0] for told in judged["alarms"]] == [
        f"{split} split" for split in ("train", "validation", "test")
    ]
    assert "5 of 5 trials" in judged["alarms"][-1]
    page = next((workdir / "logs" / "leaked_oracle").glob("runs/*/report.html")).read_text()
    assert "The agent sees the future" in page and "Too good to be true?" in page
