"""Real prices out of packages that others published: read from their data files, never imported.

A package is only where the file lies: its code, and all that its code would import, stays unread. What is
written is a file like a user's own, with its origin and licence beside it, and nothing in it is repaired.
"""

import gzip
import io
import json
from collections.abc import Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from proxima.core.errors import ProximaError
from proxima.core.extras import missing_extra
from proxima.files import replacing

if TYPE_CHECKING:
    import polars as pl

EXTRA = "prices"  # the extra that installs every package below
ORIGIN_KEY = "proxima_origin"  # in the parquet file's metadata


class PriceSource(NamedTuple):
    """One file of prices inside a published package."""

    title: str
    package: str  # as Python imports it
    distribution: str  # as pip installs it
    file: str  # within the package
    time_column: str
    time_format: str
    licence: str
    origin: str  # where the package's authors have the prices from, as far as they say


NCSA = "University of Illinois/NCSA, the package's own"
YAHOO = "not said by the package; the columns are those of Yahoo! Finance"
SOURCES: Mapping[str, PriceSource] = {
    "sp500": PriceSource(
        title="S&P 500 index, daily, 1999 to 2018",
        package="arch",
        distribution="arch",
        file="data/sp500/sp500.csv.gz",
        time_column="Date",
        time_format="%m/%d/%Y",
        licence=NCSA,
        origin=YAHOO,
    ),
    "nasdaq": PriceSource(
        title="NASDAQ Composite index, daily, 1999 to 2018",
        package="arch",
        distribution="arch",
        file="data/nasdaq/nasdaq.csv.gz",
        time_column="Date",
        time_format="%m/%d/%Y",
        licence=NCSA,
        origin=YAHOO,
    ),
    "eurusd": PriceSource(
        title="EUR/USD ask prices, hourly, 2017",
        package="gym_anytrading",
        distribution="gym-anytrading",
        file="datasets/data/FOREX_EURUSD_1H_ASK.csv",
        time_column="Time",
        time_format="%d.%m.%Y %H:%M:%S%.3f",
        licence="MIT, the package's own",
        origin="not said by the package; the columns are those of Dukascopy",
    ),
}


def source_path(name: str, root: str | Path = ".") -> Path:
    """Where the prices of a source are written."""
    return Path(root) / "data" / "raw" / "real" / f"{name}.parquet"


def find_source(name: str, setting: str) -> PriceSource:
    """The source of that name; `setting` is what asked for it."""
    if name not in SOURCES:
        raise ProximaError(
            f"{setting}: {name} is no source of prices; there are {', '.join(SOURCES)}"
        )
    return SOURCES[name]


def describe_sources() -> list[dict[str, Any]]:
    """Every source, with the package that has it and its licence."""
    return [
        {
            "source": name,
            "description": source.title,
            "package": source.distribution,
            "licence": source.licence,
            "origin": source.origin,
        }
        for name, source in SOURCES.items()
    ]


def write_source(name: str, root: str | Path = ".", setting: str = "--source") -> Path:
    """Writes a source's prices, whole or not at all, and where they come from in a note beside them."""
    from proxima.domains.trading.ohlcv import read_bars

    source = find_source(name, setting)
    frame = read_package(source, f"{setting} {name}")
    origin = origin_of(source)
    path = source_path(name, root)
    with replacing(path) as temporary:
        frame.write_parquet(temporary, metadata={ORIGIN_KEY: json.dumps(origin)})
    read_bars(path)  # what is wrong in a package's file is an error as in any other
    with replacing(path.with_suffix(".origin.txt")) as temporary:
        temporary.write_text(origin_text(name), encoding="utf-8")
    return path


def origin_of(source: PriceSource) -> dict[str, str]:
    """What is noted of a source in its file."""
    return {
        "title": source.title,
        "package": f"{source.distribution} {version(source.distribution)}",
        "file": f"{source.package}/{source.file}",
        "licence": source.licence,
        "origin": source.origin,
    }


def origin_text(name: str) -> str:
    """The same in lines for people."""
    return "".join(f"{key}: {value}\n" for key, value in origin_of(SOURCES[name]).items())


def read_package(source: PriceSource, setting: str) -> "pl.DataFrame":
    """The bars of the package's file: time in UTC, open, high, low, close, volume."""
    import polars as pl

    from proxima.domains.trading.ohlcv import PRICES, STAMP

    spec = find_spec(source.package)
    if spec is None or not spec.submodule_search_locations:
        raise missing_extra(EXTRA, setting, source.distribution)
    path = Path(spec.submodule_search_locations[0]) / source.file
    try:
        content = path.read_bytes()
    except OSError as failure:
        raise ProximaError(
            f"{path}: cannot be read ({failure.strerror}); this {source.distribution} does not have it: "
            f"install one that Proxima knows with  pip install 'proxima[{EXTRA}]'"
        ) from failure
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    table = pl.read_csv(io.BytesIO(content), infer_schema=False)
    time = pl.col(source.time_column).str.to_datetime(source.time_format, time_unit="us")
    numbers = [
        pl.col(name.capitalize()).cast(pl.Float64).alias(name) for name in (*PRICES, "volume")
    ]
    return table.select(time.dt.replace_time_zone("UTC").cast(STAMP).alias("time"), *numbers)
