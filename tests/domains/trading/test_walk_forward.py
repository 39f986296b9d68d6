"""All folds × seeds in one program: the bits of a fold by itself, no leak, one walk that adds up."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tiny import budget, equal_bits, read, tensors_of

import proxima
from proxima.build import domain_of
from proxima.cluster.blocks import in_blocks
from proxima.core.errors import ProximaError
from proxima.domains.trading.config import SplitConfig
from proxima.domains.trading.data import one_fold, prepare_data, prepare_source, read_source
from proxima.domains.trading.gymnasium import TradingGymEnv
from proxima.domains.trading.peek import peek
from proxima.domains.trading.splits import day_of, split_faults
from proxima.domains.trading.synthetic import generate
from proxima.run.evaluate import evaluate_reference
from proxima.scenario import load
from proxima.scenario.search import SearchConfig

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


def test_onlookers_see_each_trial_on_its_fold(walk):
    _, root = walk
    for trial in range(4):
        (chart,) = read(root / f"trial_{trial}" / "preview.json")["charts"]
        frame = pl.read_parquet(root / f"trial_{trial}" / "rollouts" / "validation.parquet")
        assert chart["title"] == f"Equity on the validation split of fold {trial % FOLDS}"
        assert chart["x"][0] == frame["time"][0].timestamp()


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


def test_a_checkpoint_is_evaluated_on_the_fold_of_its_trial(walk):
    expected = [
        read(walk[1] / f"trial_{trial}" / "results.json")["evaluation"]["return_mean"]
        for trial in range(4)
    ]
    assert len(set(expected)) == 4
    for trial in (1, 2):  # of fold 1, and of fold 0 by another seed
        measured = evaluate_reference(str(walk[1] / f"trial_{trial}"), 1)
        assert measured["evaluation"]["return_mean"] == pytest.approx(expected[trial], rel=1e-6)


def of_all_folds():
    return load("mean_reversion", [*budget("mean_reversion"), *ALL])


def test_a_look_at_the_data_says_which_fold_it_shows(place):
    data = of_all_folds().data
    source = read_source(data, "mean_reversion")
    shown = peek(source, data)
    first, second = (prepare_source(source, one_fold(data, fold)) for fold in range(FOLDS))
    (note,) = [note for note in shown["notes"] if "data.split.fold: all" in note]
    assert "those of fold 0" in note and f"1 from {day_of(second.test.time[0])}" in note
    assert shown["splits"][2]["first"] == str(first.test.time[0])
    assert not any("fold" in note for note in peek(source, one_fold(data, 0))["notes"])


def test_one_environment_has_no_prices_of_all_folds(place):
    with pytest.raises(
        ProximaError, match=r"data\.split\.fold: all .* set it to a number from 0 to 1"
    ):
        TradingGymEnv(data=of_all_folds().data)


def test_what_takes_one_fold_says_so_before_anything_is_written(place):
    search = replace(of_all_folds(), search=SearchConfig(space={"algorithm.gamma": [0.9, 0.99]}))
    with pytest.raises(
        ProximaError, match=r"data\.split\.fold: all .* a search .* set it to a fold"
    ):
        proxima.search_settings(search)
    with pytest.raises(ProximaError, match=r"data\.split\.fold: all .* leave out .* --cluster"):
        domain_of(search).prepare(in_blocks(of_all_folds()))
    with pytest.raises(ProximaError, match=r"data\.split\.fold: all, and spo searches .* one fold"):
        domain_of(search).prepare(replace(search, algorithm=load("cartpole_spo").algorithm))
    with pytest.raises(ProximaError, match=r"trials: 1 trials are no whole walks over 2 folds"):
        proxima.run_single_experiment(of_all_folds())
    assert not list(Path("logs").glob("*/searches/*"))


def test_trials_that_are_no_whole_walks_are_refused(place):
    with pytest.raises(ProximaError, match="3 trials do not divide among 2 folds"):
        load("mean_reversion", [*budget("mean_reversion"), *ALL, "trials=3"])
    (fault,) = split_faults(SplitConfig(fold="all"))
    assert "several folds" in fault.text
