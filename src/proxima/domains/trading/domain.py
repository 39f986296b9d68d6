"""Trading: prices with known answers or the user's own, judged on a split that nothing has seen."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic

from pydantic import with_config

from proxima.core.errors import ProximaError
from proxima.core.faults import Fault
from proxima.domains import judging, reinforcement
from proxima.domains.domain import (
    Added,
    Closing,
    Data,
    DataFigures,
    Domain,
    Facts,
    Patterns,
    PolicyStep,
    Prepared,
    RawPolicy,
    Sources,
)
from proxima.domains.trading.config import DataConfig, TradingEnvConfig
from proxima.domains.trading.edge import edge
from proxima.domains.trading.page import page
from proxima.domains.trading.patterns import describe_patterns
from proxima.domains.trading.results import TradingSummary, TradingTrial, evidence, judged
from proxima.domains.trading.rollouts import REFERENCES
from proxima.domains.trading.sources import SOURCES, describe_sources, write_source
from proxima.domains.trading.splits import split_faults
from proxima.report.numbers import brief
from proxima.run.results import Aggregate, Summary, TrialResult
from proxima.scenario.tree import RULES, A, EnvironmentScenario, N

if TYPE_CHECKING:
    from proxima.domains.trading.decide import BarPolicy

TRAINING_ONLY = ("num_envs", "random_start", "max_steps_per_episode")  # settings of the account
DIGITS = 12  # of a hash, in a sentence


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
    yield from data_faults(scenario.data, scenario.trials, tuple(SOURCES))
    positions = scenario.env.positions
    if len(set(positions)) < len(positions):
        yield Fault((("env", "positions"),), f"{list(positions)} names a position twice")


def data_faults(data: DataConfig, trials: int, sources: Sequence[str]) -> Iterator[Fault]:
    """Data that cannot be had or divided among so many trials."""
    keys = ("path", "pattern", "source")
    given = [key for key in keys if getattr(data, key) is not None]
    if len(given) != 1:
        remedy = (
            "set one of data.pattern (synthetic prices), data.path (your own file) and data.source"
        )
        which = {0: "none is given", 2: "both are given"}.get(len(given), "all are given")
        paths = tuple(("data", key) for key in (given or keys[:2]))
        yield Fault(paths, f"{which}; {remedy}")
    if data.source is not None and data.source not in sources:
        text = f"{data.source} is no source of prices; there are {', '.join(sources)}"
        yield Fault((("data", "source"),), text)
    yield from split_faults(data.split)
    if data.split.fold == "all" and trials % data.split.folds:
        text = f"{trials} trials do not divide among {data.split.folds} folds; make it a multiple"
        yield Fault((("trials",), ("data", "split", "folds")), text)


def reads(scenario: TradingScenario) -> list[Path]:
    """The file of its prices."""
    from proxima.domains.trading.data import price_file

    return [price_file(scenario.data, scenario.name)]


def prepare(scenario: TradingScenario) -> Prepared:
    """The prices divided and made into features, and accounts on each split."""
    from proxima.domains.trading.env import trading_env
    from proxima.domains.trading.judge import PriceRun, draw, judge, previewed
    from proxima.domains.trading.market import SPLITS
    from proxima.domains.trading.overall import year_of
    from proxima.domains.trading.preview import SPLIT, equity_previews
    from proxima.domains.trading.recipe import describe
    from proxima.domains.trading.timing import of_equal_length, own_prices
    from proxima.domains.trading.walk_forward import draw_fold, judge_walk, noted, prepare_folds
    from proxima.train.compiled.episodes import policy_recorder, recorder

    folds = prepare_folds(scenario.data, scenario.name)
    prices, config, walks = folds[0], scenario.env, len(folds) > 1
    whole = {
        split: of_equal_length([trading_env(fold.split(split), config, False) for fold in folds])
        for split in SPLITS
    }
    training = of_equal_length([trading_env(fold.train, config, training=True) for fold in folds])
    own = None
    if walks:
        check_walk(scenario)
        lanes = [trial % len(folds) for trial in range(scenario.trials)]
        parts = (training, whole["validation"], whole["test"])
        own = reinforcement.OwnEnvs(*(own_prices([envs[fold] for fold in lanes]) for envs in parts))
    built = reinforcement.compiled(
        scenario, training[0], whole["validation"][0], whole["test"][0], foresees=True, own=own
    )
    year = year_of(scenario.data, prices.params, prices.train.time)
    runs = []
    for index, fold in enumerate(folds):
        record = {
            split: recorder(built.agent, envs[index], scenario.seed, len(envs[index].returns))
            for split, envs in whole.items()
        }
        runs.append(PriceRun(scenario.data, config, fold, record, scenario.tried))
    records = [
        policy_recorder(built.agent, env, scenario.seed, len(env.returns)) for env in whole[SPLIT]
    ]
    raws = [describe(fold, config, scenario.data.leaky, year) for fold in folds]
    built = built._replace(raw=raws[0], own_raw=raws if walks else ())
    noted_data = noted([fold.fingerprint for fold in folds])
    # Features that the file decided are stored by name: a resumed run has the same.
    resolved = replace(scenario, data=replace(scenario.data, features=prices.features))
    prepared = reinforcement.prepared(
        scenario,
        built,
        judge=partial(judge_walk, runs) if walks else partial(judge, runs[0]),
        draw=partial(draw_fold, runs) if walks else partial(draw, runs[0]),
        facts=Facts(noted_data, partial(check_prices, noted_data)),
        summarize=summarize,
        artifacts=("rollouts", "trades"),
        final_metrics=final_metrics,
        preview=equity_previews(list(map(previewed, runs, records))),
    )
    return prepared._replace(scenario=resolved, notes=prices.notes)


def check_walk(scenario: Any) -> None:
    """An error where the scenario cannot train every fold at once."""
    from proxima.build import algorithm
    from proxima.domains.trading.walk_forward import check_trials

    check_trials(scenario.trials, scenario.data.split.folds)
    what = "data.split.fold: all"
    if algorithm(scenario.algorithm.name).acting == "search":
        raise ProximaError(
            f"{what}, and {scenario.algorithm.name} searches in a model of one fold's prices; set it to "
            "one fold, or take an algorithm without a search"
        )
    if scenario.training.trials_per_block is not None:
        raise ProximaError(
            f"{what} trains its folds side by side in one process; leave out "
            "training.trials_per_block and --cluster, or set it to one fold"
        )


def check_search(scenario: Any) -> None:
    """An error where a search would train every fold at once."""
    if scenario.data.split.fold == "all":
        raise ProximaError(
            "data.split.fold: all trains every fold at once, and a search tries its settings on one; set it "
            "to a fold, such as 0 (the earliest, so that later ones stay unseen), and walk with what it finds"
        )


def one_trial(scenario: TradingScenario, trial: int) -> TradingScenario:
    """The scenario of a trial by itself: of a walk over all folds, on the trial's own fold."""
    from proxima.domains.trading.data import one_fold

    fold = trial % scenario.data.split.folds
    return replace(scenario, trials=1, data=one_fold(scenario.data, fold))


def summarize(results: Sequence[TrialResult], verdicts: Sequence[Any]) -> Added:
    """What the trials made of the prices."""
    (details,) = verdicts
    what = "log return on the test split" + ("" if details.walk is None else " of a fold")
    return Added(what, details=details)


def final_metrics(trial: TrialResult) -> dict[str, float]:
    """Every number of a trial on every split, named test/sharpe and the like."""
    numbers = {}
    for split, result in trial.details.splits.items():
        scores = {f"score_{oracle}": value for oracle, value in result.score.items()}
        for name, value in {**result.agent, **scores}.items():
            if value is not None:
                numbers[f"{split}/{name}"] = value
    return numbers


def check_prices(now: Mapping[str, Any], noted: Mapping[str, Any]) -> str | None:
    """An error where the prices are not those that were noted; words for the user where features differ."""
    if now["prices_sha256"] != noted["prices_sha256"]:
        before, after = (
            f"{facts['rows']:,} rows until "
            + facts["last"].removesuffix("+00:00").removesuffix("T00:00:00")
            for facts in (noted, now)
        )
        change = "it has as many rows as then, but other values in them"
        if before != after:
            change = f"it had {before}, now it has {after.replace(' rows', '')}"
        raise ProximaError(
            f"{now['source']}: has changed since the run was started: {change}; put the old file back to "
            "resume, or start a new run"
        )
    if now["features_sha256"] != noted["features_sha256"]:
        return (
            "The features come out otherwise than when the run was started, though the prices are the "
            "same: their code or a library has changed. What follows may differ from what the run "
            "would have given."
        )
    return None


def evaluated_on(settings: Mapping[str, Any], data: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The bars of the test split and the account: an evaluation goes over all of them, whatever the seed."""
    env = {name: value for name, value in settings["env"].items() if name not in TRAINING_ONLY}
    test = ((data or {}).get("splits") or {}).get("test")
    if test is None:  # of a run that did not note it
        test = settings["data"] | {"prices_sha256": (data or {}).get("prices_sha256")}
    test = test | {"prices_sha256": (test["prices_sha256"] or "")[:DIGITS]}
    return {"domain": settings["domain"], "env": env, "test": test}


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
    reader = cache(
        partial(read_recipe, about, "policy.json")
    )  # whoever has observations needs none
    facts = "memory" in about, about["weights_sha256"]
    return on_bars(lambda raw: is_bars(raw, shape), lambda act: bar_policy(reader(), act, *facts))


def on_bars(
    takes: Callable[[Any], bool], of_bars: Callable[[PolicyStep], "BarPolicy[Any]"]
) -> RawPolicy:
    """How a policy is used on what it takes as bars."""
    from proxima.domains.trading.decide import predict, step

    return RawPolicy(
        takes=takes,
        decide=lambda act, raw, state: predict(of_bars(act), raw, state),
        step=lambda act, raw, state: step(of_bars(act), raw, state),
    )


def evaluate_data(directory: Path, path: Path) -> DataFigures:
    """An exported policy on new prices."""
    from proxima.domains.trading.new_prices import evaluate_prices

    return evaluate_prices(directory, path)


def closing(summary: Summary) -> Closing:
    """The trials, beside what others would have made of the same prices; score 0 is chance, 1 the oracle."""
    details: TradingSummary = summary.details
    references, scores = details.references.splits["test"], details.score["test"]
    beside = ""
    for key, name in REFERENCES.items():
        if references[key] is None:
            continue
        beside += f"; {name} {brief(references[key]['log_return'])}"
        score = scores.get(key)
        if score is not None and score.iqm is not None:
            beside += f" (score {score.iqm:.2f})"
    one, _ = judged(summary)
    what = "Greedy log return on the test split"
    if details.walk is not None:
        what += f"s of all {len(details.walk.folds)} folds end to end"
    shown = edge(evidence(summary))
    if details.walk is not None:
        summary = over_walks(summary)
    closed = judging.closing(summary, what, beside, one)
    return closed._replace(lines=[*closed.lines, *([shown] if shown else [])])


def over_walks(summary: Summary) -> Summary:
    """The summary with figures of whole walks, which is what the references are of, not of single folds."""
    details: TradingSummary = summary.details
    chance = details.references.splits["test"].random["log_return"]
    random = Aggregate(iqm=chance.mean, low=chance.low, high=chance.high, n=chance.runs, failed=0)
    baselines = {**summary.baselines, "random": random}
    return replace(summary, aggregate=details.aggregate["test"]["log_return"], baselines=baselines)


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
    evaluated_on=evaluated_on,
    raw_policy=raw_policy,
    evaluate_data=evaluate_data,
    one_trial=one_trial,
    check_search=check_search,
    data=Data(
        "Prices",
        generate,
        Patterns(describe_patterns, write_pattern),
        Sources(describe_sources, write_source),
    ),
    reads=reads,
    prepare_host=reinforcement.prepare_host,
    gangs=True,
)
