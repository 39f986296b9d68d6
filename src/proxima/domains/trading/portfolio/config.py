"""What a scenario of portfolios says about its data and its account."""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Interval

from proxima.domains.trading.config import DataConfig


@dataclass(frozen=True, kw_only=True)
class PanelConfig(DataConfig):
    """The prices of several assets: the user's own, real ones out of a package, or a synthetic pattern."""

    path: str | None = None
    """Parquet or CSV of your own, with time, symbol, open, high, low, close, or a column of closes for each
    asset; null: what source or pattern say."""
    assets: Annotated[int, Interval(ge=2, le=1_000)] = 5
    """Assets that --generate-data writes of a pattern, each with noise of its own."""


@dataclass(frozen=True, kw_only=True)
class PortfolioEnvConfig:
    """The account: what may be held, what trading costs, and what is rewarded."""

    backend: Literal["portfolio"] = "portfolio"
    """Prices of several assets from the data section, compiled into the training program."""
    name: str = "proxima/Portfolio-v0"
    """The environment's name."""
    num_envs: Annotated[int, Ge(1)] = 64
    """Copies of the environment that step side by side."""
    max_steps_per_episode: Annotated[int, Ge(1)] | None = None
    """Bars of a training episode; null runs to the end of the split. Evaluation always does."""
    random_start: bool = True
    """Training episodes start at a random bar; evaluation starts at the first."""
    weights: Literal["long_only", "long_short"] = "long_only"
    """long_only: shares of cash and of every asset, none below 0, that make 1 together; long_short: of every
    asset any weight, long or short, whose sizes together are at most the leverage."""
    leverage: Annotated[float, Interval(gt=0, le=100)] = 1.0
    """Of long_short: the most that all weights are together, whatever their signs."""
    fee: Annotated[float, Interval(ge=0, lt=1)] = 0.001
    """Share of every amount bought or sold that a trade costs, slippage included."""
    borrow_rate: Annotated[float, Interval(ge=0, lt=1)] = 0.0
    """Interest per bar on borrowed cash or shares, settled every bar."""
    fill: Literal["next_open", "next_close", "same_close"] = "next_open"
    """When a decision on bar t is filled: the next bar's open or close, or bar t's own close."""
    reward: Literal["log_return", "differential_sharpe"] = "log_return"
    """What an agent is rewarded with at each bar."""
    sharpe_rate: Annotated[float, Interval(gt=0, lt=1)] = 0.01
    """Adaptation rate of the differential Sharpe ratio's moments."""
    turnover_penalty: Annotated[float, Ge(0)] = 0.0
    """Taken from the reward per unit of weight traded, over all assets."""
    drawdown_penalty: Annotated[float, Ge(0)] = 0.0
    """Taken from the reward per unit by which the drawdown deepens."""
    window: Annotated[int, Ge(1)] = 1
    """Bars of features in an observation."""

    @property
    def pays_log_return(self) -> bool:
        """Whether rewards are log returns and nothing else."""
        return self.reward == "log_return" and not (self.turnover_penalty or self.drawdown_penalty)

    @property
    def gross(self) -> float:
        """The most that all weights are together."""
        return 1.0 if self.weights == "long_only" else self.leverage
