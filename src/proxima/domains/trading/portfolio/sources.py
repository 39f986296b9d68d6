"""Prices of several assets out of a published package: the classical sets of online portfolio selection.

Only the package's data files are read, its code is never imported. They hold what became of 1 in every
stock, day by day, with a letter for a name and without dates. Here stocks are numbered, and dates are
weekdays from the first day that the literature names, so holidays shift them: a note beside the file says it.
"""

import json
from collections.abc import Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from proxima.core.errors import ProximaError
from proxima.core.extras import missing_extra
from proxima.domains.trading.sources import EXTRA, ORIGIN_KEY, source_path
from proxima.files import replacing

if TYPE_CHECKING:
    import polars as pl

PACKAGE, DISTRIBUTION = "universal", "universal-portfolios"
LICENCE = "Feedback MIT, the package's own"
ORIGIN = (
    "not said by the package; sets that papers on online portfolio selection share (Li, Hoi 2014)"
)
DATES = "made up: weekdays from the first day on; the file has none"


class SetSource(NamedTuple):
    """One set of stocks inside the package."""

    title: str
    file: str  # within the package
    first_day: str


SOURCES: Mapping[str, SetSource] = {
    "nyse_o": SetSource("36 NYSE stocks, daily, 1962 to 1984", "data/nyse_o.csv", "1962-07-03"),
    "nyse_n": SetSource("23 NYSE stocks, daily, 1985 to 2010", "data/nyse_n.csv", "1985-01-01"),
    "djia": SetSource("30 Dow Jones stocks, daily, 2001 to 2003", "data/djia.csv", "2001-01-14"),
    "sp500_stocks": SetSource(
        "25 large S&P 500 stocks, daily, 1998 to 2003", "data/sp500.csv", "1998-01-02"
    ),
    "msci": SetSource(
        "24 MSCI country indices, daily, 2006 to 2010", "data/msci.csv", "2006-04-01"
    ),
    "tse": SetSource("88 Toronto stocks, daily, 1994 to 1998", "data/tse.csv", "1994-01-04"),
}


def describe_sources() -> list[dict[str, Any]]:
    """Every source, with the package that has it and its licence."""
    return [
        {
            "source": name,
            "description": source.title,
            "package": DISTRIBUTION,
            "licence": LICENCE,
            "origin": ORIGIN,
        }
        for name, source in SOURCES.items()
    ]


def write_source(name: str, root: str | Path = ".", setting: str = "--source") -> Path:
    """Writes a set's prices, whole or not at all, and where they come from in a note beside them."""
    from proxima.domains.trading.portfolio.panel import read_panel

    if name not in SOURCES:
        raise ProximaError(f"{setting}: {name} is no set of assets; there are {', '.join(SOURCES)}")
    source = SOURCES[name]
    frame = read_package(source, f"{setting} {name}")
    origin = {
        "title": source.title,
        "package": f"{DISTRIBUTION} {version(DISTRIBUTION)}",
        "file": f"{PACKAGE}/{source.file}",
        "licence": LICENCE,
        "origin": ORIGIN,
        "dates": DATES,
    }
    path = source_path(name, root)
    with replacing(path) as temporary:
        frame.write_parquet(temporary, metadata={ORIGIN_KEY: json.dumps(origin)})
    read_panel(path)  # what is wrong in a package's file is an error as in any other
    with replacing(path.with_suffix(".origin.txt")) as temporary:
        text = "".join(f"{key}: {value}\n" for key, value in origin.items())
        temporary.write_text(text, encoding="utf-8")
    return path


def read_package(source: SetSource, setting: str) -> "pl.DataFrame":
    """What became of 1 in every stock: the 1 itself, then the rows of the package's file."""
    import numpy as np
    import polars as pl

    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise missing_extra(EXTRA, setting, DISTRIBUTION)
    path = Path(spec.submodule_search_locations[0]) / source.file
    try:
        table = pl.read_csv(path, infer_schema=False).cast(pl.Float64)
    except OSError as failure:
        raise ProximaError(
            f"{path}: cannot be read ({failure.strerror}); this {DISTRIBUTION} does not have it: install "
            f"one that Proxima knows with  pip install 'proxima[{EXTRA}]'"
        ) from failure
    width = len(str(table.width))
    table.columns = [f"stock_{number:0{width}}" for number in range(1, table.width + 1)]
    start = pl.DataFrame({name: [1.0] for name in table.columns})
    prices = pl.concat([start, table])
    first = np.busday_offset(source.first_day, 0, roll="forward")
    days = np.busday_offset(first, np.arange(-1, table.height))
    time = pl.Series("time", days.astype("datetime64[us]")).dt.replace_time_zone("UTC")
    return prices.insert_column(0, time)
