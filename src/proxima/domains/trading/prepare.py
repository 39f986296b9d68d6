"""A run on prices, whatever is traded: from the folds of its data to what the trainer needs.

    folds ─► an account on each split of each ─► one program, in which a lane has the prices of its fold
          ─► judged, drawn and shown while it trains, by functions of what is traded

A run over one fold is a walk of one: trial k is of fold k modulo the number of folds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from proxima.core.types import PyTree
from proxima.domains import reinforcement
from proxima.domains.domain import Facts, Prepared, Trained, Verdict
from proxima.domains.trading.config import FeatureConfig
from proxima.domains.trading.market import SPLITS
from proxima.domains.trading.on_prices import check_prices, check_walk, final_metrics, summarize
from proxima.domains.trading.preview import SPLIT, Previewed, equity_previews
from proxima.domains.trading.timing import of_equal_length, own_prices
from proxima.run.results import Outcome
from proxima.train.compiled.episodes import policy_recorder, recorder
from proxima.train.program import Recording

Record = Callable[[PyTree], Recording]  # a learner's, or a policy's, greedy run over a whole split


class Fold(Protocol):
    """Prices that were divided and made into features."""

    @property
    def features(self) -> tuple[FeatureConfig, ...]: ...
    @property
    def fingerprint(self) -> Mapping[str, Any]: ...
    @property
    def notes(self) -> tuple[str, ...]: ...


F = TypeVar("F", bound=Fold)
R = TypeVar("R")


class Traded(NamedTuple, Generic[F, R]):
    """What is done with the prices of a fold, and with all folds at the end."""

    env: Callable[[F, str, bool], Any]  # the account on a split of a fold; in training or not
    run: Callable[[F, Mapping[str, Record]], R]  # a fold with greedy runs over each of its splits
    raw: Callable[[F], Mapping[str, Any]]  # what policy.json says of raw bars
    judge: Callable[[Sequence[R], Trained, list[Outcome]], Verdict]
    draw: Callable[[Sequence[R], Trained, int, Outcome], None]
    previewed: Callable[[R, Record], Previewed]
    artifacts: Sequence[str]  # folders that go to the tracker


def prepare_traded(scenario: Any, folds: Sequence[F], traded: Traded[F, R]) -> Prepared:
    """The stage that trains on the train splits, and all that follows it."""
    walks = len(folds) > 1
    whole = {
        split: of_equal_length([traded.env(fold, split, False) for fold in folds])
        for split in SPLITS
    }
    training = of_equal_length([traded.env(fold, "train", True) for fold in folds])
    own = None
    if walks:
        check_walk(scenario)
        lanes = [trial % len(folds) for trial in range(scenario.trials)]
        parts = (training, whole["validation"], whole["test"])
        own = reinforcement.OwnEnvs(*(own_prices([envs[fold] for fold in lanes]) for envs in parts))
    built = reinforcement.compiled(
        scenario, training[0], whole["validation"][0], whole["test"][0], foresees=True, own=own
    )
    runs = []
    for index, fold in enumerate(folds):
        records = {
            split: recorder(built.agent, envs[index], scenario.seed, len(envs[index].returns))
            for split, envs in whole.items()
        }
        runs.append(traded.run(fold, records))
    shown = [
        policy_recorder(built.agent, env, scenario.seed, len(env.returns)) for env in whole[SPLIT]
    ]
    raws = [traded.raw(fold) for fold in folds]
    noted = noted_data([fold.fingerprint for fold in folds])
    prepared = reinforcement.prepared(
        scenario,
        built._replace(raw=raws[0], own_raw=raws if walks else ()),
        judge=partial(traded.judge, runs),
        draw=partial(traded.draw, runs),
        facts=Facts(noted, partial(check_prices, noted)),
        summarize=summarize,
        artifacts=traded.artifacts,
        final_metrics=final_metrics,
        preview=equity_previews(list(map(traded.previewed, runs, shown))),
    )
    # Features that the file decided are stored by name: a resumed run has the same.
    resolved = replace(scenario, data=replace(scenario.data, features=folds[0].features))
    return prepared._replace(scenario=resolved, notes=folds[0].notes)


def noted_data(folds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What is noted of the data: of one fold its fingerprint, of a walk with the test splits of all."""
    first, last = folds[0], folds[-1]
    if len(folds) == 1:
        return dict(first)
    tests = [fold["splits"]["test"] for fold in folds]
    test = {
        "rows": sum(each["rows"] for each in tests),
        "first": tests[0]["first"],
        "last": last["splits"]["test"]["last"],
        "prices_sha256": first["prices_sha256"],
        "folds": [each["first"] for each in tests],
    }
    return {**first, "splits": {**first["splits"], "test": test}}
