"""Runs of portfolios from files to the page: what is reported adds up, walks are their folds."""

import dataclasses
import json
from pathlib import Path

import jax
import numpy as np
import polars as pl
import pytest
from panels_of_prices import long, wide
from tiny import SIZES, budget, equal_bits, tensors_of
from tracing import traced_update

import proxima
from proxima.cli.data import generate_for
from proxima.core.errors import ProximaError
from proxima.domains.trading.edge import edge
from proxima.domains.trading.portfolio.domain import DOMAIN
from proxima.domains.trading.portfolio.results import NAMES, evidence
from proxima.run.evaluate import evaluate_reference
from proxima.run.files import RunFiles
from proxima.run.read import read_summary
from proxima.run.resume import resume_experiment
from proxima.scenario import load

NAME = "portfolio_reversion"
SMALL = (
    *budget(NAME),
    "env.fee=0.001",
    "algorithm.final_learning_rate=null",
    "training.max_steps=640",
    "evaluation.eval_frequency=1",
)
WALK = (
    *("data.pattern=null", "data.path=prices.parquet", "env.fill=next_close", "trials=4"),
    *("network={kind: assets, hidden: [8]}", "data.split.folds=2", "env.max_steps_per_episode=32"),
)


def go(*settings):
    """A small run's summary and directory."""
    summary = proxima.run_multiple_experiments(load(NAME, [*SMALL, *settings]))
    return summary, Path(summary["paths"]["run"]).resolve()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("portfolios"))
        wide(600, ("X", "Y", "Z"), seed=2).write_parquet("prices.parquet")
        yield Path.cwd()


@pytest.fixture(scope="module")
def run(place):
    """Two trials on five synthetic assets."""
    generate_for(load(NAME, SMALL))
    return go("trials=2")


@pytest.fixture(scope="module")
def walk(place):
    """Two walks over two folds of three assets of the user's own."""
    return go(*WALK, "data.split.fold=all")


def test_every_rule_is_reported_on_every_split(run):
    details = run[0].details
    for split in ("train", "validation", "test"):
        rules = details.references[split].rules
        assert set(rules) == set(NAMES)
        best = rules["foresight"]["log_return"]
        assert best >= max(sheet["log_return"] for sheet in rules.values())
        assert rules["buy_and_hold"]["turnover"] < rules["rebalanced"]["turnover"]
        assert sum(details.references[split].best_weights.values()) == pytest.approx(1)
    trial = run[0].trials[0]
    assert trial.baselines["olmar"] == details.references["test"].rules["olmar"]["log_return"]


def test_what_a_trial_earned_is_its_rollout_and_its_parts(run):
    summary, root = run
    for trial in range(2):
        splits = summary.trials[trial].details.splits
        for split, judged in splits.items():
            frame = pl.read_parquet(root / f"trial_{trial}" / "rollouts" / f"{split}.parquet")
            earned = judged.agent["log_return"]
            assert frame["log_return"].sum() == pytest.approx(earned, abs=1e-12)
            assert frame["equity"][-1] == pytest.approx(np.exp(earned))
            parts = judged.attribution
            whole = sum(parts.assets.values()) + parts.costs + parts.interest
            assert whole == pytest.approx(earned, abs=1e-9)
            assert abs(parts.interest) < 1e-9 and parts.costs < 0  # nothing is borrowed long only
            held = frame["weight"].to_numpy()
            assert held.min() >= 0 and held.sum(axis=1).max() <= 1 + 1e-12
            regret = summary.details.references[split].rules["best_constant"]["log_return"] - earned
            assert judged.agent["regret"] == pytest.approx(regret)


def test_evaluation_returns_are_the_accounts(run):
    """The environment's float32 rewards over the test split against the account in float64."""
    for trial in run[0].trials:
        earned = trial.details.splits["test"].agent["log_return"]
        assert trial.evaluation.return_mean == pytest.approx(earned, abs=1e-4)


def test_onlookers_see_the_equity_of_a_trials_newest_evaluation(run):
    summary, root = run
    held = summary.details.references["validation"].rules["buy_and_hold"]["log_return"]
    for trial in range(2):
        preview = json.loads((root / f"trial_{trial}" / "preview.json").read_text())
        (chart,) = preview["charts"]
        rows = map(json.loads, (root / f"trial_{trial}" / "metrics.jsonl").read_text().splitlines())
        (evaluated,) = [row["eval/return_mean"] for row in rows if row["step"] == preview["step"]]
        lines = chart["lines"]
        assert np.log(lines["equity"][-1]) == pytest.approx(evaluated, abs=1e-4)
        assert np.log(lines["buy and hold"][-1]) == pytest.approx(held, abs=1e-9)
        assert len(chart["x"]) == len(lines["equity"]) == len(lines["buy and hold"])


def test_the_page_shows_weights_contributions_and_the_rules(run):
    text = (run[1] / "report.html").read_text()
    for words in (
        "Weights of the assets over time",
        "What each asset added to the log return",
        "Best constant weight",
        "uniform buy and hold",
        "Online Newton step",
        "asset_5",
        edge(evidence(run[0])),
    ):
        assert words in text
    for name in ("weights.png", "contributions.png"):
        assert (run[1] / "trial_0" / "plots" / name).stat().st_size > 1_000


def test_the_closing_lines_name_everybody_else(run):
    line, last = DOMAIN.closing(run[0]).lines
    assert all(name in line for name in NAMES.values())
    assert last == edge(evidence(run[0]))


def test_results_are_read_back_as_they_were(run):
    assert read_summary(RunFiles(run[1])) == run[0]


def test_a_run_that_was_stopped_goes_on_to_the_bits_of_one_that_was_not(run, place):
    _, stopped = go("trials=2", "training.max_steps=320")
    resume_experiment(str(stopped), changes=["training.max_steps=640"])
    for trial in range(2):
        both = (tensors_of(root / f"trial_{trial}") for root in (stopped, run[1]))
        assert equal_bits(*both)


def test_a_folds_lane_has_the_bits_of_the_fold_by_itself(walk):
    _, alone = go(*WALK, "data.split.fold=0")
    for trial in (0, 2):
        both = (tensors_of(root / f"trial_{trial}") for root in (alone, walk[1]))
        assert equal_bits(*both)


def test_a_walk_is_its_folds_end_to_end(walk):
    summary, root = walk
    details = summary.details
    for seed in range(2):
        frames = [
            pl.read_parquet(root / f"trial_{seed * 2 + fold}" / "rollouts" / "test.parquet")
            for fold in range(2)
        ]
        whole = pl.read_parquet(root / "rollouts" / f"walk_{seed}_test.parquet")
        log_returns = np.concatenate([frame["log_return"] for frame in frames])
        assert whole["time"].is_sorted()
        np.testing.assert_array_equal(whole["log_return"], log_returns)
        np.testing.assert_allclose(whole["equity"], np.exp(np.cumsum(log_returns)), rtol=1e-12)
        agent = details.walk.seeds[seed].splits["test"].agent
        assert agent["log_return"] == pytest.approx(log_returns.sum())
    held = details.references["test"].rules["buy_and_hold"]["log_return"]
    assert held == pytest.approx(sum(fold.buy_and_hold for fold in details.walk.folds))
    assert "2 folds × 2 seeds" in (root / "report.html").read_text()
    assert "of all 2 folds end to end" in DOMAIN.closing(summary).lines[0]
    assert 0 <= details.walk.overfitting <= 1


def test_a_checkpoint_is_evaluated_on_the_fold_of_its_trial(walk):
    expected = [trial.evaluation.return_mean for trial in walk[0].trials]
    measured = evaluate_reference(str(walk[1] / "trial_1"), 1)["evaluation"]["return_mean"]
    assert measured == pytest.approx(expected[1], rel=1e-6) and expected[0] != expected[1]


def test_without_a_model_of_the_prices_there_is_no_best_rule(walk):
    assert "expected" not in walk[0].details.references["test"].rules


@pytest.mark.parametrize("name", ["ddpg", "sac"])
def test_others_trade_long_and_short(place, name):
    long(300).write_parquet("bars.parquet")
    sizes = SIZES[name]
    scenario = load(
        NAME,
        [
            *(setting for setting in SMALL if not setting.startswith(("algorithm.", "env.fee"))),
            *("data.pattern=null", "data.path=bars.parquet", "data.features=null"),
            *("env.weights=long_short", "env.leverage=1.5", f"algorithm={{name: {name}}}", *sizes),
        ],
    )
    if name == "sac":
        state, after, _ = traced_update(scenario)
        assert jax.tree.leaves(after) == jax.tree.leaves(state)
        return
    summary = proxima.run_multiple_experiments(dataclasses.replace(scenario, trials=1))
    rules = summary.details.references["test"].rules
    assert "foresight" not in rules  # whoever may borrow has a better path
    frame = pl.read_parquet(Path(summary["paths"]["run"]) / "trial_0/rollouts/test.parquet")
    sizes = np.abs(frame["weight"].to_numpy()).sum(axis=1)
    assert sizes.max() <= 1.5 + 1e-6 and frame["weight"].to_numpy().min() < 0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("env.leverage=2",), "env.leverage: 2 is for weights: long_short"),
        (("data.source=sp500", "data.pattern=null"), "data.source: sp500 is no source of prices"),
        (("data.source=nyse_o",), "both are given"),
        (("env.feee=0.1",), "env.feee"),
        (("data.split.folds=2", "data.split.fold=all", "trials=3"), "3 trials do not divide"),
        (("network={kind: attention}",), "network.kind"),
    ],
)
def test_a_contradiction_is_an_error_with_its_path(settings, words):
    with pytest.raises(ProximaError, match=words.replace(".", r"\.")):
        load(NAME, [*SMALL, *settings])


def test_what_the_file_does_not_have_is_refused(place):
    def prepared(*settings):
        load_settings = ["data.pattern=null", "data.path=prices.parquet", *settings]
        return DOMAIN.prepare(load(NAME, [*SMALL, *load_settings]))

    with pytest.raises(
        ProximaError, match=r"env\.fill: next_open, and prices\.parquet has closing"
    ):
        prepared("env.fill=next_open")
    feature = "data.features=[{kind: high_low_range}]"
    with pytest.raises(
        ProximaError, match=r"data\.features\.0\.kind: high_low_range needs high and low"
    ):
        prepared(feature, "env.fill=next_close")
    with pytest.raises(ProximaError, match=r"gone\.parquet: no such file"):
        prepared("data.path=gone.parquet")


def test_prices_of_other_settings_are_refused(run):
    with pytest.raises(ProximaError, match="was made with assets 5, the scenario says 4"):
        DOMAIN.prepare(load(NAME, [*SMALL, "data.assets=4"]))
