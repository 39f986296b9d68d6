"""What lies between the raw bars of several assets and a policy's target weights: `raw` of its policy.json.

    bars of every asset ─► features ─► scaled as in training ─► the last `window` bars, the weights held
                        ─► net ─► targets

Bars are kept as one frame: the time, and for every asset a column of each field that is read, `A close`.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl

from proxima.domains.trading.features import Column, needs_volume, resolve_features
from proxima.domains.trading.market import SPLITS
from proxima.domains.trading.ohlcv import COLUMNS, STAMP
from proxima.domains.trading.portfolio.config import PortfolioEnvConfig
from proxima.domains.trading.portfolio.data import PreparedPanel
from proxima.domains.trading.portfolio.panel import Panel
from proxima.domains.trading.recipe import (
    RunData,
    ScaledFeature,
    Seen,
    columns_read,
    first_bad,
    parse,
    run_data,
    scaled_features,
    scaled_values,
    seen_columns,
)

ACCOUNT = ("weights", "leverage", "fee", "borrow_rate", "fill", "window")
TAKES = (
    "bars of every asset, the oldest first: a data frame or a mapping of columns with time and a column of "
    "closing prices for each asset, or with time, symbol, open, high, low, close and volume by name; and "
    "what is held: {weights: by asset}, or {cash, units: by asset}"
)
GIVES = (
    "the target weights by asset at the close of the last bar, shares of the value; what they leave of 1 is "
    "cash"
)


@dataclass(frozen=True, kw_only=True)
class PanelRecipe:
    """The section `raw`."""

    domain: Literal["portfolio"] = "portfolio"
    format: Literal[1] = 1  # one more whenever an older reader would misread it
    takes: str = TAKES
    gives: str = GIVES
    bars: int
    """How many are needed for one decision."""
    assets: tuple[str, ...]
    """In the order of observations and actions."""
    columns: tuple[str, ...]
    """What the features are computed from."""
    features: tuple[ScaledFeature, ...]
    account: PortfolioEnvConfig
    leaky: bool
    data: RunData
    periods_per_year: float
    periods_from: str


class PanelReader(NamedTuple):
    """A recipe that can be followed: its features are found."""

    recipe: PanelRecipe
    columns: tuple[Column, ...]

    @property
    def account(self) -> PortfolioEnvConfig:
        return self.recipe.account

    @property
    def assets(self) -> tuple[str, ...]:
        return self.recipe.assets

    @property
    def needs_volume(self) -> bool:
        return any(map(needs_volume, self.columns))

    @property
    def fields(self) -> tuple[str, ...]:
        """What is read of an asset's bar, in the order of a file."""
        opens = ("open",) if self.account.fill == "next_open" else ()
        read = {"close", *opens, *self.recipe.columns}
        return tuple(name for name in COLUMNS if name in read and name != "time")

    def of(self, field: str) -> list[str]:
        """A field's column of every asset."""
        return [column_of(asset, field) for asset in self.assets]

    @property
    def no_bars(self) -> pl.DataFrame:
        """A frame of bars without any."""
        names = [column_of(asset, field) for asset in self.assets for field in self.fields]
        return pl.DataFrame(schema={"time": STAMP, **dict.fromkeys(names, pl.Float64())})


def column_of(asset: str, field: str) -> str:
    """The column that an asset's field has in a frame of bars."""
    return f"{asset} {field}"


def describe(
    prices: PreparedPanel, account: PortfolioEnvConfig, leaky: bool, year: tuple[float, str]
) -> dict[str, Any]:
    """The section for a policy that was trained on these prices, as JSON holds it."""
    columns = resolve_features(prices.features, leaky)
    recipe = PanelRecipe(
        bars=prices.warm_up + account.window,
        assets=prices.assets,
        columns=columns_read(columns),
        features=scaled_features(prices.features, columns, prices.scalers),
        account=account,
        leaky=leaky,
        data=run_data(prices.fingerprint, [prices.splits[name].time for name in SPLITS]),
        periods_per_year=year[0],
        periods_from=year[1],
    )
    section = asdict(recipe)
    section["account"] = {name: section["account"][name] for name in ACCOUNT}
    return section


def read_recipe(about: Any, where: str) -> PanelReader:
    """What a policy says of itself, as something to follow; `where` is its file, for errors."""
    recipe = parse(about, where, PanelRecipe)
    return PanelReader(recipe, seen_columns(recipe.features, recipe.leaky, where))


def bars_of(panel: Panel, reader: PanelReader) -> pl.DataFrame:
    """What is read of the bars of a panel that has the reader's assets in their order."""
    pairs = zip(panel.assets, panel.frames, strict=True)
    columns = [
        frame[field].alias(column_of(asset, field))
        for asset, frame in pairs
        for field in reader.fields
    ]
    return pl.DataFrame([panel.time, *columns])


def see(reader: PanelReader, frame: pl.DataFrame, first: int = 0) -> Seen:
    """What the policy sees of the rows from `first` on, each with its window."""
    window = reader.account.window
    start = max(0, first - window + 1)
    seen = [
        scaled_values(
            reader.columns, reader.recipe.features, _own_frame(frame, asset, reader.fields), start
        )
        for asset in reader.assets
    ]
    matrix = np.stack([values for values, _ in seen], axis=1)
    warm_up = max(first_row for _, first_row in seen)
    return Seen(matrix, start, min(warm_up + window - 1, frame.height))


def _own_frame(frame: pl.DataFrame, asset: str, fields: Sequence[str]) -> pl.DataFrame:
    """The bars of one asset."""
    return frame.select("time", *(pl.col(column_of(asset, field)).alias(field) for field in fields))


def bad_value(reader: PanelReader, seen: Seen, first: int) -> tuple[int, str] | None:
    """The first row, from `first` on, in which a feature is no finite number, and what it is called."""
    bad = first_bad(seen, first)
    if bad is None:
        return None
    row, asset, column = bad
    return row, f"{reader.columns[column].name} of {reader.assets[asset]}"
