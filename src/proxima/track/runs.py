"""Runs in MLflow: one experiment per scenario, one parent run per run, one child run per trial,
or per stage of a trial.

Always with explicit run ids, because MLflow's fluent functions keep one active run for the whole
process. NaN is logged, since a diverged loss should be seen; infinities are not, since MLflow's
databases would turn them into 1.8e308.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from proxima.core.addresses import masked
from proxima.track.messages import Artifacts, Finish, Metrics, Plan
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

        client = MlflowClient(plan.uri)
        experiment_id = find_or_create_experiment(client, plan.name)
    if plan.resume_parent is not None:
        ids = RunIds(plan.resume_parent, tuple(plan.resume_children))
        if all(run_exists(client, run) for run in (ids.parent, *ids.children)):
            return reopen_runs(client, ids)
        warn(f"The run to resume is not in {masked(plan.uri)}; tracked as a new run there.")
    return Session(client, create_runs(client, experiment_id, plan), {})


def find_or_create_experiment(client: Any, name: str) -> str:
    """The id of the experiment of this name, which another process may be making too."""
    if client.get_experiment_by_name(name) is None:
        with expecting("RESOURCE_ALREADY_EXISTS"):
            client.create_experiment(name)
    return str(client.get_experiment_by_name(name).experiment_id)


def create_runs(client: Any, experiment_id: str, plan: Plan) -> RunIds:
    """A parent run with the parameters, and below it its children, each with its own seed."""
    tags = {"proxima.run_id": plan.run_id}
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


def reopen_runs(client: Any, ids: RunIds) -> Session:
    """Runs of before, running again, with the steps they got to."""
    last_steps = {}
    for run_id in (ids.parent, *ids.children):
        client.update_run(run_id, status="RUNNING")
        last_steps[run_id] = {
            name: max(metric.step for metric in client.get_metric_history(run_id, name))
            for name in client.get_run(run_id).data.metrics
        }
    return Session(client, ids, last_steps)


def run_exists(client: Any, run_id: str) -> bool:
    """Whether the store knows this run."""
    with expecting("RESOURCE_DOES_NOT_EXIST"):
        client.get_run(run_id)
        return True
    return False


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


def log_artifacts(session: Session, work: Artifacts) -> None:
    """Copy a file or the contents of a directory to a run's artifacts."""
    directory = Path(work.path).is_dir()
    send = session.client.log_artifacts if directory else session.client.log_artifact
    send(session.run(work.trial), work.path, work.artifact_path)


def close_runs(session: Session, work: Finish) -> None:
    """Give the trials' runs and then the parent their final status."""
    for run_id, status in zip(session.ids.children, work.trials, strict=True):
        session.client.set_terminated(run_id, MLFLOW_STATUS[status])
    session.client.set_terminated(session.ids.parent, MLFLOW_STATUS[work.parent])
