"""All folds × seeds in one program: the bits of a fold by itself, no leak, one walk that adds up."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tiny import budget, equal_bits, tensors_of

import proxima
from proxima.core.errors import ProximaError
from proxima.domains.trading.config import SplitConfig
from proxima.domains.trading.data import prepare_data
from proxima.domains.trading.splits import split_faults
from proxima.domains.trading.synthetic import generate
from proxima.scenario import load

FOLDS = 2
WALK = (
    "data.pattern=null",
    "data.path=prices.parquet",
    "env.max_steps_per_episode=32",
    "evaluation.eval_frequency=1",
    "training.max_steps=640",
    "seed=3",
    f"data.split.folds={FOLDS}",
)
ALL = (*WALK, "trials=4", "data.split.fold=all")


def go(*settings):
    """A small run's summary and directory."""
    summary = proxima.run_multiple_experiments(
        load("mean_reversion", [*budget("mean_reversion"), *settings])
    )
    return summary, Path(summary["paths"]["run"]).resolve()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("walk"))
        generate("mean_reversion", 700, 1, {}).write_parquet("prices.parquet")
        yield Path.cwd()


@pytest.fixture(scope="module")
def walk(place):
    return go(*ALL)


def last(root, trial):
    return tensors_of(root / f"trial_{trial}")


def test_a_folds_lane_has_the_bits_of_the_fold_by_itself(walk):
    fold = 0  # the shorter one, whose arrays are padded in the walk
    _, alone = go(*WALK, "trials=4", f"data.split.fold={fold}")
    for trial in range(fold, 4, FOLDS):
        assert equal_bits(last(alone, trial), last(walk[1], trial))


def test_other_test_prices_change_nothing_of_the_training(walk, place):
    prices = pl.read_parquet("prices.parquet")
    scenario = load("mean_reversion", [*budget("mean_reversion"), *WALK, "data.split.fold=1"])
    first = prepare_data(scenario.data, "mean_reversion").bounds["test"][0]
    factor = np.ones(len(prices))
    factor[first:] = np.exp(np.random.default_rng(0).normal(0, 0.02, len(prices) - first).cumsum())
    names = ("open", "high", "low", "close")
    changed = prices.with_columns(
        pl.max_horizontal(names).alias("high"), pl.min_horizontal(names).alias("low")
    ).with_columns([pl.col(name) * pl.Series(factor) for name in names])
    changed.write_parquet("changed.parquet")
    _, other = go(*ALL, "data.path=changed.parquet")
    for trial in range(4):  # the last fold's test is no other fold's anything
        assert equal_bits(last(other, trial), last(walk[1], trial))
    before, after = (
        pl.read_parquet(root / "trial_1" / "rollouts" / "test.parquet")["log_return"]
        for root in (walk[1], other)
    )
    assert not before.equals(after)


def test_a_walk_is_its_folds_end_to_end(walk):
    summary, root = walk
    details = summary["details"]
    for seed in range(2):
        frames = [
            pl.read_parquet(root / f"trial_{seed * FOLDS + fold}" / "rollouts" / "test.parquet")
            for fold in range(FOLDS)
        ]
        whole = pl.read_parquet(root / "rollouts" / f"walk_{seed}_test.parquet")
        log_returns = np.concatenate([frame["log_return"] for frame in frames])
        assert whole["time"].is_sorted() and whole["time"].n_unique() == len(log_returns)
        np.testing.assert_array_equal(whole["log_return"], log_returns)
        np.testing.assert_allclose(whole["equity"], np.exp(np.cumsum(log_returns)), rtol=1e-12)
        reported = details["walk"]["seeds"][seed]["splits"]["test"]["agent"]["log_return"]
        assert reported == pytest.approx(log_returns.sum())
    held = details["references"]["splits"]["test"]["buy_and_hold"]["log_return"]
    assert held == pytest.approx(sum(fold["buy_and_hold"] for fold in details["walk"]["folds"]))
    assert details["aggregate"]["test"]["log_return"]["n"] == 2
    assert 0 <= details["walk"]["overfitting"] <= 1


def test_tests_follow_each_other_and_training_ends_before_them(walk):
    folds = walk[0]["details"]["walk"]["folds"]
    for fold in folds:
        ends = [fold["spans"][split] for split in ("train", "validation", "test")]
        assert ends[0][1] < ends[1][0] and ends[1][1] < ends[2][0]
    assert folds[0]["spans"]["test"][1] < folds[1]["spans"]["test"][0]


def test_a_policy_has_the_scalers_of_its_fold(walk):
    trials = [walk[1] / f"trial_{trial}" for trial in range(4)]
    raws = [proxima.load_policy(trial).about["raw"] for trial in trials]
    assert raws[0]["features"] == raws[2]["features"] != raws[1]["features"]


def test_the_page_shows_the_folds(walk):
    text = (walk[1] / "report.html").read_text()
    assert "Probability of backtest overfitting" in text and "2 folds × 2 seeds" in text


def test_trials_that_are_no_whole_walks_are_refused(place):
    with pytest.raises(ProximaError, match="3 trials do not divide among 2 folds"):
        load("mean_reversion", [*budget("mean_reversion"), *ALL, "trials=3"])
    (fault,) = split_faults(SplitConfig(fold="all"))
    assert "several folds" in fault.text
