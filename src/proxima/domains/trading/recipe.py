"""What lies between raw bars and a trained policy's target weight: the section `raw` of its policy.json.

    bars ─► features ─► scaled as in training ─► the last `window` bars, the weight held ─► net ─► target

Whoever has the policy's directory has all of it: predict, `proxima evaluate --data` and `proxima trade` read
nothing else but bars.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import ConfigDict, TypeAdapter, ValidationError

from proxima.core.errors import ProximaError
from proxima.domains.trading.config import FeatureConfig, TradingEnvConfig
from proxima.domains.trading.features import Column, compute, needs_volume, resolve_features
from proxima.domains.trading.market import SPLITS, Prepared, Scaler, Spacing, spacing_of

ACCOUNT = ("actions", "positions", "fee", "slippage", "borrow_rate", "fill", "window")
NOTED = ("source", "rows", "first", "last", "prices_sha256")  # of the data
TAKES = (
    "bars, the oldest first: a data frame or a mapping of columns with time, open, high, low, close and "
    "volume by name, or an array of open, high, low, close and volume; and what is held: a weight, or "
    "{cash, units}"
)
GIVES = "the target weight at the close of the last bar, a share of the value: 1 all in, 0 cash, -1 short"
REMEDY = "put the file back, or export the policy again by running its scenario again"


@dataclass(frozen=True, kw_only=True)
class ScaledFeature(FeatureConfig):
    """A feature as the policy sees it: (value − mean) / std, both of the train split."""

    name: str
    mean: float
    std: float


@dataclass(frozen=True, kw_only=True)
class RunData:
    """The prices that the policy was trained on, and by which a file that continues them is known."""

    source: str
    rows: int
    first: str
    last: str
    prices_sha256: str
    spacing: Spacing | None = None  # of its bars; None: bars may be any time apart


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The section `raw`."""

    domain: Literal["trading"] = "trading"
    format: Literal[1] = 1  # one more whenever an older reader would misread it
    takes: str = TAKES
    gives: str = GIVES
    bars: int
    """How many are needed for one decision."""
    columns: tuple[str, ...]
    """What the features are computed from."""
    features: tuple[ScaledFeature, ...]
    account: TradingEnvConfig
    leaky: bool
    data: RunData
    periods_per_year: float
    periods_from: str


class Reader(NamedTuple):
    """A recipe that can be followed: its features are found."""

    recipe: Recipe
    columns: tuple[Column, ...]

    @property
    def account(self) -> TradingEnvConfig:
        return self.recipe.account

    @property
    def needs_volume(self) -> bool:
        return any(map(needs_volume, self.columns))


def describe(
    prices: Prepared, account: TradingEnvConfig, leaky: bool, year: tuple[float, str]
) -> dict[str, Any]:
    """The section for a policy that was trained on these prices, as JSON holds it."""
    columns = resolve_features(prices.features, leaky)
    times = [prices.split(name).time for name in SPLITS]
    recipe = Recipe(
        bars=prices.warm_up + account.window,
        columns=columns_read(columns),
        features=scaled_features(prices.features, columns, prices.scalers),
        account=account,
        leaky=leaky,
        data=run_data(prices.fingerprint, times),
        periods_per_year=year[0],
        periods_from=year[1],
    )
    section = asdict(recipe)
    section["account"] = {name: section["account"][name] for name in ACCOUNT}
    return section


def scaled_features(
    features: Sequence[FeatureConfig], columns: Sequence[Column], scalers: Sequence[Scaler]
) -> tuple[ScaledFeature, ...]:
    """Features with what each was scaled by."""
    return tuple(
        ScaledFeature(**asdict(feature), name=column.name, mean=scaler.mean, std=scaler.std)
        for feature, column, scaler in zip(features, columns, scalers, strict=True)
    )


def run_data(fingerprint: Mapping[str, Any], times: Sequence[NDArray[np.datetime64]]) -> RunData:
    """What is noted of the prices whose splits began at these times."""
    return RunData(**{name: fingerprint[name] for name in NOTED}, spacing=spacing_of(*times))


def columns_read(columns: Sequence[Column]) -> tuple[str, ...]:
    """What some features are computed from."""
    names = {name for column in columns for name in column.expression.meta.root_names()}
    return tuple(sorted(names))


K = TypeVar("K")


def read_recipe(about: Mapping[str, Any], where: str) -> Reader:
    """What a policy says of itself, as something to follow; `where` is its file, for errors."""
    recipe = parse(about, where, Recipe)
    return Reader(recipe, seen_columns(recipe.features, recipe.leaky, where))


def parse(about: Mapping[str, Any], where: str, kind: type[K]) -> K:
    """The section `raw` as a recipe of this kind."""
    if "raw" not in about:
        raise ProximaError(
            f"{where}: says nothing of raw bars: an older version wrote it, or it is no trading policy; "
            "train it again to use it on bars"
        )
    try:
        # a list, because pydantic takes no rules for a dataclass itself
        rules = ConfigDict(extra="forbid", allow_inf_nan=False)
        adapter = TypeAdapter(list[kind], config=rules)  # type: ignore[valid-type]
        (recipe,) = adapter.validate_python([about["raw"]])
    except ValidationError as failure:
        first = failure.errors(include_url=False)[0]
        key = ".".join(map(str, ("raw", *first["loc"][1:])))
        raise ProximaError(
            f"{where}: is damaged: {key}: {first['msg'].lower()}; {REMEDY}"
        ) from failure
    return recipe


def seen_columns(features: Sequence[ScaledFeature], leaky: bool, where: str) -> tuple[Column, ...]:
    """The features as they are computed; an error where one looks ahead."""
    configs = [
        FeatureConfig(
            kind=feature.kind, window=feature.window, lag=feature.lag, scale=feature.scale
        )
        for feature in features
    ]
    columns = resolve_features(configs, leaky)
    ahead = [column.name for column in columns if column.leaks]
    if ahead:
        raise ProximaError(
            f"{where}: the policy sees {', '.join(ahead)}, which looks ahead: it cannot be used on bars "
            "whose future is not known"
        )
    return tuple(columns)


class Seen(NamedTuple):
    """What a policy sees of bars."""

    features: NDArray[np.float32]  # (T, k), or (T, n, k) of n assets, of the rows from `first` on
    first: int
    ready: int  # the first row with a full window in which every feature has a value

    def window(self, row: int, bars: int) -> NDArray[np.float32]:
        """The features of so many bars that end in a row."""
        return self.features[row - self.first - bars + 1 : row - self.first + 1]


def see(reader: Reader, frame: pl.DataFrame, first: int = 0) -> Seen:
    """What the policy sees of the rows from `first` on, each with its window."""
    window = reader.account.window
    start = max(0, first - window + 1)
    matrix, warm_up = scaled_values(reader.columns, reader.recipe.features, frame, start)
    return Seen(matrix, start, min(warm_up + window - 1, frame.height))


def scaled_values(
    columns: Sequence[Column], features: Sequence[ScaledFeature], frame: pl.DataFrame, start: int
) -> tuple[NDArray[np.float32], int]:
    """Scaled features (T, k) of the rows from `start` on, and the first row in which all have a value."""
    matrix = np.empty((frame.height - start, len(columns)), np.float32)
    warm_up = 0
    for index, (column, feature) in enumerate(zip(columns, features, strict=True)):
        values = compute(frame, column)
        has_value = values.is_not_null()
        warm_up = max(warm_up, int(has_value.arg_max() or 0) if has_value.any() else frame.height)
        scaled = (values[start:].to_numpy() - feature.mean) / feature.std  # null becomes NaN
        with np.errstate(over="ignore"):  # whoever looks for what is not finite finds it
            matrix[:, index] = scaled
    return matrix, warm_up


def bad_value(reader: Reader, seen: Seen, first: int) -> tuple[int, str] | None:
    """The first row, from `first` on, in which a feature is no finite number, and its name."""
    bad = first_bad(seen, first)
    return None if bad is None else (bad[0], reader.columns[bad[1]].name)


def first_bad(seen: Seen, first: int) -> tuple[int, ...] | None:
    """The first row from `first` on with what is no finite number, and where in the row that is."""
    bad = ~np.isfinite(seen.features[max(0, first - seen.first) :])
    if not bad.any():
        return None
    row, *where = np.argwhere(bad)[0].tolist()
    return max(first, seen.first) + row, *where
