"""From a file of prices to what a training run needs.

    read_source      find the file, read it strictly, hold what it says of itself against the scenario
    prepare_source   features ─► causality check ─► warm-up cut ─► purged split ─► scaled on train only

One feature at a time is in float64; the matrix of all is float32. Prices are views of what was read. So
the peak is the file's six columns, the matrix and the intermediate columns of a single feature.

Time is divided into train, validation and test, with rows left out between them:

    anchored   train ───────────────╮ gap ╭─ validation ─╮ gap ╭─ test ─╮
    fold 0     ████████████████████       ▒▒▒▒▒▒▒▒             ░░░░
    fold 1     ████████████████████████       ▒▒▒▒▒▒▒▒             ░░░░
    sliding 1      ████████████████████       ▒▒▒▒▒▒▒▒             ░░░░

The share `test` is the end of the data; walk-forward folds divide it among them, in order, so that
together they test on each of its rows once. One fold tests on all of it.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from proxima.core.errors import ProximaError
from proxima.domains.trading.causality import refuse_look_ahead
from proxima.domains.trading.config import DataConfig, SplitConfig
from proxima.domains.trading.features import Column, compute, resolve_features
from proxima.domains.trading.market import Market, Prepared, Scaler
from proxima.domains.trading.ohlcv import load_trading_data
from proxima.domains.trading.synthetic import GENERATOR_VERSION, generate, pattern_params
from proxima.files import replacing

METADATA_KEY = "proxima"
LEAST_ROWS = 2  # of a split: two prices make one return
PROBE = 4_096  # rows in which the end of the warm-up is looked for first


class Source(NamedTuple):
    """A file of prices as read."""

    path: Path
    frame: pl.DataFrame
    # What a synthetic file says of itself: pattern, rows, seed, params, version.
    made: Mapping[str, Any] | None


def synthetic_path(name: str, root: str | Path = ".") -> Path:
    """Where the synthetic prices of a scenario are."""
    return Path(root) / "data" / "raw" / "synthetic" / f"{name}.parquet"


def write_synthetic(config: DataConfig, name: str, root: str | Path = ".") -> Path:
    """Writes the config's pattern, whole or not at all; the same config gives the same bytes."""
    if config.pattern is None:
        raise ProximaError(
            "data.pattern: null, so there is nothing to generate; `proxima generate-data --list` "
            "names the patterns"
        )
    path = synthetic_path(name, root)
    if not name or name.startswith(".") or path.name != f"{name}.parquet":
        raise ProximaError(f"{name!r}: names a file: not empty, no slashes, no leading dot")
    frame = generate(config.pattern, config.rows, config.seed, config.params)
    with replacing(path) as temporary:
        frame.write_parquet(temporary, metadata={METADATA_KEY: json.dumps(_described(config))})
    return path


def read_made(path: Path) -> dict[str, Any] | None:
    """What a parquet file that `write_synthetic` wrote says of itself, else nothing."""
    if path.suffix.lower() != ".parquet":
        return None
    text = pl.read_parquet_metadata(path).get(METADATA_KEY)
    return None if text is None else json.loads(text)


def read_source(config: DataConfig, name: str, root: str | Path = ".") -> Source:
    """The config's own file, or the synthetic one of the scenario's name."""
    path = synthetic_path(name, root) if config.path is None else Path(config.path)
    if config.path is None and not path.exists():
        raise ProximaError(f"{path}: no such file; {_how_to_make(config, name)}")
    source = Source(path, load_trading_data(path), read_made(path))
    if config.path is None and config.pattern is not None:
        _refuse_stale(config, name, source)
    return source


def prepare_data(config: DataConfig, name: str, root: str | Path = ".") -> Prepared:
    """The scenario's market, checked, featurised, split and scaled."""
    return prepare_source(read_source(config, name, root), config)


def prepare_source(source: Source, config: DataConfig) -> Prepared:
    """A source's market, featurised, split and scaled."""
    frame, columns = source.frame, resolve_features(config.features, config.leaky)
    first, last = _usable_rows(frame, columns)
    purge = max(column.reach for column in columns) + config.split.horizon
    try:
        bounds = split_bounds(last - first, config.split, purge)
    except ProximaError as failure:
        raise ProximaError(f"{source.path}: {failure}") from failure
    matrix = np.empty((last - first, len(columns)), np.float32)
    scalers = []
    for index, column in enumerate(columns):
        values = _checked_values(frame, column, first, last)
        scaler = fit_scaler(column, values[slice(*bounds["train"])])
        values -= scaler.mean  # in place, here and below: ten million rows are 80 MB
        values /= scaler.std
        matrix[:, index] = values
        scalers.append(scaler)
    made = source.made or {}
    markets, rows = {}, {}
    for split, (start, stop) in bounds.items():
        rows[split] = (first + start, first + stop)
        prices = {name: frame[name].to_numpy()[slice(*rows[split])] for name in frame.columns}
        markets[split] = Market(**prices, features=matrix[start:stop])
    return Prepared(
        **markets,
        feature_names=tuple(column.name for column in columns),
        source=str(source.path),
        pattern=made.get("pattern"),
        params=made.get("params", {}),
        bounds=rows,
        scalers=tuple(scalers),
        fingerprint=_fingerprint(source, matrix),
    )


def _fingerprint(source: Source, matrix: NDArray[np.float32]) -> dict[str, str | int]:
    """By values, so that a file written again in another way is still the same."""
    frame, prices = source.frame, hashlib.sha256()
    for name in frame.columns:
        prices.update(name.encode())
        prices.update(np.ascontiguousarray(frame[name].to_numpy()).view(np.uint8).data)
    return {
        "source": str(source.path),
        "rows": frame.height,
        "first": frame["time"][0].isoformat(),
        "last": frame["time"][-1].isoformat(),
        "prices_sha256": prices.hexdigest(),
        "features_sha256": hashlib.sha256(matrix.view(np.uint8).data).hexdigest(),
    }


def _checked_values(
    frame: pl.DataFrame, column: Column, first: int, last: int
) -> NDArray[np.float64]:
    """A copy of a feature's usable values, of which every one is finite and none knows later rows."""
    values = compute(frame, column)
    if not column.leaks:  # one that does got here because the scenario said so
        refuse_look_ahead(frame, column, values)
    bad = ~values[first:last].is_finite().fill_null(False)
    if bad.any():
        row = first + int(bad.arg_max() or 0)
        value = values[row]
        raise ProximaError(
            f"feature {column.name}: has {'no value' if value is None else value} in row {row + 1:,} "
            f"({bad.sum():,} such rows), where every feature must be a finite number; a volume or price "
            "that does not change within the window does this, leave the feature out or widen its window"
        )
    return values[first:last].to_numpy(writable=True)


def fit_scaler(column: Column, train: NDArray[np.float64]) -> Scaler:
    """Mean and deviation over the train rows, with nothing added: a tiny feature comes out like any other."""
    if not column.scaled:
        return Scaler(0.0, 1.0)
    if train.min() == train.max():
        raise ProximaError(
            f"feature {column.name}: is {train[0]:g} in every row of the train split, so it has no "
            "deviation to scale by; leave it out, or set its scale: none"
        )
    return Scaler(float(train.mean()), float(train.std()))


def _described(config: DataConfig) -> dict[str, Any]:
    return {
        "pattern": config.pattern,
        "rows": config.rows,
        "seed": config.seed,
        "params": pattern_params(config.pattern or "", config.params),
        "version": GENERATOR_VERSION,
    }


def _how_to_make(config: DataConfig, name: str) -> str:
    if config.pattern is None:
        return "set data.path to your OHLCV parquet or CSV, or data.pattern to a synthetic pattern"
    return (
        f"make it with `proxima generate-data --scenario {name}` (a scenario of your own: its file), or "
        "run the experiment with --generate-data"
    )


def _refuse_stale(config: DataConfig, name: str, source: Source) -> None:
    """Prices that the scenario does not describe would be a silent mistake."""
    if source.made is None:
        raise ProximaError(
            f"{source.path}: was not made by `proxima generate-data`; set data.path to use a file of "
            f"your own, or {_how_to_make(config, name)}"
        )
    for key, wanted in _described(config).items():
        if source.made.get(key) != wanted:
            raise ProximaError(
                f"{source.path}: was made with {key} {source.made.get(key)}, the scenario says {wanted}; "
                f"{_how_to_make(config, name)}"
            )


def _usable_rows(frame: pl.DataFrame, columns: Sequence[Column]) -> tuple[int, int]:
    """The first row in which every feature has a value, and the one after the last.

    Found near the ends: what a causal feature has there does not depend on the rows in between.
    """
    first = max(_nulls_at_the_end(frame, column, "head") for column in columns)
    ahead = [_nulls_at_the_end(frame, column, "tail") for column in columns if column.leaks]
    return first, frame.height - max(ahead, default=0)


def _nulls_at_the_end(frame: pl.DataFrame, column: Column, end: Literal["head", "tail"]) -> int:
    """How many rows have no value before the first that has one, or after the last."""
    length = max(PROBE, 2 * column.reach)
    while True:
        rows = frame.head(length) if end == "head" else frame.tail(length)
        present = compute(rows, column).is_not_null()
        if present.any():
            return int((present if end == "head" else present.reverse()).arg_max() or 0)
        if length >= frame.height:
            raise ProximaError(
                f"feature {column.name}: has no value in any of {frame.height:,} rows; take a shorter "
                "window or more rows"
            )
        length *= 4


def split_bounds(rows: int, split: SplitConfig, purge: int) -> dict[str, tuple[int, int]]:
    """The first row and the one after the last of each part of the fold, `purge` rows left out between."""
    if split.fold >= split.folds:
        raise ProximaError(
            f"data.split.fold: {split.fold} is not allowed: with folds {split.folds} the last one is "
            f"{split.folds - 1}"
        )
    if split.validation + split.test >= 1:
        raise ProximaError(
            f"data.split: validation {split.validation:g} and test {split.test:g} leave nothing to "
            "train on; together they must be less than 1"
        )
    if not _fits(rows, split, purge):
        raise ProximaError(
            f"{rows:,} usable rows are too few to split: train, validation and test with {purge:,} rows "
            f"left out between them (the longest look back and ahead) need {_needed(split, purge):,}; "
            "take more rows, shorter feature windows, or other shares in data.split"
        )
    tested, validated = _count(rows, split.test), _count(rows, split.validation)
    first, fold = rows - tested, split.fold
    test = (first + fold * tested // split.folds, first + (fold + 1) * tested // split.folds)
    validation = (test[0] - purge - validated, test[0] - purge)
    length = first - 2 * purge - validated  # of the first fold's train part
    end = validation[0] - purge
    start = 0 if split.mode == "anchored" else end - length
    return {"train": (start, end), "validation": validation, "test": test}


def _count(rows: int, share: float) -> int:
    return math.floor(rows * share + 1e-9)  # 0.3 of 10 is 3, whatever 0.3 is in binary


def _fits(rows: int, split: SplitConfig, purge: int) -> bool:
    tested, validated = _count(rows, split.test), _count(rows, split.validation)
    parts = (rows - tested - validated - 2 * purge, validated, tested // split.folds)
    return min(parts) >= LEAST_ROWS


def _needed(split: SplitConfig, purge: int) -> int:
    """The fewest rows from which on every number of them can be split."""
    rows = max(
        LEAST_ROWS / split.validation,
        LEAST_ROWS * split.folds / split.test,
        (LEAST_ROWS + 2 * purge) / (1 - split.validation - split.test),
    )
    needed = math.ceil(rows) + 1  # against rounding; then down to where it stops fitting
    while _fits(needed - 1, split, purge):
        needed -= 1
    return needed
