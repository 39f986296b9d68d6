"""Portfolios: several assets in one account, judged on a split that nothing has seen, beside rules."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Generic

from pydantic import with_config

from proxima.core.faults import Fault
from proxima.domains import judging, reinforcement
from proxima.domains.domain import (
    Added,
    Closing,
    Data,
    DataFigures,
    Domain,
    Facts,
    Prepared,
    RawPolicy,
    Sources,
)
from proxima.domains.trading.domain import (
    check_prices,
    check_search,
    check_walk,
    data_faults,
    evaluated_on,
    final_metrics,
    on_bars,
)
from proxima.domains.trading.edge import edge
from proxima.domains.trading.portfolio.config import PanelConfig, PortfolioEnvConfig
from proxima.domains.trading.portfolio.page import page
from proxima.domains.trading.portfolio.results import (
    NAMES,
    PortfolioSummary,
    PortfolioTrial,
    evidence,
    judged,
)
from proxima.domains.trading.portfolio.sources import SOURCES, describe_sources, write_source
from proxima.report.numbers import brief
from proxima.run.results import Aggregate, Summary, TrialResult
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
    yield from data_faults(scenario.data, scenario.trials, tuple(SOURCES))
    if scenario.env.weights == "long_only" and scenario.env.leverage != 1:
        paths = (("env", "leverage"), ("env", "weights"))
        text = f"{scenario.env.leverage:g} is for weights: long_short; long only, all weights make 1 together"
        yield Fault(paths, text)


def reads(scenario: PortfolioScenario) -> list[Path]:
    """The file of its prices."""
    from proxima.domains.trading.data import price_file

    return [price_file(scenario.data, scenario.name)]


def prepare(scenario: PortfolioScenario) -> Prepared:
    """The prices divided and made into features, and accounts on each split."""
    from proxima.domains.trading.market import SPLITS
    from proxima.domains.trading.overall import year_of
    from proxima.domains.trading.portfolio.data import prepare_folds
    from proxima.domains.trading.portfolio.env import check_fill, portfolio_env
    from proxima.domains.trading.portfolio.judge import PanelRun, draw, judge, previewed
    from proxima.domains.trading.portfolio.recipe import describe
    from proxima.domains.trading.preview import SPLIT, equity_previews
    from proxima.domains.trading.timing import of_equal_length, own_prices
    from proxima.domains.trading.walk_forward import noted
    from proxima.train.compiled.episodes import policy_recorder, recorder

    folds, config = prepare_folds(scenario.data, scenario.name), scenario.env
    first = folds[0]
    check_fill(first.closes_only, config, first.fingerprint["source"])
    whole = {
        split: of_equal_length([portfolio_env(fold.splits[split], config, False) for fold in folds])
        for split in SPLITS
    }
    training = of_equal_length(
        [portfolio_env(fold.splits["train"], config, True) for fold in folds]
    )
    own = None
    if len(folds) > 1:
        check_walk(scenario)
        lanes = [trial % len(folds) for trial in range(scenario.trials)]
        parts = (training, whole["validation"], whole["test"])
        own = reinforcement.OwnEnvs(*(own_prices([envs[fold] for fold in lanes]) for envs in parts))
    built = reinforcement.compiled(
        scenario, training[0], whole["validation"][0], whole["test"][0], foresees=True, own=own
    )
    runs = []
    for index, fold in enumerate(folds):
        record = {
            split: recorder(built.agent, envs[index], scenario.seed, len(envs[index].returns))
            for split, envs in whole.items()
        }
        runs.append(PanelRun(scenario.data, config, fold, record, scenario.tried))
    records = [
        policy_recorder(built.agent, env, scenario.seed, len(env.returns)) for env in whole[SPLIT]
    ]
    year = year_of(scenario.data, first.params, first.splits["train"].time)
    raws = [describe(fold, config, scenario.data.leaky, year) for fold in folds]
    built = built._replace(raw=raws[0], own_raw=raws if own is not None else ())
    noted_data = noted([fold.fingerprint for fold in folds])
    # Features that the file decided are stored by name: a resumed run has the same.
    resolved = replace(scenario, data=replace(scenario.data, features=first.features))
    prepared = reinforcement.prepared(
        scenario,
        built,
        judge=partial(judge, runs),
        draw=partial(draw, runs),
        facts=Facts(noted_data, partial(check_prices, noted_data)),
        summarize=summarize,
        artifacts=("rollouts",),
        final_metrics=final_metrics,
        preview=equity_previews(list(map(previewed, runs, records))),
    )
    return prepared._replace(scenario=resolved, notes=first.notes)


def one_trial(scenario: PortfolioScenario, trial: int) -> PortfolioScenario:
    """The scenario of a trial by itself: of a walk over all folds, on the trial's own fold."""
    from proxima.domains.trading.data import one_fold

    fold = trial % scenario.data.split.folds
    return replace(scenario, trials=1, data=one_fold(scenario.data, fold))


def summarize(results: Sequence[TrialResult], verdicts: Sequence[Any]) -> Added:
    """What the trials made of the prices."""
    (details,) = verdicts
    what = "log return on the test split" + ("" if details.walk is None else " of a fold")
    return Added(what, details=details)


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
    reader = cache(
        partial(read_recipe, about, "policy.json")
    )  # whoever has observations needs none
    facts = "memory" in about, about["weights_sha256"]
    return on_bars(lambda raw: is_panel(raw, assets), lambda act: bar_policy(reader(), act, *facts))


def evaluate_data(directory: Path, path: Path) -> DataFigures:
    """An exported policy on new prices."""
    from proxima.domains.trading.portfolio.new_prices import evaluate_panel

    return evaluate_panel(directory, path)


def closing(summary: Summary) -> Closing:
    """The trials, beside what others would have made of the same prices."""
    details: PortfolioSummary = summary.details
    references, scores = details.references["test"].rules, details.score["test"]
    beside = ""
    for key, name in NAMES.items():
        if key not in references:
            continue
        beside += f"; {name} {brief(references[key]['log_return'])}"
        score = scores.get(key)
        if score is not None and score.iqm is not None:
            beside += f" (score {score.iqm:.2f})"
    one, _ = judged(summary)
    what, shown = "Greedy log return on the test split", edge(evidence(summary))
    if details.walk is not None:
        what += f"s of all {len(details.walk.folds)} folds end to end"
        summary = over_walks(summary)
    closed = judging.closing(summary, what, beside, one)
    return closed._replace(lines=[*closed.lines, *([shown] if shown else [])])


def over_walks(summary: Summary) -> Summary:
    """The summary with figures of whole walks, which is what the references are of, not of single folds."""
    details: PortfolioSummary = summary.details
    chance = details.references["test"].random
    random = Aggregate(iqm=chance.mean, low=chance.low, high=chance.high, n=chance.runs, failed=0)
    baselines: Mapping[str, Aggregate] = {**summary.baselines, "random": random}
    return replace(summary, aggregate=details.aggregate["test"]["log_return"], baselines=baselines)


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
    evaluated_on=evaluated_on,
    raw_policy=raw_policy,
    evaluate_data=evaluate_data,
    one_trial=one_trial,
    check_search=check_search,
    data=Data("Prices", generate, sources=Sources(describe_sources, write_source)),
    reads=reads,
    prepare_host=reinforcement.prepare_host,
    gangs=True,
)
