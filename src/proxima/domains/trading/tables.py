"""Bars in the forms that programs have them in: data frames, mappings of columns, Arrow tables, arrays."""

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from proxima.core.errors import ProximaError
from proxima.domains.trading.ohlcv import (
    COLUMNS,
    INDEX_NAMES,
    PRICES,
    TIME_NAMES,
    find_columns,
    find_problems,
    time_expression,
    value_words,
)

WHERE = "bars"  # for errors
FIRST_DAY = np.datetime64("2000-01-01", "us")  # of bars without a time, for features that need none
WIDTHS = (len(PRICES), len(PRICES) + 1)  # of an array, without and with volume


def names_in(raw: Any) -> list[str]:
    """The names of columns, none where there are no names; what is in them is not looked at."""
    if isinstance(raw, Mapping):
        return [str(name) for name in raw]
    table = table_of(raw)
    return [] if table is None else table.columns


def is_bars(raw: Any, observation: tuple[int, ...]) -> bool:
    """Whether these are bars and no observations: prices by name, or an array that no observation fits."""
    table = table_of(raw)
    if table is not None:
        return set(PRICES) <= {name.strip().lower() for name in table.columns}
    shape = np.shape(raw)
    return len(shape) == 2 and shape[1] in WIDTHS and shape[1:] != observation


def bars_of(raw: Any, needed: tuple[str, ...]) -> pl.DataFrame:
    """The bars as a file's are when it was read; `needed` are the columns that must be there."""
    table = table_of(raw)
    if table is None:
        values = np.asarray(raw, np.float64)
        table = pl.DataFrame(values, schema=list(COLUMNS[1 : values.shape[1] + 1]))
    names, kinds = table.columns, table.dtypes

    def holds_time(place: int) -> bool:
        return kinds[place].is_temporal() or isinstance(kinds[place], pl.String)

    timed = [name.strip().lower() in (*TIME_NAMES, *INDEX_NAMES) for name in names]
    if not any(time and holds_time(place) for place, time in enumerate(timed)):
        if "time" in needed:
            raise ProximaError(
                f"{WHERE}: there is no column time; features that read it need one, and so do bars that "
                "go on from a state"
            )
        days = FIRST_DAY + np.arange(table.height) * np.timedelta64(86_400_000_000, "us")
        table = table.select(pl.exclude(*TIME_NAMES)).with_columns(time=days)
        names, kinds = table.columns, table.dtypes
    places = find_columns(WHERE, names, holds_time).places
    if "volume" in needed and "volume" not in places:
        raise ProximaError(f"{WHERE}: the policy's features need a column volume")
    frame = table.select(
        time_expression(WHERE, names[places["time"]], kinds[places["time"]]),
        *(
            pl.col(names[places[name]]).cast(pl.Float64, strict=False).alias(name)
            if name in places
            else pl.lit(0.0).alias(name)
            for name in (*PRICES, "volume")
        ),
    )
    if frame.is_empty():
        raise ProximaError(f"{WHERE}: there are no bars")
    problems = find_problems(frame, lambda row, column: value_words(frame, row, column))
    if problems:
        raise ProximaError("\n".join(f"{WHERE}: {problem}" for problem in problems))
    return frame.rechunk()


def table_of(raw: Any) -> pl.DataFrame | None:
    """Columns by name; None where there are no names."""
    if isinstance(raw, pl.DataFrame):
        return raw
    pandas, arrow = sys.modules.get("pandas"), sys.modules.get("pyarrow")  # loaded by who has one
    if pandas is not None and isinstance(raw, pandas.DataFrame):
        whole = raw.reset_index()
        named = whole.rename(columns=str)
        return pl.DataFrame({name: named[name].to_numpy() for name in named.columns})
    if arrow is not None and isinstance(raw, arrow.Table):
        return pl.DataFrame(raw)
    if isinstance(raw, Mapping):
        return pl.DataFrame({str(name): np.asarray(column) for name, column in raw.items()})
    if isinstance(raw, np.ndarray) and raw.dtype.names is not None:
        return pl.DataFrame({name: np.ascontiguousarray(raw[name]) for name in raw.dtype.names})
    return None
