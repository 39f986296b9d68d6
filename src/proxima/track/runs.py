"""Runs in MLflow: one experiment per scenario, one parent run per run, one child run per trial,
or per stage of a trial.

Always with explicit run ids, because MLflow's fluent functions keep one active run for the whole
process. NaN is logged, since a diverged loss should be seen; infinities are not, since MLflow's
databases would turn them into 1.8e308.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from proxima.core.addresses import masked
from proxima.track.messages import Finish, Metrics, Plan
from proxima.track.store import expecting, opening_sqlite
from proxima.track.tracker import RunIds

MAX_METRICS = 1000  # MLflow's limits for one log_batch
MAX_PARAMS = 100
MLFLOW_STATUS = {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}


class Session(NamedTuple):
    """An open connection; `last_steps` holds a resumed run's newest step per metric."""

    client: Any
    ids: RunIds
    last_steps: Mapping[str, Mapping[str, int]]

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
    if plan.resume_parent is not None:
        ids = RunIds(plan.resume_parent, tuple(plan.resume_children))
        with expecting("RESOURCE_DOES_NOT_EXIST"):
            known = {run_id: client.get_run(run_id) for run_id in (ids.parent, *ids.children)}
            last_steps = {run_id: reopen_run(client, run) for run_id, run in known.items()}
            return Session(client, ids, last_steps)
        warn(f"The run to resume is not in {masked(plan.uri)}; tracked as a new run there.")
    return Session(client, create_runs(client, experiment_id, plan), {})


def create_runs(client: Any, experiment_id: str, plan: Plan) -> RunIds:
    """A parent run with the parameters, and below it its children, each with its own seed."""
    tags = {"proxima.run_id": plan.run_id, **plan.about}
    parent = client.create_run(experiment_id, tags=tags, run_name=plan.run_id).info.run_id
    log_params(client, parent, plan.params)
    tags["mlflow.parentRunId"] = parent
    children = []
    for child in plan.children:
        run_id = client.create_run(experiment_id, tags=tags, run_name=child.name).info.run_id
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
        for start in range(0, len(metrics), MAX_METRICS):
            session.client.log_batch(run_id, metrics=metrics[start : start + MAX_METRICS])
    return infinite


def close_runs(session: Session, work: Finish) -> None:
    """Give the trials' runs and then the parent their final status."""
    for run_id, status in zip(session.ids.children, work.trials, strict=True):
        session.client.set_terminated(run_id, MLFLOW_STATUS[status])
    session.client.set_terminated(session.ids.parent, MLFLOW_STATUS[work.parent])
