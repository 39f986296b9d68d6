"""Splits keep their distance, cover what they promise, and refuse what is too short."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from proxima.core.errors import ProximaError
from proxima.domains.trading.config import SplitConfig
from proxima.domains.trading.data import LEAST_ROWS, split_bounds


def test_a_single_split():
    bounds = split_bounds(1_000, SplitConfig(), purge=21)
    assert bounds["test"] == (800, 1_000)
    assert bounds["validation"] == (579, 779)
    assert bounds["train"] == (0, 558)


def walk_forward(rows, split, purge):
    """The parts of every fold, the earliest first."""
    return [split_bounds(rows, replace(split, fold=fold), purge) for fold in range(split.folds)]


def test_folds_divide_the_test_share():
    split = SplitConfig(validation=0.1, test=0.3, folds=3)
    folds = walk_forward(1_000, split, purge=5)
    assert [fold["test"] for fold in folds] == [(700, 800), (800, 900), (900, 1_000)]
    assert [fold["validation"] for fold in folds] == [(595, 695), (695, 795), (795, 895)]
    assert [fold["train"] for fold in folds] == [(0, 590), (0, 690), (0, 790)]
    sliding = walk_forward(1_000, SplitConfig(validation=0.1, test=0.3, folds=3, mode="sliding"), 5)
    assert [fold["train"] for fold in sliding] == [(0, 590), (100, 690), (200, 790)]
    for part in ("validation", "test"):
        assert [fold[part] for fold in sliding] == [fold[part] for fold in folds]
    chosen = SplitConfig(validation=0.1, test=0.3, folds=3, fold=2)
    assert split_bounds(1_000, chosen, 5) == folds[2]


def random_splits(count):
    random = np.random.default_rng(0)
    for _ in range(count):
        validation, test = random.uniform(0.02, 0.6), random.uniform(0.02, 0.39)
        mode = ("anchored", "sliding")[random.integers(2)]
        folds = int(random.integers(1, 7))
        split = SplitConfig(validation=validation, test=test, folds=folds, mode=mode)
        yield int(10 ** random.uniform(0.5, 5)), split, int(random.integers(0, 60))


def test_parts_never_touch_whatever_the_sizes():
    seen = {"split": 0, "refused": 0}
    for rows, split, purge in random_splits(3_000):
        try:
            folds = walk_forward(rows, split, purge)
        except ProximaError as told:
            seen["refused"] += 1
            needed = int(str(told).split("need ")[1].split(";")[0].replace(",", ""))
            assert needed > rows
            walk_forward(needed, split, purge)  # as many as it says do
            with pytest.raises(ProximaError):
                walk_forward(needed - 1, split, purge)
            continue
        seen["split"] += 1
        for train, validation, test in map(dict.values, folds):
            for start, stop in (train, validation, test):
                assert 0 <= start <= stop - LEAST_ROWS and stop <= rows
            assert validation[0] - train[1] == purge and test[0] - validation[1] == purge
            assert validation[1] - validation[0] == int(rows * split.validation + 1e-9)
        for before, after in itertools.pairwise(folds):
            assert before["test"][1] == after["test"][0]  # together they test on every row once
            lengths = [fold["train"][1] - fold["train"][0] for fold in (before, after)]
            assert lengths[0] == lengths[1] if split.mode == "sliding" else lengths[0] < lengths[1]
        assert folds[-1]["test"][1] == rows
        assert folds[0]["train"][0] == 0
        assert rows - folds[0]["test"][0] == int(rows * split.test + 1e-9)
    assert min(seen.values()) > 100


def test_too_few_rows_says_how_many_are_needed():
    with pytest.raises(
        ProximaError, match=r"40 usable rows are too few .* 21 rows left out .* need 72;"
    ):
        split_bounds(40, SplitConfig(), purge=21)


def test_shares_that_leave_nothing_to_train_on():
    with pytest.raises(
        ProximaError, match=r"data.split: validation 0.5 and test 0.5 leave nothing"
    ):
        split_bounds(1_000, SplitConfig(validation=0.5, test=0.5), 1)


def test_a_fold_that_is_not_there():
    with pytest.raises(
        ProximaError, match=r"data.split.fold: 3 is not allowed: .* the last one is 2"
    ):
        split_bounds(1_000, SplitConfig(folds=3, fold=3), 1)
