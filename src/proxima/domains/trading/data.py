"""From a file of prices to what a training run needs.

    read_source      find the file, read it strictly, hold what it says of itself against the scenario
    prepare_source   features ─► causality check ─► warm-up cut ─► purged split ─► scaled on train only

One feature at a time is in float64; the matrix of all is float32. Prices are views of what was read. So
the peak is the file's six columns, the matrix and the intermediate columns of a single feature.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from proxima.core.errors import ProximaError
from proxima.domains.trading.causality import refuse_look_ahead
from proxima.domains.trading.config import DEFAULT_FEATURES, DataConfig, FeatureConfig
from proxima.domains.trading.features import Column, compute, needs_volume, resolve_features
from proxima.domains.trading.market import Market, Prepared, Scaler
from proxima.domains.trading.ohlcv import read_bars
from proxima.domains.trading.sources import source_path
from proxima.domains.trading.splits import split_bounds
from proxima.domains.trading.synthetic import GENERATOR_VERSION, generate, pattern_params
from proxima.files import replacing

METADATA_KEY = "proxima"
MADE = ("pattern", "rows", "seed", "params", "version")  # what is said there
D = TypeVar("D", bound=DataConfig)
PROBE = 4_096  # rows in which the end of the warm-up is looked for first


class Source(NamedTuple):
    """A file of prices as read."""

    path: Path
    frame: pl.DataFrame
    # What a synthetic file says of itself, `MADE`.
    made: Mapping[str, Any] | None
    has_volume: bool = True  # False: the frame's is 0 because the file has none
    notes: tuple[str, ...] = ()  # what is to be said of the file


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
    check_file_name(path, name)
    frame = generate(config.pattern, config.rows, config.seed, config.params)
    with replacing(path) as temporary:
        frame.write_parquet(temporary, metadata={METADATA_KEY: json.dumps(described(config))})
    return path


def check_file_name(path: Path, name: str) -> None:
    """An error where a name is none of a file in a directory."""
    if not name or name.startswith(".") or path.name != f"{name}.parquet":
        raise ProximaError(f"{name!r}: names a file: not empty, no slashes, no leading dot")


def read_made(path: Path, keys: Sequence[str] = MADE) -> dict[str, Any] | None:
    """What a parquet file of synthetic prices says of itself, by these names; of any other, nothing."""
    if path.suffix.lower() != ".parquet":
        return None
    text = pl.read_parquet_metadata(path).get(METADATA_KEY)
    if text is None:
        return None
    try:
        made = json.loads(text)
    except (ValueError, RecursionError):
        made = None
    known = isinstance(made, dict) and made.keys() == set(keys) and isinstance(made["params"], dict)
    if not known:
        raise ProximaError(
            f"{path}: what it says of how it was made is damaged; make it anew with "
            "`proxima generate-data`"
        )
    return made


def price_file(config: DataConfig, name: str, root: str | Path = ".") -> Path:
    """Where the prices of a scenario are."""
    if config.source is not None:
        return source_path(config.source, root)
    return synthetic_path(name, root) if config.path is None else Path(config.path)


def read_source(config: DataConfig, name: str, root: str | Path = ".") -> Source:
    """The config's own file, or the synthetic one of the scenario's name."""
    path = price_file(config, name, root)
    if config.path is None and not path.exists():
        raise ProximaError(f"{path}: no such file; {how_to_make(config, name)}")
    bars = read_bars(path)
    source = Source(path, bars.frame, read_made(path), bars.has_volume, bars.notes)
    if config.path is None and config.pattern is not None:
        refuse_stale(path, source.made, described(config), how_to_make(config, name))
    return source


def prepare_data(config: DataConfig, name: str, root: str | Path = ".") -> Prepared:
    """The scenario's market, checked, featurised, split and scaled."""
    return prepare_source(read_source(config, name, root), config)


def one_fold(config: D, fold: int) -> D:
    """The settings with that fold where they are about all of them, and as they are where about one."""
    if config.split.fold != "all":
        return config
    return replace(config, split=replace(config.split, fold=fold))


def prepare_source(source: Source, config: DataConfig) -> Prepared:
    """A source's market, featurised, split and scaled."""
    frame, features = source.frame, choose_features(source, config)
    columns = resolve_features(features, config.leaky)
    _refuse_missing_volume(source, features, columns)
    first, last = usable_rows(frame, columns)
    purge = max(column.reach for column in columns) + config.split.horizon
    try:
        bounds = split_bounds(frame["time"].to_numpy()[first:last], config.split, purge)
    except ProximaError as failure:
        raise ProximaError(f"{source.path}: {failure}") from failure
    matrix = np.empty((last - first, len(columns)), np.float32)
    scalers = []
    for index, column in enumerate(columns):
        values = checked_values(frame, column, first, last)
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
        fingerprint=_fingerprint(source, matrix, rows),
        features=features,
        notes=tuple(f"{source.path}: {note}" for note in _notes(source, config, features)),
        warm_up=first,
    )


def choose_features(source: Source, config: DataConfig) -> tuple[FeatureConfig, ...]:
    """The config's features; where it names none, those of the default that the file can feed."""
    if config.features is not None:
        return config.features
    volume = source.frame["volume"]
    if volume.min() != volume.max():
        return DEFAULT_FEATURES
    columns = zip(DEFAULT_FEATURES, resolve_features(DEFAULT_FEATURES), strict=True)
    return tuple(feature for feature, column in columns if not needs_volume(column))


def _notes(source: Source, config: DataConfig, features: Sequence[FeatureConfig]) -> Iterator[str]:
    yield from source.notes
    if config.features is None and features != DEFAULT_FEATURES:
        reason = "the volume never changes" if source.has_volume else "has no volume"
        yield f"{reason}; the features are {', '.join(feature.kind for feature in features)}"


def _refuse_missing_volume(
    source: Source, features: Sequence[FeatureConfig], columns: Sequence[Column]
) -> None:
    for index, (feature, column) in enumerate(zip(features, columns, strict=True)):
        if needs_volume(column) and not source.has_volume:
            raise ProximaError(
                f"data.features.{index}.kind: {feature.kind} needs a volume, and {source.path} has none; "
                "leave the feature out, or give the file a column volume"
            )


def _fingerprint(
    source: Source, matrix: NDArray[np.float32], rows: Mapping[str, tuple[int, int]]
) -> dict[str, Any]:
    """By values, so that a file written again in another way is still the same."""
    frame, time = source.frame, source.frame["time"]
    return {
        "source": str(source.path),
        "rows": frame.height,
        "first": time[0].isoformat(),
        "last": time[-1].isoformat(),
        "prices_sha256": digest_of(frame),
        "features_sha256": hashlib.sha256(matrix.view(np.uint8).data).hexdigest(),
        "splits": {
            name: {
                "rows": stop - start,
                "first": time[start].isoformat(),
                "last": time[stop - 1].isoformat(),
                "prices_sha256": digest_of(frame[start:stop]),
            }
            for name, (start, stop) in rows.items()
        },
    }


def digest_of(frame: pl.DataFrame) -> str:
    """The SHA-256 of a frame's values."""
    digest = hashlib.sha256()
    for name in frame.columns:
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(frame[name].to_numpy()).view(np.uint8).data)
    return digest.hexdigest()


def checked_values(
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


def described(config: DataConfig) -> dict[str, Any]:
    """What a file of the config's pattern says of itself."""
    return {
        "pattern": config.pattern,
        "rows": config.rows,
        "seed": config.seed,
        "params": pattern_params(config.pattern or "", config.params),
        "version": GENERATOR_VERSION,
    }


def how_to_make(config: DataConfig, name: str) -> str:
    """What one does where the prices of a scenario are not there."""
    if config.pattern is None and config.source is None:
        return "set data.path to your OHLCV parquet or CSV, or data.pattern to a synthetic pattern"
    return (
        f"make it with `proxima generate-data --scenario {name}` (a scenario of your own: its file), or "
        "run the experiment with --generate-data"
    )


def refuse_stale(
    path: Path, made: Mapping[str, Any] | None, wanted: Mapping[str, Any], remedy: str
) -> None:
    """Prices that the scenario does not describe would be a silent mistake."""
    if made is None:
        raise ProximaError(
            f"{path}: was not made by `proxima generate-data`; set data.path to use a file of your own, or "
            f"{remedy}"
        )
    for key, value in wanted.items():
        if made.get(key) != value:
            raise ProximaError(
                f"{path}: was made with {key} {made.get(key)}, the scenario says {value}; {remedy}"
            )


def usable_rows(frame: pl.DataFrame, columns: Sequence[Column]) -> tuple[int, int]:
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
