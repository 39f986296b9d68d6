"""Portfolios: several assets in one account, judged on a split that nothing has seen, beside rules."""

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
    Prepared,
    RawPolicy,
    Sources,
)
from proxima.domains.trading import on_prices
from proxima.domains.trading.portfolio.config import PanelConfig, PortfolioEnvConfig
from proxima.domains.trading.portfolio.page import page
from proxima.domains.trading.portfolio.results import (
    NAMES,
    PortfolioSummary,
    PortfolioTrial,
    evidence,
)
from proxima.domains.trading.portfolio.sources import SOURCES, describe_sources, write_source
from proxima.run.results import Summary
from proxima.scenario.tree import RULES, A, EnvironmentScenario, N


@with_config(RULES)
@dataclass(frozen=True, kw_only=True)
class PortfolioScenario(EnvironmentScenario[A, N], Generic[A, N]):
    """An experiment with the prices of several assets."""

    data: PanelConfig = field(default_factory=PanelConfig)
    """The prices."""
    env: PortfolioEnvConfig = field(default_factory=PortfolioEnvConfig)
    """The account."""


def portfolio_faults(scenario: PortfolioScenario) -> Iterator[Fault]:
    """Data that cannot be had or divided, and a leverage that nothing uses."""
    yield from on_prices.data_faults(scenario.data, scenario.trials, tuple(SOURCES))
    if scenario.env.weights == "long_only" and scenario.env.leverage != 1:
        paths = (("env", "leverage"), ("env", "weights"))
        text = f"{scenario.env.leverage:g} is for weights: long_short; long only, all weights make 1 together"
        yield Fault(paths, text)


def prepare(scenario: PortfolioScenario) -> Prepared:
    """The prices divided and made into features, and accounts on each split."""
    from proxima.domains.trading.overall import year_of
    from proxima.domains.trading.portfolio.data import prepare_folds
    from proxima.domains.trading.portfolio.env import check_fill, portfolio_env
    from proxima.domains.trading.portfolio.judge import PanelRun, draw, judge, previewed
    from proxima.domains.trading.portfolio.recipe import describe
    from proxima.domains.trading.prepare import Traded, prepare_traded

    folds, data, account = prepare_folds(scenario.data, scenario.name), scenario.data, scenario.env
    first = folds[0]
    check_fill(first.closes_only, account, first.fingerprint["source"])
    year = year_of(data, first.params, first.splits["train"].time)
    traded: Traded[Any, PanelRun] = Traded(
        env=lambda fold, split, training: portfolio_env(fold.splits[split], account, training),
        run=lambda fold, record: PanelRun(data, account, fold, record, scenario.tried),
        raw=lambda fold: describe(fold, account, data.leaky, year),
        judge=judge,
        draw=draw,
        previewed=previewed,
        artifacts=("rollouts",),
    )
    return prepare_traded(scenario, folds, traded)


def generate(scenario: PortfolioScenario, root: Path) -> Path:
    """Write the prices that the scenario describes."""
    from proxima.domains.trading.portfolio.data import write_synthetic

    if scenario.data.source is not None:
        return write_source(scenario.data.source, root, "data.source")
    return write_synthetic(scenario.data, scenario.name, root)


def raw_policy(about: Mapping[str, Any]) -> RawPolicy:
    """An exported policy on raw bars."""
    from proxima.domains.trading.portfolio.decide import bar_policy, is_panel
    from proxima.domains.trading.portfolio.recipe import read_recipe

    assets = tuple(map(str, about["raw"].get("assets", ())))
    # Read when it is first asked for: whoever has observations needs none.
    reader = cache(partial(read_recipe, about, "policy.json"))
    facts = "memory" in about, about["weights_sha256"]
    return on_prices.on_bars(
        lambda raw: is_panel(raw, assets), lambda act: bar_policy(reader(), act, *facts)
    )


def evaluate_data(directory: Path, path: Path) -> DataFigures:
    """An exported policy on new prices."""
    from proxima.domains.trading.portfolio.new_prices import evaluate_panel

    return evaluate_panel(directory, path)


def closing(summary: Summary) -> Closing:
    """The trials, beside what others would have made of the same prices."""
    others = summary.details.references["test"]
    earned = {name: sheet["log_return"] for name, sheet in others.rules.items()}
    beside = on_prices.Beside(NAMES, earned, others.random)
    return on_prices.closing(summary, beside, evidence(summary))


DOMAIN = Domain(
    name="portfolio",
    scenario=PortfolioScenario,
    checks=portfolio_faults,
    prepare=prepare,
    overview=judging.overview,
    closing=closing,
    page=page,
    details=(PortfolioTrial, PortfolioSummary),
    backends=("portfolio",),
    networks={
        "mlp": "proxima.nets.actor_critic:NETWORK",
        "assets": "proxima.domains.trading.portfolio.assets:NETWORK",
    },
    evaluated_on=on_prices.evaluated_on,
    raw_policy=raw_policy,
    evaluate_data=evaluate_data,
    one_trial=on_prices.one_trial,
    check_search=on_prices.check_search,
    data=Data("Prices", generate, sources=Sources(describe_sources, write_source)),
    reads=on_prices.reads,
    prepare_host=reinforcement.prepare_host,
    gangs=True,
)
