"""Runs in MLflow: one experiment per scenario, one parent run per run, one child run per trial.

    connect ─► queue ─► one writer thread: open or reopen the runs, then until `finish`
                        take all that waits ─► one log_batch per run ─► artifacts ─► registrations

Only the writer imports MLflow and talks to it, always with explicit run ids, because MLflow's
fluent functions keep one active run for the whole process. Timestamps are taken when a metric is
queued. NaN is logged, since a diverged loss should be seen; infinities are not, since MLflow's
databases would turn them into 1.8e308.
"""

import logging
import math
import os
import queue
import sqlite3
import threading
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from proxima.track.registry import register_policy
from proxima.track.tracker import (
    RegisteredModel,
    RunIds,
    Status,
    Tracker,
    TrackingConfig,
    TrackingOutcome,
)

DEFAULT_URI = "sqlite:///mlflow.db"
MAX_METRICS = 1000  # MLflow's limits for one log_batch
MAX_PARAMS = 100
LOCKED_SECONDS = 10  # how long another process may hold the sqlite file when we open it
STALLED_SECONDS = 60  # `finish` gives up on a writer that got nothing done for so long
MLFLOW_STATUS = {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}
ENVIRONMENT = {  # read by MLflow; what the user has set stays
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_UV_AUTO_DETECT": "false",  # or a model would carry the working directory's uv.lock
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}
NOISY_MODULES = r"(mlflow|alembic|sqlalchemy)(\.|$)"


class RunPlan(NamedTuple):
    """What the writer is to open: parameters are flat, trials are their seeds."""

    name: str
    run_id: str
    params: Mapping[str, Any]
    trials: tuple[int, ...]
    resume_from: RunIds | None


class Session(NamedTuple):
    """An open connection; `last_steps` holds a resumed run's newest step per metric."""

    client: Any
    ids: RunIds
    last_steps: Mapping[str, Mapping[str, int]]

    def run(self, trial: int | None) -> str:
        """The MLflow run of a trial, or of the whole."""
        return self.ids.parent if trial is None else self.ids.children[trial]


class Metrics(NamedTuple):
    """Numbers on their way, stamped in milliseconds."""

    trial: int | None
    step: int
    timestamp: int
    values: Mapping[str, float]


class Artifacts(NamedTuple):
    """A file or directory on its way."""

    trial: int | None
    path: Path
    artifact_path: str | None


class Registration(NamedTuple):
    """An exported policy on its way to the Model Registry."""

    trial: int
    directory: Path
    metrics: Mapping[str, float]


class Finish(NamedTuple):
    """The last thing in the queue."""

    trials: Sequence[Status]
    parent: Status


Work = Metrics | Artifacts | Registration | Finish


def resolve_uri(configured: str | None) -> str:
    """The store's address, a relative sqlite file made absolute as MLflow does."""
    uri = configured or os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT_URI
    path = uri.removeprefix("sqlite:///")
    if path == uri or path == ":memory:":
        return uri
    return f"sqlite:///{Path(path).absolute()}"


def start_writer(config: TrackingConfig, plan: RunPlan, warn: Callable[[str], None]) -> Tracker:
    """A tracker whose writer has just started."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    writer = Writer(resolve_uri(config.uri), plan, warn)

    def log_metrics(trial: int | None, step: int, metrics: Mapping[str, float]) -> None:
        # Made plain floats now: an array may be donated to the next chunk before it is written.
        values = {name: float(value) for name, value in metrics.items()}
        writer.put(Metrics(trial, int(step), time.time_ns() // 1_000_000, values))

    def register(trial: int, directory: Path, metrics: Mapping[str, float]) -> None:
        if config.register:
            writer.put(Registration(trial, Path(directory), dict(metrics)))

    return Tracker(
        log_metrics=log_metrics,
        log_parent_metrics=lambda step, metrics: log_metrics(None, step, metrics),
        log_artifacts=lambda trial, path, artifact_path: writer.put(
            Artifacts(trial, Path(path), artifact_path)
        ),
        register=register,
        finish=writer.finish,
        ids=lambda: writer.ids,
    )


class Writer:
    """Owns the connection: a thread that writes what is put, and stops for good at a failure."""

    def __init__(self, uri: str, plan: RunPlan, warn: Callable[[str], None]) -> None:
        self.ids: RunIds | None = None
        self._uri, self._plan, self._warn = uri, plan, warn
        self._error: str | None = None
        self._registered: list[RegisteredModel] = []
        self._left_out: dict[str, int] = defaultdict(int)
        self._work: queue.SimpleQueue[Work] = queue.SimpleQueue()
        self._finish: queue.SimpleQueue[Finish] = queue.SimpleQueue()  # kept for after a failure
        self._last_progress = time.monotonic()
        self._thread = threading.Thread(target=self._write, name="mlflow-writer", daemon=True)
        self._thread.start()

    def put(self, work: Work) -> None:
        """Queue work, or forget it where nothing can be written any more."""
        if self._error is None:
            self._work.put(work)

    def finish(self, trial_statuses: Sequence[Status], status: Status) -> TrackingOutcome:
        """Write what is left, close the runs, and say what became of it all."""
        last = Finish(tuple(trial_statuses), status)
        self._finish.put(last)
        self._work.put(last)
        self._last_progress = time.monotonic()
        while self._thread.is_alive() and not self._stalled():
            self._thread.join(timeout=0.2)
        if self._thread.is_alive():
            self._fail(f"nothing was written for {STALLED_SECONDS} seconds")
        if self._left_out:
            counts = ", ".join(f"{count} {what}" for what, count in self._left_out.items())
            self._say(f"MLflow tracking left out: {counts}")
        parent, children = self.ids or (None, ())
        return TrackingOutcome(
            parent, children, tuple(self._registered), self._error, without_password(self._uri)
        )

    def _stalled(self) -> bool:
        return time.monotonic() - self._last_progress > STALLED_SECONDS

    def _write(self) -> None:
        session = None
        try:
            with quiet():
                session = open_session(self._uri, self._plan, self._say)
                self.ids = session.ids
                while not self._write_what_waits(session):
                    self._last_progress = time.monotonic()
        except Exception as error:
            self._fail(str(error) or type(error).__name__)
            if session is not None:
                self._close_after_failure(session)

    def _write_what_waits(self, session: Session) -> bool:
        waiting = [self._work.get()]
        while not self._work.empty():
            waiting.append(self._work.get())
        ignore_library_warnings()
        infinite = log_metrics(session, [work for work in waiting if isinstance(work, Metrics)])
        if infinite:
            self._left_out["infinite metric values"] += infinite
        for work in waiting:
            self._last_progress = time.monotonic()
            match work:
                case Artifacts() if not work.path.exists():
                    self._left_out["files that were gone"] += 1
                case Artifacts():
                    log_artifacts(session, work)
                case Registration(trial, directory, metrics):
                    model = register_policy(
                        session.client, session.run(trial), self._plan.name, directory, metrics
                    )
                    self._registered.append(model)
                case Finish():
                    close_runs(session, work)
                    return True
        return False

    def _close_after_failure(self, session: Session) -> None:
        # One attempt, so that a run which lost one artifact is not shown as running for ever.
        last = self._finish.get()
        with suppress(Exception), quiet():
            session.client.set_tag(session.ids.parent, "proxima.tracking_error", self._error)
            close_runs(session, last)

    def _fail(self, reason: str) -> None:
        shown = without_password(self._uri)
        reason = reason.replace(self._uri, shown).splitlines()[0][:400]
        self._error = (
            f"MLflow tracking at {shown} stopped: {reason}. The run goes on and the local files "
            "hold everything; check tracking.uri, or set tracking.enabled to false."
        )
        self._say(self._error)

    def _say(self, message: str) -> None:
        with suppress(Exception):  # a console that cannot be written to is no reason to stop
            self._warn(message)


def open_session(uri: str, plan: RunPlan, say: Callable[[str], None]) -> Session:
    """A connection with the plan's runs made, or opened again."""
    with opening_sqlite(uri):
        from mlflow import MlflowClient

        client = MlflowClient(uri)
        experiment_id = find_or_create_experiment(client, plan.name)
    if plan.resume_from is not None:
        if all(run_exists(client, run) for run in (plan.resume_from[0], *plan.resume_from[1])):
            return reopen_runs(client, plan.resume_from)
        say(f"The run to resume is not in {without_password(uri)}; tracked as a new run there.")
    return Session(client, create_runs(client, experiment_id, plan), {})


@contextmanager
def opening_sqlite(uri: str) -> Iterator[None]:
    """One process at a time makes the tables of a sqlite store, and a bad file is told at once.

    Left to itself MLflow tries a file that cannot be opened for 100 seconds, and two processes
    that start together on a new file both make its tables.
    """
    path = Path(uri.removeprefix("sqlite:///"))
    if not uri.startswith("sqlite:///") or path.name == ":memory:":
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        with suppress(ImportError, OSError):  # not on Windows, not on every network disk
            import fcntl

            fcntl.flock(directory, fcntl.LOCK_EX)
        with closing(sqlite3.connect(path, timeout=LOCKED_SECONDS)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.rollback()
        yield
    finally:
        os.close(directory)


def find_or_create_experiment(client: Any, name: str) -> str:
    """The id of the experiment of this name, which another process may be making too."""
    from mlflow.exceptions import MlflowException

    experiment = client.get_experiment_by_name(name)
    if experiment is not None:
        return str(experiment.experiment_id)
    try:
        return str(client.create_experiment(name))
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
        return str(client.get_experiment_by_name(name).experiment_id)


def create_runs(client: Any, experiment_id: str, plan: RunPlan) -> RunIds:
    """A parent run with the parameters, and below it a run per trial with its own seed."""
    tags = {"proxima.run_id": plan.run_id}
    parent = client.create_run(experiment_id, tags=tags, run_name=plan.run_id).info.run_id
    log_params(client, parent, plan.params)
    children = []
    for trial, seed in enumerate(plan.trials):
        child = client.create_run(
            experiment_id, tags=tags | {"mlflow.parentRunId": parent}, run_name=f"trial_{trial}"
        ).info.run_id
        log_params(client, child, {**plan.params, "trial": trial, "seed": seed})
        children.append(child)
    return RunIds(parent, tuple(children))


def reopen_runs(client: Any, ids: RunIds) -> Session:
    """Runs of before, running again, with the steps they got to."""
    last_steps = {}
    for run_id in (ids.parent, *ids.children):
        client.update_run(run_id, status="RUNNING")
        names = client.get_run(run_id).data.metrics
        last_steps[run_id] = {
            name: max(metric.step for metric in client.get_metric_history(run_id, name))
            for name in names
        }
    return Session(client, RunIds(ids.parent, tuple(ids.children)), last_steps)


def run_exists(client: Any, run_id: str) -> bool:
    """Whether the store knows this run."""
    from mlflow.exceptions import MlflowException

    try:
        client.get_run(run_id)
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return False
        raise
    return True


def log_params(client: Any, run_id: str, params: Mapping[str, Any]) -> None:
    """Write parameters as text."""
    from mlflow.entities import Param

    entities = [Param(name, str(value)) for name, value in params.items()]
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
    send = session.client.log_artifacts if work.path.is_dir() else session.client.log_artifact
    send(session.run(work.trial), str(work.path), work.artifact_path)


def close_runs(session: Session, work: Finish) -> None:
    """Give the trials' runs and then the parent their final status."""
    for run_id, status in zip(session.ids.children, work.trials, strict=True):
        session.client.set_terminated(run_id, MLFLOW_STATUS[status])
    session.client.set_terminated(session.ids.parent, MLFLOW_STATUS[work.parent])


def without_password(uri: str) -> str:
    """The address as it may be shown and stored."""
    password = urlsplit(uri).password
    return uri.replace(f":{password}@", ":***@") if password else uri


def ignore_library_warnings() -> None:
    """Keep MLflow's and its database layer's warnings to themselves, also where they are errors.

    Filters belong to the whole process and others put theirs back at any time (pytest after each
    test), so this is said again before each piece of work.
    """
    warnings.filterwarnings("ignore", module=NOISY_MODULES)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep this thread's library messages off the terminal; other threads' are untouched."""
    ignore_library_warnings()
    from mlflow.utils.logging_utils import suppress_logs_in_thread

    ours = threading.get_ident()
    retries = logging.getLogger("urllib3.connectionpool")  # not among those MLflow suppresses

    def from_elsewhere(record: logging.LogRecord) -> bool:
        return record.thread != ours

    retries.addFilter(from_elsewhere)
    try:
        with suppress_logs_in_thread():
            yield
    finally:
        retries.removeFilter(from_elsewhere)
