"""Splits keep their distance, cover what they promise, and refuse what is too short."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from proxima.core.errors import ProximaError
from proxima.domains.trading.config import SplitConfig
from proxima.domains.trading.splits import LEAST_ROWS, split_bounds, split_faults

DAYS = np.datetime64("2000-01-01", "us") + np.arange(200_000) * np.timedelta64(1, "D")


def bounds_of(rows, split, purge):
    """The parts of so many days from 2000 on."""
    return split_bounds(DAYS[:rows], split, purge)


def test_a_single_split():
    bounds = bounds_of(1_000, SplitConfig(), purge=21)
    assert bounds["test"] == (800, 1_000)
    assert bounds["validation"] == (579, 779)
    assert bounds["train"] == (0, 558)


def walk_forward(rows, split, purge):
    """The parts of every fold, the earliest first."""
    return [bounds_of(rows, replace(split, fold=fold), purge) for fold in range(split.folds)]


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
    assert bounds_of(1_000, chosen, 5) == folds[2]


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
        bounds_of(40, SplitConfig(), purge=21)


@pytest.mark.parametrize(
    "split",
    [
        SplitConfig(validation=1e-300),
        SplitConfig(test=5e-324),
        SplitConfig(validation=0.5, test=0.5 - 1e-16),
        SplitConfig(folds=10**18),
        SplitConfig(horizon=10**18),
    ],
)
def test_shares_of_next_to_nothing_are_refused_at_once(split):
    with pytest.raises(ProximaError, match=r"1,000 usable rows .* need more than any file has;"):
        bounds_of(1_000, split, 1 + split.horizon)


BY_DATE = SplitConfig(train_until="2001-01-01", validation_until="2001-07-01")


def test_dates_are_where_train_and_validation_end():
    bounds = bounds_of(1_000, BY_DATE, purge=21)
    assert bounds == {"train": (0, 366), "validation": (387, 547), "test": (568, 1_000)}
    assert str(DAYS[365])[:10] == "2000-12-31" and str(DAYS[546])[:10] == "2001-06-30"
    ended = bounds_of(1_000, replace(BY_DATE, test_until="2002-01-01T00:00:00+02:00"), purge=21)
    assert ended["test"] == (568, 731)  # 22 o'clock of the day before, in UTC: that day's bar is in


def test_appended_bars_move_neither_train_nor_validation():
    for rows in (700, 701, 5_000):
        bounds = bounds_of(rows, BY_DATE, 21)
        assert bounds["train"] == (0, 366) and bounds["validation"] == (387, 547)
        assert bounds["test"] == (568, rows)
    folded = replace(BY_DATE, test_until="2001-12-01", folds=3)
    for fold in range(3):
        chosen = replace(folded, fold=fold, mode="sliding")
        assert bounds_of(5_000, chosen, 21) == bounds_of(700, chosen, 21)


def test_folds_by_date_divide_what_is_tested():
    split = replace(BY_DATE, test_until="2002-01-01", folds=3, mode="sliding")
    folds = walk_forward(1_000, split, 21)
    assert folds[0]["train"] == (0, 366) and folds[0]["validation"] == (387, 547)
    assert [fold["test"] for fold in folds] == [(568, 622), (622, 676), (676, 731)]
    assert {fold["train"][1] - fold["train"][0] for fold in folds} == {366}
    assert {fold["validation"][1] - fold["validation"][0] for fold in folds} == {160}


FAULTS = {
    "shares": (
        SplitConfig(validation=0.5, test=0.5),
        "data.split.validation: 0.5 and data.split.test 0.5 leave nothing to train on; together they",
    ),
    "fold": (
        SplitConfig(folds=3, fold=3),
        "data.split.fold: 3 is not one of 3 folds; the first is 0, the last 2",
    ),
    "no date": (
        replace(BY_DATE, train_until="2001-02-30"),
        "data.split.train_until: '2001-02-30' is not a time such as 2019-01-31",
    ),
    "day first": (replace(BY_DATE, train_until="01/02/2001"), "'01/02/2001' is not a time"),
    "week": (replace(BY_DATE, train_until="2001-W01-1"), "'2001-W01-1' is not a time"),
    "beyond all years": (
        replace(BY_DATE, validation_until="9999-12-31T23:00:00-05:00"),
        "data.split.validation_until: '9999-12-31T23:00:00-05:00' is not a time",
    ),
    "one alone": (
        SplitConfig(train_until="2001-01-01"),
        "data.split.validation_until: is missing beside data.split.train_until",
    ),
    "the last alone": (
        SplitConfig(test_until="2001-01-01"),
        "data.split.train_until: is missing beside data.split.test_until",
    ),
    "order": (
        replace(BY_DATE, validation_until="2001-01-01"),
        "data.split.validation_until: 2001-01-01 is not later than data.split.train_until 2001-01-01",
    ),
    "both": (
        replace(BY_DATE, test=0.2),
        "data.split.test: 0.2 beside data.split.train_until: time is divided by shares or by dates",
    ),
    "folds": (
        replace(BY_DATE, folds=2),
        "data.split.test_until: is missing: without it, every fold moves when bars are appended",
    ),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_settings_that_contradict_each_other(kind):
    split, words = FAULTS[kind]
    assert (
        words in f"{'.'.join(next(split_faults(split)).paths[0])}: {next(split_faults(split)).text}"
    )
    with pytest.raises(ProximaError) as told:
        bounds_of(1_000, split, 1)
    assert words in str(told.value)


OUTSIDE = {
    "before the data": (
        replace(BY_DATE, train_until="1999-01-01"),
        "data.split.train_until: 1999-01-01 leaves 0 bars for train, which needs 2; the bars that can "
        "be used are from 2000-01-01 to 2002-09-26",
    ),
    "too near": (
        replace(BY_DATE, validation_until="2001-01-22"),
        "data.split.validation_until: 2001-01-22 leaves 0 bars for validation after the 21 that are left",
    ),
    "after the data": (
        replace(BY_DATE, validation_until="2101-07-01"),
        "data.split.validation_until: 2101-07-01 leaves 0 bars for test after the 21 that are left out",
    ),
    "nothing to test": (
        replace(BY_DATE, test_until="2001-07-02"),
        "data.split.test_until: 2001-07-02 leaves 0 bars for test",
    ),
    "too many folds": (
        replace(BY_DATE, test_until="2001-08-01", folds=6),
        "data.split.test_until: 2001-08-01 leaves 10 bars for test after the 21 that are left out, "
        "which needs 12",
    ),
}


@pytest.mark.parametrize("kind", OUTSIDE)
def test_dates_that_the_data_does_not_have_are_told_with_those_it_has(kind):
    split, words = OUTSIDE[kind]
    with pytest.raises(ProximaError) as told:
        bounds_of(1_000, split, 21)
    assert words in str(told.value)
