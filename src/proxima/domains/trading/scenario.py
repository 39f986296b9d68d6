"""A scenario about trading: prices, an account, and what is wrong with settings that are each right alone."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic

from pydantic import with_config

from proxima.core.faults import Fault
from proxima.domains.trading.config import DataConfig, TradingEnvConfig
from proxima.scenario.tree import RULES, A, EnvironmentScenario, N


@with_config(RULES)
@dataclass(frozen=True, kw_only=True)
class TradingScenario(EnvironmentScenario[A, N], Generic[A, N]):
    """An experiment with prices."""

    data: DataConfig = field(default_factory=DataConfig)
    """The prices."""
    env: TradingEnvConfig = field(default_factory=TradingEnvConfig)
    """The account."""


def trading_faults(scenario: TradingScenario) -> Iterator[Fault]:
    """Data that cannot be had or divided, and positions that stand twice."""
    data, split = scenario.data, scenario.data.split
    if (data.path is None) == (data.pattern is None):
        remedy = "set one of data.pattern (synthetic prices) and data.path (your own file)"
        which = "neither is given" if data.path is None else "both are given"
        yield Fault((("data", "path"), ("data", "pattern")), f"{which}; {remedy}")
    if split.validation + split.test >= 1:
        paths = (("data", "split", "validation"), ("data", "split", "test"))
        text = f"{split.validation:g} and data.split.test {split.test:g} leave nothing to train on"
        yield Fault(paths, text)
    if split.fold >= split.folds:
        paths = (("data", "split", "fold"), ("data", "split", "folds"))
        text = f"{split.fold} is not one of {split.folds} folds; the first is 0, the last"
        yield Fault(paths, f"{text} {split.folds - 1}")
    positions = scenario.env.positions
    if len(set(positions)) < len(positions):
        yield Fault((("env", "positions"),), f"{list(positions)} names a position twice")
