"""Prices and features as arrays: what the environment, the oracles and the metrics work on."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SPLITS = ("train", "validation", "test")


class Market(NamedTuple):
    """One stretch of n bars; everything in row t is known at the close of bar t."""

    time: NDArray[np.datetime64]
    """When each bar began, UTC, datetime64[us] (n,)."""
    open: NDArray[np.float64]
    high: NDArray[np.float64]
    low: NDArray[np.float64]
    close: NDArray[np.float64]
    volume: NDArray[np.float64]
    features: NDArray[np.float32]
    """What an agent may look at, scaled, (n, k)."""


class Scaler(NamedTuple):
    """A feature as the agent sees it: (value − mean) / std."""

    mean: float
    std: float


class Fingerprint(NamedTuple):
    """What tells a dataset from another: its size, its span, and hashes of all that is in it."""

    rows: int
    first: str
    last: str
    prices_sha256: str
    features_sha256: str


class Prepared(NamedTuple):
    """A dataset ready for training: three stretches of time that share no row and no window."""

    train: Market
    validation: Market
    test: Market
    feature_names: tuple[str, ...]
    source: str
    """The file the prices came from."""
    pattern: str | None
    """The synthetic pattern that the file says it was made with, null for other files."""
    params: Mapping[str, float | int | str]
    """The pattern's settings, all of them."""
    bounds: Mapping[str, tuple[int, int]]
    """Each split's first row of the file, and the one after its last; rows count from 0."""
    scalers: tuple[Scaler, ...] = ()
    """What each feature was scaled with, from the train split; (0, 1) where it was not."""
    fingerprint: Fingerprint | None = None
    """Of the file's prices, and of the features made of them."""

    def split(self, name: str) -> Market:
        """The stretch called train, validation or test."""
        return {"train": self.train, "validation": self.validation, "test": self.test}[name]
