"""Prices and features as arrays: what the environment, the oracles and the metrics work on."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxima.domains.trading.config import FeatureConfig

SPLITS = ("train", "validation", "test")


class Market(NamedTuple):
    """One stretch of n bars; everything in row t is known at the close of bar t."""

    time: NDArray[np.datetime64]  # when each bar began, UTC, datetime64[us] (n,)
    open: NDArray[np.float64]
    high: NDArray[np.float64]
    low: NDArray[np.float64]
    close: NDArray[np.float64]
    volume: NDArray[np.float64]
    features: NDArray[np.float32]  # what an agent may look at, scaled, (n, k)


class Spacing(NamedTuple):
    """How far apart two neighbouring bars are, in microseconds."""

    shortest: int
    longest: int


def spacing_of(*stretches: NDArray[np.datetime64]) -> Spacing | None:
    """Of the bars that began at these times, microseconds all; None where no two are neighbours."""
    steps = np.concatenate([np.diff(stretch).astype(np.int64) for stretch in stretches])
    return Spacing(int(steps.min()), int(steps.max())) if len(steps) else None


class Scaler(NamedTuple):
    """A feature as the agent sees it: (value − mean) / std."""

    mean: float
    std: float


class Prepared(NamedTuple):
    """A dataset ready for training: three stretches of time that share no row and no window."""

    train: Market
    validation: Market
    test: Market
    feature_names: tuple[str, ...]
    source: str  # the file the prices came from
    pattern: str | None  # that the file says it was made with, null where it is not synthetic
    params: Mapping[str, float | int | str]  # the pattern's settings, all of them
    # Each split's first row of the file, and the one after its last; rows count from 0.
    bounds: Mapping[str, tuple[int, int]]
    # What each feature was scaled with, from the train split; (0, 1) where it was not.
    scalers: tuple[Scaler, ...] = ()
    # What tells the dataset from another: its source, size and span, and hashes of all that is in it.
    fingerprint: Mapping[str, Any] = {}
    features: tuple[FeatureConfig, ...] = ()  # those asked for, or those that the file can feed
    notes: tuple[str, ...] = ()  # sentences for the user
    warm_up: int = 0  # rows before the first in which every feature has a value

    def split(self, name: str) -> Market:
        """The stretch called train, validation or test."""
        return {"train": self.train, "validation": self.validation, "test": self.test}[name]
