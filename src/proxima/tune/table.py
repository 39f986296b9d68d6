"""A search as files: its configurations as a parquet table, the whole of it as JSON.

A column of a table has one type. Settings that are sometimes text and sometimes something else become text,
as a scenario would have them (`auto`, `1`, `true`); a text that would be read as a number is put in quotes.
"""

import json
from collections.abc import Mapping, Sequence
from math import isfinite, nan
from pathlib import Path
from typing import Any

import polars as pl

from proxima.core.errors import ProximaError
from proxima.files import replacing
from proxima.scenario.search import Value
from proxima.tune.results import Configuration, Confirmed, Copy, Curve, SearchResult

NUMBERS = pl.List(pl.Float64)
COLUMNS: dict[str, Any] = {  # besides one for each setting, whose name is its dotted path
    "number": pl.Int64,
    "state": pl.String,
    "value": pl.Float64,
    "values": NUMBERS,
    "steps": pl.Int64,
    "finished": pl.Int64,
    "program": pl.Int64,
    "curve_steps": pl.List(pl.Int64),
    "curve_values": NUMBERS,
}


def write_table(path: Path, configurations: Sequence[Configuration]) -> None:
    """Write a parquet file with a row per configuration, whole or not at all."""
    with replacing(path, "table of configurations") as fresh:
        to_frame(configurations).write_parquet(fresh)


def read_table(path: Path) -> tuple[Configuration, ...]:
    """The configurations of such a file."""
    try:
        return from_frame(pl.read_parquet(path, glob=False))  # brackets in a name are letters
    except (OSError, KeyError, pl.exceptions.PolarsError) as failure:
        raise ProximaError(
            f"{path}: cannot be read as a table of configurations ({failure})"
        ) from failure


def to_frame(configurations: Sequence[Configuration]) -> pl.DataFrame:
    """A row per configuration: what became of it, and a column for each setting."""
    paths = dict.fromkeys(path for each in configurations for path in each.settings)
    settings = [
        _settings_column(path, [each.settings.get(path) for each in configurations])
        for path in paths
    ]
    rows = [
        each._asdict()
        | {"curve_steps": [s for s, _ in each.curve], "curve_values": [v for _, v in each.curve]}
        for each in configurations
    ]
    fixed = {name: [row[name] for row in rows] for name in COLUMNS}
    return pl.DataFrame(fixed, schema=COLUMNS).with_columns(settings)


def from_frame(frame: pl.DataFrame) -> tuple[Configuration, ...]:
    """The configurations that such a table holds; every one has all settings."""
    paths = [name for name in frame.columns if name not in COLUMNS]
    return tuple(
        Configuration(
            row["number"],
            {path: _value(row[path]) for path in paths},
            row["value"],
            tuple(row["values"]),
            row["state"],
            row["steps"],
            tuple(zip(row["curve_steps"], row["curve_values"], strict=True)),
            row["finished"],
            row["program"],
        )
        for row in frame.iter_rows(named=True)
    )


def to_json(result: SearchResult) -> dict[str, Any]:
    """The search as strict JSON has it: lists and mappings, and null for what is no finite number."""
    whole = result._asdict() | {
        "configurations": [each._asdict() for each in result.configurations],
        "choosing": [each._asdict() for each in result.choosing],
        "test": [each._asdict() for each in result.test],
        "copies": [each._asdict() for each in result.copies],
    }
    return {name: _plain(part) for name, part in whole.items()}


def from_json(content: Mapping[str, Any]) -> SearchResult:
    """The search that `to_json` gave."""
    try:
        parts = {
            "configurations": tuple(map(_configuration, content["configurations"])),
            "choosing": tuple(map(_confirmed, content["choosing"])),
            "test": tuple(map(_confirmed, content["test"])),
            "copies": tuple(Copy(**each) for each in content["copies"]),
        }
        return SearchResult(**dict(content) | parts)
    except (KeyError, TypeError, ValueError) as failure:
        reason = f"{type(failure).__name__}: {failure}"
        raise ProximaError(f"this is no search that this version wrote ({reason})") from failure


def _configuration(content: Mapping[str, Any]) -> Configuration:
    # a point of a curve whose value was not finite was written as null
    curve: Curve = tuple((steps, nan if v is None else v) for steps, v in content["curve"])
    return Configuration(**dict(content) | {"values": tuple(content["values"]), "curve": curve})


def _confirmed(content: Mapping[str, Any]) -> Confirmed:
    return Confirmed(content["number"], tuple(content["values"]), tuple(content["seeds"]))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def _settings_column(path: str, values: Sequence[Value]) -> pl.Series:
    """A column of the one type that holds all values; text where no other does."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {bool}:
        return pl.Series(path, values, dtype=pl.Boolean)
    if kinds <= {int}:
        return pl.Series(path, values, dtype=pl.Int64)
    if kinds <= {int, float}:
        numbers = [None if value is None else float(value) for value in values]
        return pl.Series(path, numbers, dtype=pl.Float64)
    texts = [None if value is None else _text(value) for value in values]
    return pl.Series(path, texts, dtype=pl.String)


def _text(value: Value) -> str:
    """A value as text from which `_value` reads the same one."""
    written = value if isinstance(value, str) else json.dumps(value)
    read = _value(written)
    is_same = type(read) is type(value) and read == value
    return written if is_same else json.dumps(value)


def _value(cell: Any) -> Value:
    """A cell's value; of text, what JSON reads in it, or the text where it is none."""
    if not isinstance(cell, str):
        return cell
    try:
        read = json.loads(cell)
    except (ValueError, RecursionError):
        return cell
    return cell if isinstance(read, list | dict) else read
