"""What an agent sees of the market: named polars expressions, each known at the close of its bar.

    @register_feature("gap", default_window=None)
    def gap(window: int) -> pl.Expr:
        return (pl.col("open") / pl.col("close").shift(1)).log()

A feature is a function from a window to an expression over time, open, high, low, close and volume. A
scenario names a registered one, or package.module:function, which is imported.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import polars as pl

from proxima.core.errors import ProximaError
from proxima.core.functions import function_at
from proxima.domains.environments import suggestion
from proxima.domains.trading.config import FeatureConfig

Expression = Callable[[int], pl.Expr]
USER_WINDOW = 20  # of a function that was not registered, and so has no default of its own


class Feature(NamedTuple):
    """A registered feature."""

    expression: Expression
    default_window: int | None
    least_window: int
    leaks: bool


class Column(NamedTuple):
    """A feature as a scenario asks for it."""

    name: str
    expression: pl.Expr
    reach: int  # bars before its own that it looks back over, as far as its settings say
    leaks: bool
    scaled: bool


FEATURES: dict[str, Feature] = {}


def register_feature(
    name: str,
    *,
    leaks: bool = False,
    default_window: int | None = USER_WINDOW,
    least_window: int = 1,
) -> Callable[[Expression], Expression]:
    """Makes a function a feature of this name; a default window of None: it takes no window.

    One that leaks looks ahead on purpose, and is refused unless a scenario sets data.leaky.
    """

    def register(expression: Expression) -> Expression:
        if name in FEATURES and FEATURES[name].expression.__module__ != expression.__module__:
            raise ProximaError(f"feature {name}: there is one of this name; take another")
        FEATURES[name] = Feature(expression, default_window, least_window, leaks)
        return expression

    return register


def create_features(
    frame: pl.DataFrame | pl.LazyFrame, features: Sequence[FeatureConfig], leaky: bool = False
) -> pl.LazyFrame:
    """The frame with a column for each feature, unscaled and null in its warm-up; nothing is computed yet."""
    columns = resolve_features(features, leaky)
    return frame.lazy().with_columns(column.expression.alias(column.name) for column in columns)


def resolve_features(features: Sequence[FeatureConfig], leaky: bool = False) -> list[Column]:
    """The columns that a scenario's features mean; each has a name of its own."""
    columns = [_resolve(index, config, leaky) for index, config in enumerate(features)]
    names = [column.name for column in columns]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ProximaError(f"data.features.{index}: {name} is there twice; leave one out")
    return columns


def compute(frame: pl.DataFrame, column: Column) -> pl.Series:
    """A feature's float64 value in every row of a frame, null where it has none.

    A causal feature has the same bits whatever rows follow, on any number of threads: what is computed
    bar by bar is what was computed over the whole file.
    """
    values = _in_one_group(frame, column)
    if values is not None:
        return values
    try:  # next to the time, so that a single number becomes a column
        table = frame.lazy().select("time", column.expression.cast(pl.Float64).alias(column.name))
        return table.collect()[column.name]
    except pl.exceptions.PolarsError as failure:
        reason = str(failure).strip().splitlines()[0]
        raise ProximaError(f"feature {column.name}: cannot be computed: {reason}") from failure


def _in_one_group(frame: pl.DataFrame, column: Column) -> pl.Series | None:
    """The values from the first row to the last; None where polars cannot compute the feature so.

    Polars divides the rows of a frame among its threads, and a rolling sum that begins anew in the middle
    rounds otherwise. It does not divide a group. What it refuses within one, such as another window of
    `over`, is computed the other way.
    """
    expression = column.expression.cast(pl.Float64).alias(column.name)
    try:
        groups = frame.lazy().group_by(pl.lit(0).alias("group")).agg(expression).collect()
    except pl.exceptions.PolarsError:
        return None
    if groups.schema[column.name] != pl.List(pl.Float64):
        return None
    values = groups[column.name].explode()
    return values if len(values) == frame.height else None


def needs_volume(column: Column) -> bool:
    """Whether a feature is computed from the volume."""
    return "volume" in column.expression.meta.root_names()


def _resolve(index: int, config: FeatureConfig, leaky: bool) -> Column:
    where = f"data.features.{index}"
    feature = _find(where, config.kind)
    if feature.leaks and not leaky:
        raise ProximaError(
            f"{where}.kind: {config.kind} looks ahead; only a scenario with data.leaky: true may use it"
        )
    if config.window is not None and feature.default_window is None:
        raise ProximaError(f"{where}.window: {config.kind} takes no window; leave it out")
    window = config.window or feature.default_window or 1
    if window < feature.least_window:
        raise ProximaError(
            f"{where}.window: {window} is not allowed: {config.kind} needs at least {feature.least_window}"
        )
    name = config.kind.rpartition(":")[2]
    name += f"_{window}" if feature.default_window is not None else ""
    name += f"_lag_{config.lag}" if config.lag else ""
    expression = feature.expression(window)
    if not isinstance(expression, pl.Expr):
        raise ProximaError(
            f"{where}.kind: {config.kind} returned {type(expression).__name__}; expected a polars expression"
        )
    delayed = expression.shift(config.lag) if config.lag else expression
    reach = window + config.lag
    return Column(name, delayed, reach, feature.leaks, config.scale == "standard")


def _find(where: str, kind: str) -> Feature:
    if ":" in kind:
        function = function_at(kind, f"{where}.kind")
        unregistered = Feature(function, USER_WINDOW, 1, leaks=False)
        return next(
            (known for known in FEATURES.values() if known.expression is function), unregistered
        )
    if kind in FEATURES:
        return FEATURES[kind]
    every = f"there are: {', '.join(sorted(FEATURES))}"
    hint = suggestion(kind.lower(), FEATURES, 1, 0.6, every)
    raise ProximaError(
        f"{where}.kind: no feature {kind!r}; {hint} Your own is written package.module:function"
    )


@register_feature("log_return", default_window=1)
def log_return(window: int) -> pl.Expr:
    """ln(close / close `window` bars ago)."""
    return pl.col("close").log().diff(window)


@register_feature("momentum_sign", default_window=1)
def momentum_sign(window: int) -> pl.Expr:
    """−1, 0 or 1: which way the close went over the window."""
    return pl.col("close").diff(window).sign()


@register_feature("volatility", default_window=20, least_window=2)
def volatility(window: int) -> pl.Expr:
    """Standard deviation of the last `window` one-bar log returns."""
    return log_return(1).rolling_std(window)


@register_feature("ema_return", default_window=20)
def ema_return(window: int) -> pl.Expr:
    """Exponential mean of one-bar log returns, weight 2 / (window + 1) on the last."""
    return log_return(1).ewm_mean(span=window, adjust=False, min_samples=window)


@register_feature("rsi", default_window=14)
def rsi(window: int) -> pl.Expr:
    """Wilder's relative strength index, 0 to 100; 50 where the price has not moved at all."""
    move = pl.col("close").diff()
    gain, change = (
        part.ewm_mean(alpha=1 / window, adjust=False, min_samples=window)
        for part in (move.clip(lower_bound=0), move.abs())
    )
    return pl.when(change == 0).then(50.0).otherwise(100 * gain / change)


@register_feature("ma_ratio", default_window=20)
def ma_ratio(window: int) -> pl.Expr:
    """ln(close / its mean over the last `window` bars)."""
    close = pl.col("close")
    return (close / close.rolling_mean(window)).log()


@register_feature("price_level", default_window=None)
def price_level(window: int) -> pl.Expr:
    """ln close; its scaler puts it in relation to the train split."""
    return pl.col("close").log()


@register_feature("volume_zscore", default_window=20, least_window=2)
def volume_zscore(window: int) -> pl.Expr:
    """How many deviations the volume is above its mean, both over the last `window` bars."""
    volume = pl.col("volume")
    return (volume - volume.rolling_mean(window)) / volume.rolling_std(window)


@register_feature("high_low_range", default_window=1)
def high_low_range(window: int) -> pl.Expr:
    """Mean of ln(high / low) over the last `window` bars."""
    return (pl.col("high") / pl.col("low")).log().rolling_mean(window)


@register_feature("next_return", default_window=1, leaks=True)
def next_return(window: int) -> pl.Expr:
    """ln(close `window` bars ahead / close): the future, to see what a leak looks like."""
    return log_return(window).shift(-window)


def _day_angle() -> pl.Expr:
    """The day's place in the week, UTC."""
    return (pl.col("time").dt.weekday() - 1) * (2 * math.pi / 7)  # Monday is 0


def _hour_angle() -> pl.Expr:
    """The time's place in the day, UTC."""
    seconds = pl.col("time").dt.time().cast(pl.Int64) / 1_000_000_000
    return seconds * (2 * math.pi / 86_400)


register_feature("day_of_week_sin", default_window=None)(lambda window: _day_angle().sin())
register_feature("day_of_week_cos", default_window=None)(lambda window: _day_angle().cos())
register_feature("hour_sin", default_window=None)(lambda window: _hour_angle().sin())
register_feature("hour_cos", default_window=None)(lambda window: _hour_angle().cos())
