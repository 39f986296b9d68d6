"""Where a policy's trading stands, on disk: written after every bar, so that a restart goes on exactly there.

    past.parquet   the bars before the first that was traded, written once
    bars.csv       the bars since, a line for each, appended
    state.json     how many of them count, the account, the last answer; replaced whole

The bars are written first. A process that is killed in between leaves a line that state.json does not count,
and the bar is taken again.
"""

import csv
import dataclasses
import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple

import polars as pl

from proxima.core.errors import ProximaError
from proxima.domains.trading.data import digest_of
from proxima.domains.trading.market import Spacing
from proxima.domains.trading.ohlcv import COLUMNS, STAMP
from proxima.domains.trading.stepping import T
from proxima.files import explaining, flush, replacing
from proxima.run import results
from proxima.run.files import write_json
from proxima.run.results import FORMAT, Result

PAST, BARS, STATE = "past.parquet", "bars.csv", "state.json"
# Of one asset, of a trader that knows no past.
NO_BARS = pl.DataFrame(schema={"time": STAMP, **dict.fromkeys(COLUMNS[1:], pl.Float64())})


@dataclass(frozen=True, kw_only=True)
class Saved(Result, Generic[T]):
    """state.json."""

    format: int
    policy: str  # SHA-256 of the weights
    begin: str | None  # the time that --from gave
    past: int  # bars in past.parquet
    past_sha256: str
    spacing: Spacing | None  # None: any
    bars: int  # in bars.csv
    bars_sha256: str
    trader: T
    answer: Mapping[str, Any] | None  # to the last bar


class Start(NamedTuple, Generic[T]):
    """What a trading begins with."""

    policy: str  # SHA-256 of the weights
    past: pl.DataFrame
    spacing: Spacing | None
    begin: str | None
    trader: T


class Log(NamedTuple):
    """The bars since the start, as they are on disk."""

    path: Path
    size: int  # bytes that count
    digest: Any  # of them; hashlib's


class Opened(NamedTuple, Generic[T]):
    """What a state on disk says."""

    saved: Saved[T]
    bars: pl.DataFrame  # past and traded
    log: Log


def is_state(directory: Path) -> bool:
    """Whether a trading has begun there."""
    return (directory / STATE).is_file()


def create(directory: Path, start: Start[T]) -> Opened[T]:
    """A new state: nothing has been traded yet."""
    header = _header(start.past.columns)
    with replacing(directory / PAST, "state of the trading") as temporary:
        start.past.write_parquet(temporary)
    with replacing(directory / BARS) as temporary:
        temporary.write_bytes(header)
    saved = Saved(
        format=FORMAT,
        policy=start.policy,
        begin=start.begin,
        past=start.past.height,
        past_sha256=digest_of(start.past),
        spacing=start.spacing,
        bars=0,
        bars_sha256=hashlib.sha256(header).hexdigest(),
        trader=start.trader,
        answer=None,
    )
    _write(directory, saved)
    return Opened(saved, start.past, Log(directory / BARS, len(header), hashlib.sha256(header)))


def read(directory: Path, trader: type[T], no_bars: pl.DataFrame) -> Opened[T]:
    """The state of such a trader in a directory, its files checked against each other.

    `no_bars` has the columns of its bars.
    """
    saved = results.read(directory / STATE, Saved[trader])  # type: ignore[valid-type]
    past = _read_past(directory / PAST, no_bars.columns)
    if past.height != saved.past or digest_of(past) != saved.past_sha256:
        raise _damaged(directory / PAST, "its bars are not those that state.json noted")
    log, traded = _read_log(directory / BARS, saved, no_bars.columns)
    return Opened(saved, pl.concat([past, traded]), log)


def save(
    directory: Path, opened: Opened[T], bars: pl.DataFrame, trader: T, answer: Mapping[str, Any]
) -> Opened[T]:
    """The state after some more bars, on disk; the digest of the old one is not to be used again."""
    saved, log = opened.saved, opened.log
    lines = _lines(bars)
    with explaining(log.path), log.path.open("r+b") as file:
        file.truncate(log.size)  # what a killed process wrote and did not count
        file.seek(log.size)
        file.write(lines)
    flush(log.path)
    log.digest.update(lines)
    saved = dataclasses.replace(
        saved,
        bars=saved.bars + bars.height,
        bars_sha256=log.digest.hexdigest(),
        trader=trader,
        answer=answer,
    )
    _write(directory, saved)
    return Opened(
        saved, pl.concat([opened.bars, bars]).rechunk(), log._replace(size=log.size + len(lines))
    )


def _write(directory: Path, saved: Saved[T]) -> None:
    write_json(directory / STATE, named(vars(saved)))


def named(content: Any) -> Any:
    """Named tuples as mappings, for JSON that people read."""
    if isinstance(content, tuple) and type(content) is not tuple:
        return {name: named(value) for name, value in zip(content._fields, content, strict=True)}  # type: ignore[attr-defined]
    if isinstance(content, Mapping):
        return {name: named(value) for name, value in content.items()}
    return content


def _header(columns: Sequence[str]) -> bytes:
    """The names of columns as one line, whatever assets are called."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(" ".join(name.split()) for name in columns)
    return text.getvalue().encode()


def _lines(bars: pl.DataFrame) -> bytes:
    """Bars as text that gives the same bits when it is read."""
    stamps = bars["time"].dt.replace_time_zone(None).to_numpy().astype("datetime64[us]")
    columns = [bars[name].to_list() for name in bars.columns if name != "time"]
    rows = zip(map(str, stamps), *(map(repr, column) for column in columns), strict=True)
    return "".join(",".join(row) + "\n" for row in rows).encode()


def _read_past(path: Path, columns: Sequence[str]) -> pl.DataFrame:
    try:
        return pl.read_parquet(path).select(columns)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as failure:
        raise _damaged(path, "it cannot be read") from failure


def _read_log(path: Path, saved: Saved[T], columns: Sequence[str]) -> tuple[Log, pl.DataFrame]:
    """The lines that count, and the bars in them."""
    try:
        with path.open("rb") as file:
            content = b"".join(file.readline() for _ in range(saved.bars + 1))
    except OSError as failure:
        raise _damaged(path, "it cannot be read") from failure
    digest = hashlib.sha256(content)
    if digest.hexdigest() != saved.bars_sha256:
        raise _damaged(path, f"its first {saved.bars:,} bars are not those that state.json noted")
    kinds = {**dict.fromkeys(columns, pl.Float64()), "time": pl.String()}
    text = pl.read_csv(io.BytesIO(content), schema=kinds)
    stamps = text["time"].to_numpy().astype("datetime64[us]")
    time = pl.Series("time", stamps, pl.Datetime("us")).dt.replace_time_zone("UTC")
    frame = text.with_columns(time)
    return Log(path, len(content), digest), frame


def _damaged(path: Path, problem: str) -> ProximaError:
    return ProximaError(
        f"{path}: is damaged: {problem}; begin anew with another --state, or delete {path.parent}"
    )
