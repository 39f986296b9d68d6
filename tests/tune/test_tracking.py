"""What a search leaves with its tracker: itself, and each configuration once, as it was in the end."""

import math
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from lanes import LAMBDA, RATE, small
from tracking import THEIR_WARNINGS, wait_until

from proxima.core.errors import ProximaError
from proxima.run.files import read_json, write_json
from proxima.run.lock import locked
from proxima.scenario import changed
from proxima.track.process import connect
from proxima.track.tracker import FinishedRun, RunIds, no_tracker
from proxima.tune import run, store, tracking
from proxima.tune import search as search_module
from proxima.tune.files import SearchFiles, find_search
from proxima.tune.plan import Watch
from proxima.tune.results import Confirmed
from proxima.tune.run import resume_search, start_search

pytestmark = THEIR_WARNINGS
SILENT = Watch(lambda text: None, lambda standing: None)


class Killed(BaseException):
    """Ends a search as a kill does: nothing more is saved."""


def scenario_of(method: str, uri: str | None = None, **search) -> Any:
    wanted = {"method": method, "configs": 6, "evaluations": 4} | search
    settings = {"tracking.enabled": True, "tracking.uri": uri}
    return changed(small(**wanted), settings, "test")


@pytest.fixture(scope="module")
def tracked(tmp_path_factory):
    """A whole search in a store of its own: its files, its result, what was said, the store."""
    folder, said = tmp_path_factory.mktemp("tracked"), []
    scenario = scenario_of("random", f"sqlite:///{folder}/mlflow.db")
    scenario = changed(scenario, {"output_directory": str(folder)}, "test")
    files, result = start_search(scenario, SILENT._replace(say=said.append))
    return files, result, said, folder / "mlflow.db"


@pytest.fixture
def client_and_uri(tracked, tmp_path):
    """A store that is already made, as making one takes long."""
    from mlflow import MlflowClient

    uri = f"sqlite:///{shutil.copy(tracked[-1], tmp_path / 'mlflow.db')}"
    return MlflowClient(uri), uri


def children(client, parent: str) -> dict[int, Any]:
    """The runs below a run, by the configuration's number."""
    experiment = client.get_run(parent).info.experiment_id
    runs = client.search_runs([experiment], f"tags.mlflow.parentRunId = '{parent}'")
    numbers = [int(each.data.params["number"]) for each in runs]
    assert len(set(numbers)) == len(numbers)
    return dict(zip(numbers, runs, strict=True))


def check_children(client, parent: str, result) -> None:
    """Every configuration is there as the result has it."""
    found = children(client, parent)
    assert sorted(found) == [each.number for each in result.configurations]
    for each in result.configurations:
        child = found[each.number]
        assert child.info.status == "FINISHED" and child.info.start_time <= child.info.end_time
        assert child.data.tags["proxima.state"] == each.state
        own = {"number": str(each.number), "program": str(each.program)}
        assert child.data.params == own | {k: str(v) for k, v in each.settings.items()}
        metrics = child.data.metrics
        assert metrics["search/value"] == each.value and metrics["search/steps"] == each.steps
        history = client.get_metric_history(child.info.run_id, result.metric)
        assert [(point.step, point.value) for point in history] == list(each.curve)


def test_a_search_is_read_back_as_it_was(tracked):
    from mlflow import MlflowClient

    files, result, said, path = tracked
    client = MlflowClient(f"sqlite:///{path}")
    parent = client.get_run(read_json(files.info)["mlflow_run_id"])
    assert (parent.info.status, parent.info.run_name) == ("FINISHED", files.search_id)
    assert parent.data.tags["proxima.run_id"] == files.search_id
    assert parent.data.tags["proxima.kind"] == "search"
    assert parent.data.params["search.method"] == "random"
    assert parent.data.params[f"search.space.{RATE}"] == "log:1e-4:1e-1"
    assert parent.data.params["env.name"] and LAMBDA in parent.data.params
    assert parent.data.metrics == run.figures(result)
    check_children(client, parent.info.run_id, result)
    artifacts = [file.path for file in client.list_artifacts(parent.info.run_id)]
    written = ["best.yaml", "configurations.parquet", "report.html", "search.json"]
    assert sorted(artifacts) == written
    assert said == []
    experiment = parent.info.experiment_id
    assert len(client.search_runs([experiment])) == 7  # nobody else has left anything


def test_a_search_in_a_few_numbers(tracked):
    result = tracked[1]
    found = {
        "search/configurations": 6,
        "search/best_value": max(each.value for each in result.configurations),
        "search/chosen": result.chosen,
    }
    assert run.figures(result) == found
    best = Confirmed(result.chosen, (1.0, 2.0, 3.0, None), (0, 1, 2, 3))
    own = Confirmed(None, (5.0, 7.0), (0, 1))
    tested = {"test/best_iqm": 2.0, "test/own_iqm": 6.0}
    assert run.figures(result._replace(test=(best, own))) == found | tested
    broken = result._replace(
        chosen=None, configurations=[each._replace(value=None) for each in result.configurations]
    )
    assert run.figures(broken) == {"search/configurations": 6}


def test_a_search_that_was_killed_goes_on_in_its_run_and_no_configuration_is_there_twice(
    client_and_uri, workdir, monkeypatch
):
    """It is saved once, before most of what it tells: all of that happens, and is told, again."""
    client, uri = client_and_uri
    chunks = 0

    def patient(*arguments, **options):
        tracker = connect(*arguments, **options)
        wait_until(tracker.ids)
        return tracker

    def killing(standing) -> None:
        nonlocal chunks
        chunks += 1
        if chunks == 6:
            raise Killed

    monkeypatch.setattr(run, "connect", patient)
    monkeypatch.setattr(tracking, "EVERY", 0)
    monkeypatch.setattr(store.Store, "is_due", lambda self: chunks == 2)
    with pytest.raises(Killed):
        start_search(scenario_of("asha", uri, configs=12), SILENT._replace(show=killing))
    files = find_search("pendulum")
    info = read_json(files.info)
    parent = info["mlflow_run_id"]
    assert (info["status"], client.get_run(parent).info.status) == ("failed", "FAILED")
    before = {number: each.info.run_id for number, each in children(client, parent).items()}
    assert 2 <= len(before) < 12
    result = resume_search(files, SILENT)
    assert read_json(files.info) == info | {"status": "finished"}
    check_children(client, parent, result)
    after = {number: each.info.run_id for number, each in children(client, parent).items()}
    assert before.items() <= after.items()
    assert client.get_run(parent).info.status == "FINISHED"


@pytest.mark.parametrize(
    ("method", "search"),
    [
        ("random", {"space": {RATE: "log:1e-3:1e30"}, "confirm": 2}),
        ("asha", {"configs": 12, "seeds": 2}),
        ("pbt", {"configs": 4}),
    ],
)
def test_a_configuration_is_told_once_and_as_it_was_in_the_end(
    method, search, workdir, monkeypatch
):
    """Whenever it is told: here as soon as may be, after every chunk. What is run again is not told."""
    told: list[list[FinishedRun]] = []
    tracker = no_tracker()._replace(log_finished=told.append, ids=lambda: RunIds("a run", ()))
    monkeypatch.setattr(run, "connect", lambda *arguments, **options: tracker)
    monkeypatch.setattr(tracking, "EVERY", 0)
    monkeypatch.setattr(search_module, "_tested", lambda search, result: result)
    files, result = start_search(scenario_of(method, **search), SILENT)
    assert read_json(files.info)["mlflow_run_id"] == "a run"
    by_number = {each.number: each for batch in told for each in batch}
    assert len(by_number) == sum(map(len, told)) == len(result.configurations)
    assert (len(told) == 1) == (method == "pbt")
    for each in result.configurations:
        child = by_number[each.number]
        assert child.metrics[result.metric] == list(each.curve)
        assert child.metrics["search/value"] == ([(each.steps, each.value)] if each.value else [])
        assert child.tags["proxima.state"] == each.state
        assert child.params[RATE] == str(each.settings[RATE])
        points = [value for curve in child.metrics.values() for _, value in curve]
        assert all(map(math.isfinite, points)) and child.start <= child.end
    states = {each.state for each in result.configurations}
    assert {"random": "broken", "asha": "stopped"}.get(method, "done") in states


def test_a_search_that_somebody_else_runs_is_left_as_it_is(tracked, tmp_path):
    """Neither its files nor its tracked run are touched before it is locked."""
    files = SearchFiles(shutil.copytree(tracked[0].root, tmp_path / "tune" / "again"))
    write_json(files.info, read_json(files.info) | {"status": "running"})
    before = files.info.read_bytes(), tracked[-1].read_bytes()
    with locked(files.root), ThreadPoolExecutor() as others:
        failure = others.submit(resume_search, files, SILENT).exception()
    assert isinstance(failure, ProximaError)
    assert (files.info.read_bytes(), tracked[-1].read_bytes()) == before


def test_a_store_that_cannot_be_written_is_said_once_and_the_search_ends_well(workdir):
    said: list[str] = []
    (workdir / "mlflow.db").mkdir()
    scenario = scenario_of("random", f"sqlite:///{workdir}/mlflow.db")
    files, result = start_search(scenario, SILENT._replace(say=said.append))
    assert len(said) == 1 and "unable to open database file" in said[0]
    assert read_json(files.info)["status"] == "finished" and files.report.is_file()
    assert "mlflow_run_id" not in read_json(files.info)
    assert len(result.configurations) == 6


def test_a_search_that_is_not_tracked_leaves_nothing_and_starts_nothing(workdir, monkeypatch):
    def started(*arguments: Any) -> None:
        raise AssertionError

    monkeypatch.setattr("proxima.track.process.start", started)
    files, _ = start_search(
        changed(scenario_of("random"), {"tracking.enabled": False}, "test"), SILENT
    )
    assert "mlflow_run_id" not in read_json(files.info)
    assert [path.name for path in Path().iterdir()] == ["logs"]
