"""What a trading scenario says about its data and its environment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Interval, MinLen


@dataclass(frozen=True, kw_only=True)
class FeatureConfig:
    """One column of what the agent sees, known at the close of its bar."""

    kind: str
    """A registered feature's name, for example log_return, or package.module:function of your own."""
    window: Annotated[int, Ge(1)] | None = None
    """Bars it looks back over; null takes the feature's own default."""
    lag: Annotated[int, Ge(0)] = 0
    """Bars by which it is delayed."""
    scale: Literal["standard", "none"] = "standard"
    """standard: shifted and scaled to mean 0 and deviation 1 of the train split."""


@dataclass(frozen=True, kw_only=True)
class SplitConfig:
    """How time is divided; rows between two parts are left out so that no window spans both."""

    validation: Annotated[float, Interval(gt=0, lt=1)] | None = None
    """Share of the rows that chooses the best checkpoint; null: 0.2, or what the dates say."""
    test: Annotated[float, Interval(gt=0, lt=1)] | None = None
    """Share of the rows that only the closing evaluation sees; null: 0.2, or what the dates say."""
    train_until: str | None = None
    """Train on the bars before this time, 2019-01-31 or 2019-01-31T15:00:00Z, instead of a share."""
    validation_until: str | None = None
    """Validate on the bars from there to before this time."""
    test_until: str | None = None
    """Test on the bars from there to before this time; null: to the last bar."""
    folds: Annotated[int, Ge(1)] = 1
    """Walk-forward folds: each tests on the next stretch of time; 1 is a single split."""
    fold: Annotated[int, Ge(0)] | Literal["all"] = 0
    """Which fold this experiment is about, the earliest is 0; all: every fold, trial k being of fold k modulo
    folds, judged as one walk through time."""
    mode: Literal["anchored", "sliding"] = "anchored"
    """anchored: every fold trains from the first row; sliding: on as many rows as the first fold."""
    horizon: Annotated[int, Ge(0)] = 1
    """Bars a decision looks ahead; with the longest window it is the gap between two parts."""


DEFAULT_FEATURES = tuple(
    FeatureConfig(kind=kind)
    for kind in ("log_return", "volatility", "rsi", "ma_ratio", "volume_zscore")
)


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The prices: a file of the user's own, real ones out of a package, or a synthetic pattern."""

    path: str | None = None
    """OHLCV parquet or CSV of your own; null: what source or pattern say."""
    source: str | None = None
    """Real prices that --generate-data takes out of a package; `proxima generate-data --list-sources`."""
    pattern: str | None = None
    """The synthetic pattern that --generate-data writes; `proxima generate-data --list` names them."""
    rows: Annotated[int, Ge(2)] = 5_000
    """Bars that --generate-data writes."""
    seed: Annotated[int, Interval(ge=0, lt=2**31)] = 0
    """Seed of the synthetic prices."""
    params: Mapping[str, float | int | str] = field(default_factory=dict)
    """The pattern's own settings; what is left out has the pattern's default."""
    periods_per_year: Annotated[float, Gt(0)] | None = None
    """Bars in a year, for annualised metrics; null counts them in the times of the train split."""
    features: Annotated[tuple[FeatureConfig, ...], MinLen(1)] | None = None
    """What the agent sees of the market at each bar; null: log_return, volatility, rsi and ma_ratio, and
    volume_zscore where the volume changes."""
    leaky: bool = False
    """Allow features that are known to look ahead; for the scenario that shows what a leak looks like."""
    split: SplitConfig = field(default_factory=SplitConfig)
    """Train, validation and test, by time."""


@dataclass(frozen=True, kw_only=True)
class TradingEnvConfig:
    """The account: what may be held, what trading costs, and what is rewarded."""

    backend: Literal["trading"] = "trading"
    """Prices from the data section, compiled into the training program."""
    name: str = "proxima/Trading-v0"
    """The environment's registered name."""
    num_envs: Annotated[int, Ge(1)] = 64
    """Copies of the environment that step side by side."""
    max_steps_per_episode: Annotated[int, Ge(1)] | None = None
    """Bars of a training episode; null runs to the end of the split. Evaluation always does."""
    random_start: bool = True
    """Training episodes start at a random bar; evaluation starts at the first."""
    actions: Literal["discrete", "continuous"] = "discrete"
    """discrete: one of `positions`; continuous: any weight between its smallest and largest."""
    positions: Annotated[tuple[float, ...], MinLen(2)] = (-1.0, 0.0, 1.0)
    """Target weights, as shares of the portfolio's value: 1 all in, 0 cash, -1 short."""
    fee: Annotated[float, Interval(ge=0, lt=1)] = 0.001
    """Share of the traded amount that each trade costs."""
    slippage: Annotated[float, Interval(ge=0, lt=1)] = 0.0
    """Share of the price by which each fill is worse than it: bought for more, sold for less."""
    borrow_rate: Annotated[float, Interval(ge=0, lt=1)] = 0.0
    """Interest per bar on borrowed cash or shares, settled every bar."""
    fill: Literal["next_open", "next_close", "same_close"] = "next_open"
    """When a decision on bar t is filled: the next bar's open or close, or bar t's own close."""
    reward: Literal["log_return", "differential_sharpe"] = "log_return"
    """What an agent is rewarded with at each bar."""
    sharpe_rate: Annotated[float, Interval(gt=0, lt=1)] = 0.01
    """Adaptation rate of the differential Sharpe ratio's moments."""
    turnover_penalty: Annotated[float, Ge(0)] = 0.0
    """Taken from the reward per unit of weight traded."""
    drawdown_penalty: Annotated[float, Ge(0)] = 0.0
    """Taken from the reward per unit by which the drawdown deepens."""
    window: Annotated[int, Ge(1)] = 1
    """Bars of features in an observation."""
