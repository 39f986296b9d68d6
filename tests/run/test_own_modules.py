"""What is the user's own is named by paths, and found by runs, workers and resumes from any directory."""

import signal
import sys

import pytest
from own_module import write_own
from tiny import read, run_process, stop_at_row

from proxima.core.errors import ProximaError
from proxima.scenario import from_mapping, load


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A scenario file beside its module, which is importable to no other test."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    yield write_own(tmp_path / "own")
    sys.modules.pop("mine", None)


def test_everything_of_ones_own_is_found_from_another_directory_and_on_resume(own, tmp_path):
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    metrics = "logs/corridor/latest/trial_0/metrics.jsonl"
    stopped = stop_at_row(["experiment", "--config", own], here, metrics, 2, signal.SIGINT)
    assert stopped.code != 0 and "resume" in stopped.out + stopped.err
    told = f"Imports mine ({own.parent / 'mine.py'}), named by domain, env.backend, "
    assert stopped.out.count(told) == 1 and stopped.out.count("Imports ") == 1, stopped.out
    run = here / "logs" / "corridor" / "latest"
    assert str(own.parent) in read(run / "run.json")["directories"]
    changes = ["--set", "training.max_steps=2000"]
    done = run_process(["resume", run.resolve(), *changes], elsewhere)
    assert done.code == 0, done.err
    summary = read(run / "summary.json")
    assert summary["domain"] == "mine:DOMAIN" and summary["algorithm"] == "mine:ALGORITHM"
    again = run_process(["report", run.resolve()], elsewhere)
    assert again.code == 0, again.err


def test_a_scenario_names_its_own_module(own):
    scenario = load(own)
    assert scenario.env.name == "make_env" and scenario.algorithm.learning_rate == 0.005
    assert type(scenario.algorithm).__module__ == "mine"


def test_an_algorithm_whose_config_has_no_room_for_its_path_is_told_so(own):
    with pytest.raises(ProximaError, match=r"algorithm.name: the config of mine:BORROWED needs"):
        load(own, ["algorithm.name=mine:BORROWED"])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"env": {"backend": "gone:make"}}, "env.backend: cannot import gone"),
        ({"algorithm": {"name": "gone:X"}}, "algorithm.name: cannot import gone"),
        ({"network": {"kind": "gone:X"}}, "network.kind: cannot import gone"),
        ({"domain": "gone:X"}, "domain: cannot import gone"),
        (
            {"env": {"backend": "gymnasium", "name": "gone:Env-v0"}},
            "there is no module gone; it must be installed, or stand in the working directory",
        ),
    ],
)
def test_what_cannot_be_imported_is_said_with_where_it_may_stand(settings, words):
    from proxima.build import domain_of

    with pytest.raises(ProximaError, match=words) as told:
        scenario = from_mapping({"name": "gone", **settings}, "gone.yaml")
        domain_of(scenario).prepare(scenario)
    assert "beside the scenario's file" in str(told.value)
    assert "pip install" not in str(told.value)
