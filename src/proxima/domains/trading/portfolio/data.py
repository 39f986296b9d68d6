"""From a file of several assets' prices to what a training run needs.

    read_source      find the file, read it strictly, hold what it says of itself against the scenario
    prepare_source   features of every asset ─► causality check ─► purged split ─► scaled on train only

Every asset has the same features. A feature's mean and deviation are those of all assets on the train split
together, so that the same number means the same of each.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from proxima.core.errors import ProximaError
from proxima.domains.trading.config import DEFAULT_FEATURES, FeatureConfig
from proxima.domains.trading.data import MADE as MADE_OF_ONE
from proxima.domains.trading.data import (
    METADATA_KEY,
    check_file_name,
    checked_values,
    described,
    fit_scaler,
    how_to_make,
    one_fold,
    price_file,
    read_made,
    refuse_stale,
    synthetic_path,
    usable_rows,
)
from proxima.domains.trading.features import Column, needs_volume, resolve_features
from proxima.domains.trading.market import Scaler
from proxima.domains.trading.ohlcv import COLUMNS
from proxima.domains.trading.portfolio.config import PanelConfig
from proxima.domains.trading.portfolio.panel import SYMBOL, Panel, read_panel
from proxima.domains.trading.splits import split_bounds
from proxima.domains.trading.synthetic import generate
from proxima.files import replacing

MADE = (*MADE_OF_ONE, "assets")  # what a synthetic file says of itself


class Stretch(NamedTuple):
    """The bars of n assets between two times; everything in row t is known at the close of bar t."""

    time: NDArray[np.datetime64]  # when each bar began, UTC, datetime64[us] (T,)
    open: NDArray[np.float64]  # (T, n)
    close: NDArray[np.float64]  # (T, n)
    features: NDArray[np.float32]  # what an agent may look at, scaled, (T, n, k)


class Source(NamedTuple):
    """A file of prices as read."""

    path: Path
    panel: Panel
    made: Mapping[str, Any] | None  # what a synthetic file says of itself, `MADE`


class PreparedPanel(NamedTuple):
    """A dataset ready for training: three stretches of time that share no row and no window."""

    splits: Mapping[str, Stretch]
    assets: tuple[str, ...]
    feature_names: tuple[str, ...]
    features: tuple[FeatureConfig, ...]  # those asked for, or those that the file can feed
    scalers: tuple[Scaler, ...]  # of every feature, from all assets on the train split
    pattern: str | None  # that the file says it was made with
    params: Mapping[str, float | int | str]  # the pattern's settings, all of them
    fingerprint: Mapping[str, Any]  # what tells the dataset from another
    closes_only: bool
    notes: tuple[str, ...]  # sentences for the user
    warm_up: int  # rows before the first in which every feature has a value


def write_synthetic(config: PanelConfig, name: str, root: str | Path = ".") -> Path:
    """Writes the config's pattern for every asset, whole or not at all; the same config, the same bytes."""
    if config.pattern is None:
        raise ProximaError(
            "data.pattern: null, so there is nothing to generate; `proxima generate-data --list` names the "
            "patterns"
        )
    path = synthetic_path(name, root)
    check_file_name(path, name)
    width = len(str(config.assets))
    frames = [
        generate(config.pattern, config.rows, seed, config.params).with_columns(
            pl.lit(f"asset_{number:0{width}}").alias(SYMBOL)
        )
        for number, seed in enumerate(asset_seeds(config), 1)
    ]
    whole = pl.concat(frames).sort("time", SYMBOL).select("time", SYMBOL, *COLUMNS[1:])
    with replacing(path) as temporary:
        whole.write_parquet(temporary, metadata={METADATA_KEY: json.dumps(_described(config))})
    return path


def asset_seeds(config: PanelConfig) -> list[int]:
    """A seed for each asset's prices: those of the first are a single asset's with the same seed."""
    others = np.random.SeedSequence(config.seed).generate_state(config.assets - 1)
    return [config.seed, *(int(seed) >> 1 for seed in others)]


def read_source(config: PanelConfig, name: str, root: str | Path = ".") -> Source:
    """The config's own file, a package's, or the synthetic one of the scenario's name."""
    path = price_file(config, name, root)
    if config.path is None and not path.exists():
        raise ProximaError(f"{path}: no such file; {how_to_make(config, name)}")
    source = Source(path, read_panel(path), read_made(path, MADE))
    if config.path is None and config.pattern is not None:
        refuse_stale(path, source.made, _described(config), how_to_make(config, name))
    return source


def prepare_folds(config: PanelConfig, name: str) -> list[PreparedPanel]:
    """The scenario's market divided for each fold, or once where it is about one fold."""
    source = read_source(config, name)
    folds = config.split.folds if config.split.fold == "all" else 1
    return [prepare_source(source, one_fold(config, fold)) for fold in range(folds)]


def prepare_source(source: Source, config: PanelConfig) -> PreparedPanel:
    """A source's market, featurised, split and scaled."""
    panel, features = source.panel, choose_features(source.panel, config)
    columns = resolve_features(features, config.leaky)
    _refuse_missing(source, features, columns)
    ends = [usable_rows(frame, columns) for frame in panel.frames]
    first, last = max(end[0] for end in ends), min(end[1] for end in ends)
    purge = max(column.reach for column in columns) + config.split.horizon
    try:
        bounds = split_bounds(panel.time.to_numpy()[first:last], config.split, purge)
    except ProximaError as failure:
        raise ProximaError(f"{source.path}: {failure}") from failure
    seen = np.empty((last - first, len(panel.assets), len(columns)), np.float32)
    scalers = []
    for index, column in enumerate(columns):
        values = np.stack(_values(panel, column, first, last), axis=1)
        scaler = fit_scaler(column, values[slice(*bounds["train"])].reshape(-1))
        seen[:, :, index] = (values - scaler.mean) / scaler.std
        scalers.append(scaler)
    made = source.made or {}
    rows = {split: (first + start, first + stop) for split, (start, stop) in bounds.items()}
    return PreparedPanel(
        splits={split: _stretch(panel, seen, first, ends) for split, ends in rows.items()},
        assets=panel.assets,
        feature_names=tuple(column.name for column in columns),
        features=features,
        scalers=tuple(scalers),
        pattern=made.get("pattern"),
        params=made.get("params", {}),
        fingerprint=_fingerprint(source, seen, rows),
        closes_only=panel.closes_only,
        notes=tuple(f"{source.path}: {note}" for note in _notes(panel, config, features)),
        warm_up=first,
    )


def choose_features(panel: Panel, config: PanelConfig) -> tuple[FeatureConfig, ...]:
    """The config's features; where it names none, those of the default that the file can feed."""
    if config.features is not None:
        return config.features
    if panel.has_volume and all(_varies(frame["volume"]) for frame in panel.frames):
        return DEFAULT_FEATURES
    columns = zip(DEFAULT_FEATURES, resolve_features(DEFAULT_FEATURES), strict=True)
    return tuple(feature for feature, column in columns if not needs_volume(column))


def _varies(values: pl.Series) -> bool:
    return bool(values.min() != values.max())


def _values(panel: Panel, column: Column, first: int, last: int) -> list[NDArray[np.float64]]:
    """A feature of every asset; an error names the asset."""
    values = []
    for asset, frame in zip(panel.assets, panel.frames, strict=True):
        try:
            values.append(checked_values(frame, column, first, last))
        except ProximaError as failure:
            raise ProximaError(f"{asset}: {failure}") from failure
    return values


def _stretch(panel: Panel, seen: NDArray[np.float32], first: int, rows: tuple[int, int]) -> Stretch:
    start, stop = rows
    opens, closes = (
        np.stack([frame[name].to_numpy()[start:stop] for frame in panel.frames], axis=1)
        for name in ("open", "close")
    )
    time = panel.time.to_numpy()[start:stop]
    return Stretch(time, opens, closes, seen[start - first : stop - first])


def _fingerprint(
    source: Source, seen: NDArray[np.float32], rows: Mapping[str, tuple[int, int]]
) -> dict[str, Any]:
    """By values, so that a file written again in another way is still the same."""
    panel, time = source.panel, source.panel.time
    return {
        "source": str(source.path),
        "rows": panel.bars,
        "assets": list(panel.assets),
        "first": time[0].isoformat(),
        "last": time[-1].isoformat(),
        "prices_sha256": panel.digest(),
        "features_sha256": hashlib.sha256(seen.view(np.uint8).data).hexdigest(),
        "splits": {
            name: {
                "rows": stop - start,
                "first": time[start].isoformat(),
                "last": time[stop - 1].isoformat(),
                "prices_sha256": panel.rows(start, stop - start).digest(),
            }
            for name, (start, stop) in rows.items()
        },
    }


def _refuse_missing(
    source: Source, features: Sequence[FeatureConfig], columns: Sequence[Column]
) -> None:
    """An error where a feature needs what the file does not have."""
    panel = source.panel
    for index, (feature, column) in enumerate(zip(features, columns, strict=True)):
        read = set(column.expression.meta.root_names())
        lacking = read & {"open", "high", "low"} if panel.closes_only else set[str]()
        if not panel.has_volume:
            lacking |= read & {"volume"}
        if lacking:
            raise ProximaError(
                f"data.features.{index}.kind: {feature.kind} needs {' and '.join(sorted(lacking))}, and "
                f"{source.path} has none; leave the feature out, or give a file that has it"
            )


def _notes(panel: Panel, config: PanelConfig, features: Sequence[FeatureConfig]) -> Iterator[str]:
    yield from panel.notes
    if config.features is None and features != DEFAULT_FEATURES:
        reason = "has closing prices only" if panel.closes_only else "no volume that changes"
        yield f"{reason}; the features are {', '.join(feature.kind for feature in features)}"


def _described(config: PanelConfig) -> dict[str, Any]:
    return {**described(config), "assets": config.assets}
