"""Trading: prices with known answers or the user's own, judged on a split that nothing has seen."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, Generic

from pydantic import with_config

from proxima.core.faults import Fault
from proxima.domains import judging, reinforcement
from proxima.domains.domain import (
    Closing,
    Data,
    DataFigures,
    Domain,
    Patterns,
    Prepared,
    RawPolicy,
    Sources,
)
from proxima.domains.trading import on_prices
from proxima.domains.trading.config import DataConfig, TradingEnvConfig
from proxima.domains.trading.page import page
from proxima.domains.trading.patterns import describe_patterns
from proxima.domains.trading.results import TradingSummary, TradingTrial, evidence
from proxima.domains.trading.rollouts import REFERENCES
from proxima.domains.trading.sources import SOURCES, describe_sources, write_source
from proxima.run.results import Summary
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
    yield from on_prices.data_faults(scenario.data, scenario.trials, tuple(SOURCES))
    positions = scenario.env.positions
    if len(set(positions)) < len(positions):
        yield Fault((("env", "positions"),), f"{list(positions)} names a position twice")


def prepare(scenario: TradingScenario) -> Prepared:
    """The prices divided and made into features, and accounts on each split."""
    from proxima.domains.trading.env import trading_env
    from proxima.domains.trading.judge import PriceRun, previewed
    from proxima.domains.trading.overall import year_of
    from proxima.domains.trading.prepare import Traded, prepare_traded
    from proxima.domains.trading.recipe import describe
    from proxima.domains.trading.walk_forward import draw_fold, judge_folds, prepare_folds

    folds, data, account = prepare_folds(scenario.data, scenario.name), scenario.data, scenario.env
    year = year_of(data, folds[0].params, folds[0].train.time)
    traded: Traded[Any, PriceRun] = Traded(
        env=lambda fold, split, training: trading_env(fold.split(split), account, training),
        run=lambda fold, record: PriceRun(data, account, fold, record, scenario.tried),
        raw=lambda fold: describe(fold, account, data.leaky, year),
        judge=judge_folds,
        draw=draw_fold,
        previewed=previewed,
        artifacts=("rollouts", "trades"),
    )
    return prepare_traded(scenario, folds, traded)


def generate(scenario: TradingScenario, root: Path) -> Path:
    """Write the prices that the scenario describes."""
    from proxima.domains.trading.data import write_synthetic

    if scenario.data.source is not None:
        return write_source(scenario.data.source, root, "data.source")
    return write_synthetic(scenario.data, scenario.name, root)


def write_pattern(pattern: str, name: str | None, settings: Mapping[str, Any]) -> Path:
    """Writes a pattern's prices under a name, its own by default; settings are rows, seed and its params."""
    from proxima.domains.trading.data import write_synthetic

    params = dict(settings)
    numbers = {key: params.pop(key) for key in ("rows", "seed") if key in params}
    config = DataConfig(pattern=pattern, params=params, **numbers)
    return write_synthetic(config, pattern if name is None else name, Path())


def raw_policy(about: Mapping[str, Any]) -> RawPolicy:
    """An exported policy on raw bars."""
    from proxima.domains.trading.decide_one import bar_policy
    from proxima.domains.trading.recipe import read_recipe
    from proxima.domains.trading.tables import is_bars

    shape = tuple(about["observation"]["shape"])
    # Read when it is first asked for: whoever has observations needs none.
    reader = cache(partial(read_recipe, about, "policy.json"))
    facts = "memory" in about, about["weights_sha256"]
    return on_prices.on_bars(
        lambda raw: is_bars(raw, shape), lambda act: bar_policy(reader(), act, *facts)
    )


def evaluate_data(directory: Path, path: Path) -> DataFigures:
    """An exported policy on new prices."""
    from proxima.domains.trading.new_prices import evaluate_prices

    return evaluate_prices(directory, path)


def closing(summary: Summary) -> Closing:
    """The trials, beside what others would have made of the same prices."""
    others = summary.details.references.splits["test"]
    known = {name: others[name]["log_return"] for name in REFERENCES if others[name] is not None}
    beside = on_prices.Beside(REFERENCES, known, others.random["log_return"])
    return on_prices.closing(summary, beside, evidence(summary))


DOMAIN = Domain(
    name="trading",
    scenario=TradingScenario,
    checks=trading_faults,
    prepare=prepare,
    overview=judging.overview,
    closing=closing,
    page=page,
    details=(TradingTrial, TradingSummary),
    backends=("trading",),
    networks={"mlp": "proxima.nets.actor_critic:NETWORK"},
    evaluated_on=on_prices.evaluated_on,
    raw_policy=raw_policy,
    evaluate_data=evaluate_data,
    one_trial=on_prices.one_trial,
    check_search=on_prices.check_search,
    data=Data(
        "Prices",
        generate,
        Patterns(describe_patterns, write_pattern),
        Sources(describe_sources, write_source),
    ),
    reads=on_prices.reads,
    prepare_host=reinforcement.prepare_host,
    gangs=True,
)
