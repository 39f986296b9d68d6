"""Runs that were over before the store hears of them, many at a time: the configurations of a search.

MLflow's client takes several transactions for each. Where the store is a database that this process has
open, the rows that the client would write are inserted instead, those of all runs in one transaction:

    runs            the parent's own row, with another id, name, status and times
    params, tags    a row each
    metrics         a row per point of a curve
    latest_metrics  the last point of each curve

A server offers no such way, and tables that are not as expected are not guessed at: there the client
writes run by run.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from proxima.track.runs import MLFLOW_STATUS, NUMBER, PARENT, Session, log_params, log_points
from proxima.track.tracker import FinishedRun

RUN_NAME = "mlflow.runName"  # MLflow keeps a run's name in its row and in this tag
STATUS = MLFLOW_STATUS["finished"]
CHANGED = {"run_uuid", "name", "status", "start_time", "end_time", "artifact_uri"}
TEXT = {"run_uuid", "key", "value"}
POINT = TEXT | {"timestamp", "step", "is_nan"}
Rows = list[dict[str, Any]]


def write_finished(
    session: Session, runs: Sequence[FinishedRun], progress: Callable[[], None]
) -> None:
    """The store has these runs, each with all there is to it; those that it had before are as they were."""
    fresh = [run for run in runs if run.number not in session.numbers]
    if (engine := engine_of(session.client)) is not None:
        insert_runs(engine, session, fresh)
        progress()
        return
    for run in fresh:
        log_run(session, run)
        progress()  # a server that is slow has not stopped


def engine_of(client: Any) -> Any:
    """SQLAlchemy's engine of a database whose tables we know; None: write with the client."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    store = client._tracking_client.store
    if not isinstance(store, SqlAlchemyStore):
        return None
    runs, *others = ({*table.c.keys()} for table in tables())
    return store.engine if runs >= CHANGED and others == [TEXT, TEXT, POINT, POINT] else None


def tables() -> list[Any]:
    """MLflow's tables of runs, params, tags, metrics and latest metrics."""
    from mlflow.store.tracking.dbmodels import models

    texts, points = (models.SqlParam, models.SqlTag), (models.SqlMetric, models.SqlLatestMetric)
    return [model.__table__ for model in (models.SqlRun, *texts, *points)]


def insert_runs(engine: Any, session: Session, runs: Sequence[FinishedRun]) -> None:
    """All rows of all runs, in one transaction."""
    from sqlalchemy import insert, select

    table, *_ = known = tables()
    own = select(table).where(table.c.run_uuid == session.ids.parent)
    with engine.connect() as connection:
        parent = dict(connection.execute(own).mappings().one())
    contents: list[Rows] = [[] for _ in known]
    for run in runs:
        for content, rows in zip(contents, rows_of(run, parent, session.tags), strict=True):
            content += rows
    with engine.begin() as connection:
        for table, content in zip(known, contents, strict=True):
            if content:
                connection.execute(insert(table), content)


def rows_of(
    run: FinishedRun, parent: Mapping[str, Any], tags: Mapping[str, str]
) -> tuple[Rows, ...]:
    """What each table gets of a run below this parent."""
    run_id, parent_id = uuid.uuid4().hex, parent["run_uuid"]
    row = {
        **parent,
        "run_uuid": run_id,
        "name": run.name,
        "status": STATUS,
        "start_time": run.start,
        "end_time": run.end,
        "artifact_uri": parent["artifact_uri"].replace(parent_id, run_id),
    }

    def texts(pairs: Mapping[str, str]) -> Rows:
        return [{"run_uuid": run_id, "key": key, "value": text} for key, text in pairs.items()]

    point = {"run_uuid": run_id, "timestamp": run.end, "is_nan": False}
    points = [
        point | {"key": name, "step": step, "value": value}
        for name, curve in run.metrics.items()
        for step, value in sorted(curve)
    ]
    latest = {row["key"]: row for row in points}
    named = {**tags_of(run, parent_id, tags), RUN_NAME: run.name}
    return [row], texts(params_of(run)), texts(named), points, [*latest.values()]


def log_run(session: Session, run: FinishedRun) -> None:
    """The same by MLflow's client."""
    from mlflow.entities import Metric

    client, tags = session.client, tags_of(run, session.ids.parent, session.tags)
    created = client.create_run(session.experiment_id, run.start, tags, run.name)
    run_id = created.info.run_id
    log_params(client, run_id, params_of(run))
    points = [
        Metric(name, value, run.end, step)
        for name, curve in run.metrics.items()
        for step, value in curve
    ]
    log_points(client, run_id, points)
    client.set_terminated(run_id, STATUS, run.end)


def params_of(run: FinishedRun) -> dict[str, str]:
    """Parameters, with the number by which a resumed run knows it again."""
    return {NUMBER: str(run.number), **run.params}


def tags_of(run: FinishedRun, parent: str, tags: Mapping[str, str]) -> dict[str, str]:
    """Tags; the run's own come before those of every run."""
    return {**tags, **run.tags, PARENT: parent}
