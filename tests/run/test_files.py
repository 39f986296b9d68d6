"""Runs by their names: literal ones, near ones, damaged ones, and paths from home."""

import json
import threading
from pathlib import Path

import pytest

from proxima import ProximaError, resume_experiment
from proxima.run import files as files_module
from proxima.run.files import RunFiles, create_run, find_run, write_json


@pytest.fixture
def runs(workdir):
    """Three runs of two experiments; the second experiment's name looks like a pattern."""
    made = [create_run("logs", name, 1) for name in ("cartpole", "cartpole", "[a]*")]
    for index, files in enumerate(made):
        write_json(files.info, {"status": "running", "mlflow_run_id": f"mlflow{index}"})
    return [RunFiles(files.root.resolve()) for files in made]


def test_a_run_has_many_names(runs):
    first, second, third = runs
    assert find_run("cartpole") == second
    assert find_run("[a]*") == third
    for files in runs:
        assert find_run(files.run_id) == files
        assert find_run(str(files.root)) == files
        assert find_run(str(files.trial(0))) == files
    assert find_run("mlflow0") == first


@pytest.mark.parametrize("reference", ["*", "[c]artpole", "cart*", "2*", "", "?"])
def test_names_are_no_patterns(runs, reference):
    with pytest.raises(ProximaError, match="no experiment, run or run directory"):
        find_run(reference)


def test_a_typo_is_an_error_with_what_was_meant(runs):
    with pytest.raises(ProximaError, match=r"cartpol: no experiment.*did you mean cartpole\?"):
        find_run("cartpol")
    run_id = runs[0].run_id
    with pytest.raises(ProximaError, match=f"did you mean .*{run_id}"):
        find_run(run_id[:-1] + "x")
    with pytest.raises(ProximaError, match=r"there are: \[a\]\*, cartpole"):
        find_run("zzz")
    with pytest.raises(ProximaError, match="no experiment"):
        find_run(f"logs/cartpole/runs/{run_id}/trail_0")
    with pytest.raises(ProximaError, match="there are no runs in elsewhere/ yet"):
        find_run("cartpole", "elsewhere")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"3", b"{}", b"\xff\xfe", None])
def test_a_damaged_run_is_named_and_stands_in_nobodys_way(runs, content):
    first, second, _ = runs
    if content is None:
        second.info.unlink()
    else:
        second.info.write_bytes(content)
    assert find_run(first.run_id) == first and find_run("mlflow0") == first
    for reference in (second.run_id, "cartpole"):
        with pytest.raises(ProximaError) as refused:
            resume_experiment(reference)
        assert str(second.info) in str(refused.value)


def test_runs_that_start_together_do_not_trip_over_each_others_links(workdir):
    failures = []

    def start() -> None:
        try:
            for _ in range(30):
                create_run("logs", "same", 2)
        except ProximaError as error:
            failures.append(error)

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sorted(path.name for path in (workdir / "logs/same").iterdir()) == [
        *("latest", "runs", "summary.json", "trial_0", "trial_1")
    ]


def test_a_run_never_gets_the_directory_of_another(workdir, monkeypatch):
    numbers = iter(["0000", "0000", "0000", "0001"])
    monkeypatch.setattr(files_module, "new_run_id", lambda: f"20260101-000000-{next(numbers)}")
    first, second = (create_run("logs", "same", 1) for _ in range(2))
    assert (first.run_id[-4:], second.run_id[-4:]) == ("0000", "0001")


def test_home_is_expanded(runs, workdir, monkeypatch):
    monkeypatch.setenv("HOME", str(workdir))
    monkeypatch.chdir("/")
    assert find_run("cartpole", "~/logs") == runs[1]
    assert find_run(f"~/logs/cartpole/runs/{runs[0].run_id}") == runs[0]
    assert create_run("~/more", "x", 1).root.is_relative_to(workdir / "more")
    assert json.loads(Path(runs[0].info).read_text())["status"] == "running"


@pytest.mark.parametrize("reference", ["x" * 300, "a\0b", "x/" * 3000, "\ud800"])
def test_what_no_file_system_has_is_no_run(runs, reference):
    with pytest.raises(ProximaError, match="is no path"):
        find_run(reference)
