"""Runs in MLflow: one experiment per scenario, one parent run per run, one child run per trial,
or per stage of a trial.

A search is such a parent too; its children, the configurations, come from finished.py.

Always with explicit run ids, because MLflow's fluent functions keep one active run for the whole
process. NaN is logged, since a diverged loss should be seen; infinities are not, since MLflow's
databases would turn them into 1.8e308.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from proxima.core.addresses import masked
from proxima.track.messages import Finish, Metrics, Plan
from proxima.track.store import expecting, opening_sqlite
from proxima.track.tracker import RunIds

MAX_METRICS = 1000  # MLflow's limits for one log_batch
MAX_PARAMS = 100
PARENT = "mlflow.parentRunId"  # the tag by which MLflow knows whose child a run is
NUMBER = "number"  # the parameter by which a finished run is known again
MLFLOW_STATUS = {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}


class Session(NamedTuple):
    """An open connection."""

    client: Any
    ids: RunIds
    experiment_id: str
    tags: Mapping[str, str]  # of every run
    last_steps: Mapping[str, Mapping[str, int]]  # of resumed runs: the newest step per metric
    numbers: frozenset[int]  # of the finished runs that a resumed run has below it

    def run(self, trial: int | None) -> str:
        """The MLflow run of a trial, or of the whole."""
        return self.ids.parent if trial is None else self.ids.children[trial]


def open_session(plan: Plan, warn: Callable[[str], None]) -> Session:
    """A connection with the plan's runs made, or opened again."""
    with opening_sqlite(plan.uri):
        from mlflow import MlflowClient

        client: Any = MlflowClient(plan.uri)
        if client.get_experiment_by_name(plan.name) is None:
            with expecting("RESOURCE_ALREADY_EXISTS"):  # another process may be making it too
                client.create_experiment(plan.name)
        experiment_id = client.get_experiment_by_name(plan.name).experiment_id
    tags = {"proxima.run_id": plan.run_id, **plan.about}
    if plan.resume_parent is not None:
        ids = RunIds(plan.resume_parent, tuple(plan.resume_children))
        with expecting("RESOURCE_DOES_NOT_EXIST"):
            known = {run_id: client.get_run(run_id) for run_id in (ids.parent, *ids.children)}
            last_steps = {run_id: reopen_run(client, run) for run_id, run in known.items()}
            experiment_id = known[ids.parent].info.experiment_id
            # Only a search has children that are not in the plan.
            below = () if plan.children else finished_numbers(client, experiment_id, ids.parent)
            return Session(client, ids, experiment_id, tags, last_steps, frozenset(below))
        warn(f"The run to resume is not in {masked(plan.uri)}; tracked as a new run there.")
    ids = create_runs(client, experiment_id, plan, tags)
    return Session(client, ids, experiment_id, tags, {}, frozenset())


def create_runs(client: Any, experiment_id: str, plan: Plan, tags: Mapping[str, str]) -> RunIds:
    """A parent run with the parameters, and below it its children, each with its own seed."""
    parent = client.create_run(experiment_id, tags=tags, run_name=plan.run_id).info.run_id
    log_params(client, parent, plan.params)
    children = []
    for child in plan.children:
        below = {**tags, PARENT: parent}
        run_id = client.create_run(experiment_id, tags=below, run_name=child.name).info.run_id
        own = {"trial": str(child.trial), "seed": str(child.seed)}
        own |= {"stage": child.stage} if child.stage else {}
        log_params(client, run_id, {**plan.params, **own})
        children.append(run_id)
    return RunIds(parent, tuple(children))


def reopen_run(client: Any, run: Any) -> dict[str, int]:
    """Let a run of before go on; the newest step of each of its metrics."""
    run_id = run.info.run_id
    client.update_run(run_id, status="RUNNING")
    return {
        name: max(metric.step for metric in client.get_metric_history(run_id, name))
        for name in run.data.metrics
    }


def finished_numbers(client: Any, experiment_id: str, parent: str) -> Iterator[int]:
    """The numbers of the finished runs below a run, also of those that somebody has deleted since."""
    from mlflow.entities import ViewType

    wanted, token = f"tags.`{PARENT}` = '{parent}'", None
    while True:
        page = client.search_runs([experiment_id], wanted, ViewType.ALL, page_token=token)
        yield from (int(run.data.params[NUMBER]) for run in page if NUMBER in run.data.params)
        token = page.token
        if not token:
            return


def log_params(client: Any, run_id: str, params: Mapping[str, str]) -> None:
    """Write parameters."""
    from mlflow.entities import Param

    entities = [Param(name, value) for name, value in params.items()]
    for start in range(0, len(entities), MAX_PARAMS):
        client.log_batch(run_id, params=entities[start : start + MAX_PARAMS])


def log_metrics(session: Session, waiting: Sequence[Metrics]) -> int:
    """Write metrics in as few batches as MLflow allows; the number of infinite ones left out."""
    from mlflow.entities import Metric

    infinite = 0
    batches: dict[str, list[Any]] = defaultdict(list)
    for trial, step, timestamp, values in waiting:
        run_id = session.run(trial)
        last_steps = session.last_steps.get(run_id, {})
        for name, value in values.items():
            if math.isinf(value):
                infinite += 1
            elif step > last_steps.get(name, -1):
                batches[run_id].append(Metric(name, value, timestamp, step))
    for run_id, metrics in batches.items():
        log_points(session.client, run_id, metrics)
    return infinite


def log_points(client: Any, run_id: str, metrics: Sequence[Any]) -> None:
    """Write a run's metrics, given as MLflow's own objects."""
    for start in range(0, len(metrics), MAX_METRICS):
        client.log_batch(run_id, metrics=metrics[start : start + MAX_METRICS])


def close_runs(session: Session, work: Finish) -> None:
    """Give the trials' runs and then the parent their final status."""
    for run_id, status in zip(session.ids.children, work.trials, strict=True):
        session.client.set_terminated(run_id, MLFLOW_STATUS[status])
    session.client.set_terminated(session.ids.parent, MLFLOW_STATUS[work.parent])
