"""Runs that arrive when they are over: written many at once, and read back as the client's own would be."""

import queue

import pytest
import sqlalchemy
from tracking import THEIR_WARNINGS, only

from proxima.track import finished, messages
from proxima.track.messages import Finish, FinishedRuns, Plan
from proxima.track.tracker import FinishedRun, RunIds
from proxima.track.writer import Writer

pytestmark = THEIR_WARNINGS
CURVE = "eval/return_mean"
TAGS = {"proxima.kind": "search", "mlflow.user": "me", "mlflow.source.name": "proxima"}


def run_of(number: int, **more) -> FinishedRun:
    value = number / 8
    metrics = {
        CURVE: [(step, value + step) for step in (64, 128, 192)],
        "search/value": [(192, value + 192)],
        "search/steps": [(192, 192.0)],
    }
    params = {
        "algorithm.learning_rate": str(10.0**-number),
        "env.name": "'x' \"y\" ü",
        "program": "0",
    }
    tags = {"proxima.kind": "configuration", "proxima.state": "done"}
    run = FinishedRun(number, f"configuration_{number}", params, metrics, tags, 1_000, 2_500)
    return run._replace(**more)


def write(uri: str, *batches: list[FinishedRun], resume_from: RunIds | None = None) -> str:
    """The parent below which a tracking process, here without the process, has written these."""
    inbox: queue.SimpleQueue = queue.SimpleQueue()
    for runs in batches:
        inbox.put(messages.decode(messages.encode(FinishedRuns(runs))))
    inbox.put(Finish((), "finished"))
    plan = Plan(uri, "cartpole", "a search", {"a": "b"}, (), TAGS, *(resume_from or ()))
    answers: list = []
    Writer(plan, inbox, answers.append).run()
    assert not [each for each in answers if isinstance(each, messages.Failed)]
    return only(RunIds, answers).parent


def children(uri: str, parent: str, more: str = "", **options) -> list:
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    (experiment,) = client.search_experiments(filter_string="name = 'cartpole'")
    wanted = f"tags.mlflow.parentRunId = '{parent}'{more}"
    return list(client.search_runs([experiment.experiment_id], wanted, **options))


def numbers(runs: list) -> list[int]:
    return sorted(int(run.data.params["number"]) for run in runs)


@pytest.fixture
def by_client(monkeypatch):
    """From now on runs are written as to a server."""
    return lambda: monkeypatch.setattr(finished, "engine_of", lambda client: None)


def test_inserted_rows_are_those_of_the_client(default_store, by_client):
    """Every column of every table, but for ids, is the same."""
    runs = [run_of(0), run_of(1, metrics={}), run_of(2, metrics={CURVE: [(64, -1.5)]})]
    inserted = write(default_store, runs)
    by_client()
    logged = write(default_store, runs)

    engine = sqlalchemy.create_engine(default_store)
    known = sqlalchemy.MetaData()
    known.reflect(engine)
    tables = [t for t in known.sorted_tables if "run_uuid" in t.c]
    assert {"runs", "params", "tags", "metrics", "latest_metrics"} <= {t.name for t in tables}
    for table in tables:
        with engine.connect() as connection:
            rows = connection.execute(sqlalchemy.select(table)).mappings().all()
        contents = []
        for parent in (inserted, logged):
            names = {run.info.run_id: run.info.run_name for run in children(default_store, parent)}
            assert len(names) == 3
            mine = [str(dict(row)) for row in rows if row["run_uuid"] in names]
            for run_id, name in (*names.items(), (parent, "the parent")):
                mine = [row.replace(run_id, name) for row in mine]
            contents.append(sorted(mine))
        assert contents[0] == contents[1], table.name
    engine.dispose()


def test_they_are_read_and_searched_as_any_run(default_store, tmp_path):
    from mlflow import MlflowClient

    parent = write(default_store, [run_of(number) for number in range(4)], [run_of(4)])
    best = "metrics.`search/value` DESC"
    found = children(
        default_store, parent, " and params.program = '0' and tags.proxima.state = 'done'"
    )
    assert numbers(found) == [0, 1, 2, 3, 4]
    assert numbers(children(default_store, parent, " and metrics.`search/value` > 192.3")) == [3, 4]
    first = children(default_store, parent, order_by=[best], max_results=1)[0]
    client = MlflowClient(default_store)
    run = client.get_run(first.info.run_id)
    assert (run.info.run_name, run.info.status) == ("configuration_4", "FINISHED")
    assert (run.info.start_time, run.info.end_time) == (1_000, 2_500)
    assert run.data.metrics == {CURVE: 192.5, "search/value": 192.5, "search/steps": 192.0}
    assert run.data.params["env.name"] == "'x' \"y\" ü"
    assert run.data.tags["proxima.run_id"] == "a search"
    assert run.data.tags["proxima.kind"] == "configuration"
    points = client.get_metric_history(run.info.run_id, CURVE)
    assert [(point.step, point.value, point.timestamp) for point in points] == [
        (64, 64.5, 2_500),
        (128, 128.5, 2_500),
        (192, 192.5, 2_500),
    ]
    whole = client.get_run(parent)
    assert (whole.data.tags["proxima.kind"], whole.data.params) == ("search", {"a": "b"})
    # and what people do to runs works
    (tmp_path / "note.txt").write_text("note")
    client.log_artifact(run.info.run_id, str(tmp_path / "note.txt"))
    assert [file.path for file in client.list_artifacts(run.info.run_id)] == ["note.txt"]
    client.set_tag(run.info.run_id, "mlflow.note.content", "the best")
    client.update_run(run.info.run_id, name="renamed")
    client.log_metric(run.info.run_id, CURVE, 7.0, step=256)
    changed = client.get_run(run.info.run_id)
    assert (changed.info.run_name, changed.data.metrics[CURVE]) == ("renamed", 7.0)


@pytest.mark.parametrize("is_server", [False, True])
def test_a_resumed_search_leaves_out_what_the_store_has(default_store, by_client, is_server):
    from mlflow import MlflowClient

    if is_server:
        by_client()
    parent = write(default_store, [run_of(0), run_of(1), run_of(2)])
    client = MlflowClient(default_store)
    first, second, _ = children(default_store, parent)
    client.update_run(first.info.run_id, name="renamed")
    client.delete_run(second.info.run_id)
    runs = [run_of(number) for number in range(5)]
    assert write(default_store, runs, resume_from=RunIds(parent, ())) == parent
    kept = children(default_store, parent)
    assert numbers([*kept, second]) == [0, 1, 2, 3, 4]


def test_where_the_search_is_not_known_all_are_written_below_a_new_one(default_store):
    unknown = RunIds("0" * 32, ())
    parent = write(default_store, [run_of(0), run_of(1)], resume_from=unknown)
    assert parent != unknown.parent
    assert numbers(children(default_store, parent)) == [0, 1]


def test_tables_that_are_not_as_expected_are_left_to_the_client(default_store, monkeypatch):
    from mlflow import MlflowClient

    client = MlflowClient(default_store)
    assert finished.engine_of(client) is not None
    runs, params, *rest = finished.tables()
    wider = sqlalchemy.Table(
        "params",
        sqlalchemy.MetaData(),
        *(sqlalchemy.Column(name) for name in [*params.c.keys(), "is_new"]),
    )
    monkeypatch.setattr(finished, "tables", lambda: [runs, wider, *rest])
    assert finished.engine_of(client) is None
    assert finished.engine_of(MlflowClient("http://127.0.0.1:9")) is None
