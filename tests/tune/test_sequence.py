"""Configurations of a language scenario, one after the other by the same command."""

import pytest
import texts

from proxima import load
from proxima.core.errors import ProximaError
from proxima.tune import sequence
from proxima.tune.check import search_of
from proxima.tune.files import find_search
from proxima.tune.plan import Watch
from proxima.tune.run import resume_search, start_search

RATE = "ppo.learning_rate"
SILENT = Watch(lambda text: None, lambda standing: None)


class Killed(BaseException):
    """Ends a search as a kill does."""


def scenario(output: str, **search):
    wanted = {"space": {RATE: "log:1e-5:1e-2"}, "method": "random", "configs": 3, "confirm": 0}
    return load(
        "movie_critic", texts.TINY | {"output_directory": output, "search": wanted | search}
    )


def test_killed_between_and_inside_experiments_it_is_the_same_search(workdir, monkeypatch):
    texts.write_texts(workdir)
    files, whole = start_search(scenario("whole"), SILENT)
    assert len(whole.configurations) == 3 and whole.metric == "eval/reward"
    assert all(each.state == "done" and each.curve for each in whole.configurations)
    assert whole.configurations[whole.chosen].value == max(c.value for c in whole.configurations)

    made, experiment = [], sequence.experiment

    def dying(*arguments):
        made.append(arguments)
        summary = experiment(*arguments)
        if len(made) == 2:  # the second experiment has ended, but nobody was told
            raise Killed
        return summary

    monkeypatch.setattr(sequence, "experiment", dying)
    with pytest.raises(Killed):
        start_search(scenario("killed"), SILENT)
    killed = resume_search(find_search("movie_critic", "killed"), SILENT)
    assert len(made) == 4
    assert killed.configurations == whole.configurations and killed.chosen == whole.chosen
    assert (files.root / "best.yaml").is_file()


def test_a_search_that_names_no_method_takes_one_that_its_trainings_can_follow(workdir):
    assert search_of(scenario("logs", method="auto")).method == "random"
    lanes = load("cartpole", {"search": {"space": {"algorithm.gamma": "0.9:0.99"}}})
    assert lanes.search.method == "auto" and search_of(lanes).method == "asha"


@pytest.mark.parametrize("method", ["asha", "pbt"])
def test_methods_that_stop_half_way_are_refused(method, workdir):
    with pytest.raises(ProximaError, match="stops and copies trainings half-way"):
        start_search(scenario("logs", method=method), SILENT)
