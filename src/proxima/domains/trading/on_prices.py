"""What every domain on prices says of its scenario, its data and its end, whatever it trades."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from proxima.core.errors import ProximaError
from proxima.core.faults import Fault
from proxima.domains import judging
from proxima.domains.domain import Added, Closing, PolicyStep, RawPolicy
from proxima.domains.trading.config import DataConfig
from proxima.domains.trading.edge import Evidence, edge
from proxima.domains.trading.results import Chance
from proxima.domains.trading.splits import split_faults
from proxima.report.numbers import brief
from proxima.run.results import Aggregate, Number, Summary, TrialResult

if TYPE_CHECKING:
    from proxima.domains.trading.decide import BarPolicy

TRAINING_ONLY = ("num_envs", "random_start", "max_steps_per_episode")  # settings of the account
DIGITS = 12  # of a hash, in a sentence


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


def reads(scenario: Any) -> list[Path]:
    """The file of its prices."""
    from proxima.domains.trading.data import price_file

    return [price_file(scenario.data, scenario.name)]


def check_walk(scenario: Any) -> None:
    """An error where the scenario cannot train every fold at once."""
    from proxima.build import algorithm

    _check_trials(scenario.trials, scenario.data.split.folds)
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


def _check_trials(trials: int, folds: int) -> None:
    """An error where trials are not whole walks over all folds."""
    if trials % folds:
        raise ProximaError(
            f"trials: {trials} trials are no whole walks over {folds} folds; make trials a multiple of "
            "data.split.folds, or set data.split.fold to one of them"
        )


def check_search(scenario: Any) -> None:
    """An error where a search would train every fold at once."""
    if scenario.data.split.fold == "all":
        raise ProximaError(
            "data.split.fold: all trains every fold at once, and a search tries its settings on one; set it "
            "to a fold, such as 0 (the earliest, so that later ones stay unseen), and walk with what it finds"
        )


def one_trial(scenario: Any, trial: int) -> Any:
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


class Beside(NamedTuple):
    """What others made of the same test split, a walk's folds end to end."""

    names: Mapping[str, str]  # of those that there may be, in order
    earned: Mapping[str, Number]  # log return, of those that there are
    chance: Chance  # that of random actions


def closing(summary: Summary, beside: Beside, evidence: Evidence) -> Closing:
    """The trials beside others; of a score 0 is chance and 1 the oracle."""
    details: Any = summary.details
    words = ""
    for key, name in beside.names.items():
        if key in beside.earned:
            words += f"; {name} {brief(beside.earned[key])}"
            score = details.score["test"].get(key)
            if score is not None and score.iqm is not None:
                words += f" (score {score.iqm:.2f})"
    what, one = "Greedy log return on the test split", "trial"
    if details.walk is not None:
        what += f"s of all {len(details.walk.folds)} folds end to end"
        summary, one = over_walks(summary, beside.chance), "walk"
    closed, shown = judging.closing(summary, what, words, one), edge(evidence)
    return closed._replace(lines=[*closed.lines, *([shown] if shown else [])])


def over_walks(summary: Summary, chance: Chance) -> Summary:
    """The summary with figures of whole walks, which is what the references are of, not of single folds."""
    random = Aggregate(iqm=chance.mean, low=chance.low, high=chance.high, n=chance.runs, failed=0)
    baselines: Mapping[str, Aggregate] = {**summary.baselines, "random": random}
    earned = summary.details.aggregate["test"]["log_return"]
    return replace(summary, aggregate=earned, baselines=baselines)
