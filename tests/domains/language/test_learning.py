"""movie_critic whole: PPO and DPO learn what they promise; with too low a price on KL the alarm sounds."""

import os
from pathlib import Path

import pytest

import proxima
from proxima.cli.data import generate_for
from proxima.run.files import read_rows
from proxima.scenario import load

pytestmark = [
    pytest.mark.slow,
    pytest.mark.optimized,
    pytest.mark.skipif("PROXIMA_WHOLE" not in os.environ, reason="PROXIMA_WHOLE=1 runs it"),
]


@pytest.fixture(scope="module")
def critic(tmp_path_factory):
    """One trial of the shipped scenario, all three stages; its summary and its directory."""
    directory = tmp_path_factory.mktemp("critic")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        scenario = load("movie_critic", ["tracking.enabled=false"])
        generate_for(scenario)
        summary = proxima.run_multiple_experiments(scenario)
    return summary, directory


def test_it_learns_what_people_like_and_the_judge_agrees(critic):
    summary, directory = critic
    (trial,) = summary["trials"]
    first, last = (trial["stages"]["ppo"][when] for when in ("first", "last"))
    assert last["reward"] - first["reward"] > 0.8
    assert last["kl"] < 7
    assert last["judge"] > first["judge"]
    assert last["eos_rate"] > first["eos_rate"]
    assert trial["stages"]["reward_model"]["last"]["accuracy"] >= 0.7
    gain = trial["details"]["gains"]["judge"]
    assert gain["low"] > 0  # the interval over prompts, paired
    rows = read_rows(directory / "logs/movie_critic/trial_0/ppo/metrics.jsonl")
    assert max(row["train/log_prob_gap"] for row in rows[1:]) < 1e-4
    assert max(row["train/first_ratio_gap"] for row in rows[1:]) < 1e-5
    assert summary["alarms"] == ()


def test_with_too_low_a_price_the_alarm_sounds(critic, monkeypatch):
    summary = policy_alone("movie_critic_hacked", critic, monkeypatch)
    assert "kl" in {alarm["kind"] for alarm in summary["alarms"]}
    (hacked,) = summary["trials"]
    assert hacked["stages"]["ppo"]["last"]["reward"] > 1.0


def test_dpo_learns_it_from_the_ratings_themselves(critic, monkeypatch):
    summary = policy_alone("movie_critic_dpo", critic, monkeypatch)
    (trial,) = summary["trials"]
    first, last = (trial["stages"]["dpo"][when] for when in ("first", "last"))
    ppo = critic[0]["trials"][0]["stages"]["ppo"]["first"]
    assert first["reward"] == pytest.approx(ppo["reward"], abs=1e-4), "they start alike"
    assert last["accuracy"] > 0.65 and last["loss"] < first["loss"]
    assert last["reward"] - first["reward"] > 0.4 and last["judge"] > first["judge"]
    assert last["kl"] < 10


def policy_alone(name, critic, monkeypatch):
    """The scenario from the reference and the reward model of movie_critic's trial."""
    _, directory = critic
    monkeypatch.chdir(directory)
    trial = Path("logs/movie_critic/trial_0")
    settings = {
        "model.path": str(trial / "reference"),
        "sft": None,
        "reward_model": None,
        "reward.path": str(trial / "reward_model" / "model"),
        "tracking.enabled": False,
    }
    return proxima.run_multiple_experiments(load(name, settings))
