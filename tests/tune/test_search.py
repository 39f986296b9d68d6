"""Whole searches, small: the same when stopped anywhere and resumed, for every method."""

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from lanes import LAMBDA, RATE, SPACE, small

import proxima
from proxima import load
from proxima.core.errors import ProximaError
from proxima.core.seeds import trial_seeds
from proxima.run.files import read_json
from proxima.scenario import changed, dump, to_mapping
from proxima.tune import store
from proxima.tune.files import SearchFiles, find_search
from proxima.tune.outcomes import best_first
from proxima.tune.plan import (
    CHOOSING_ROLE,
    TUNING_ROLE,
    Standing,
    Watch,
    prepare_search,
    seeds_of,
)
from proxima.tune.run import load_scenario, read_result, resume_search, start_search

METHODS = ["random", "grid", "sobol", "asha", "tpe", "cma-es", "pbt"]
SILENT = Watch(lambda text: None, lambda standing: None)
SIZES = {
    "grid": {"points": 3},
    "pbt": {"configs": 4},
    "tpe": {"generation": 4},
    "cma-es": {"generation": 4},
}


class Killed(BaseException):
    """Ends a search as a kill does: nothing more is saved."""


def scenario_of(method: str, **more):
    wanted = {"method": method, "configs": 12, "evaluations": 4} | SIZES.get(method, {}) | more
    return small(**wanted)


def content(files: SearchFiles) -> dict:
    """What a search came to, without what differs between two of them."""
    result = read_json(files.result)
    return {key: value for key, value in result.items() if key not in ("seconds", "search_id")}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Searches that nobody disturbed, by method; `whole.standings` has what was shown of each."""
    known: dict[str, SearchFiles] = {}
    standings: dict[str, list[Standing]] = {}

    def of(method: str) -> SearchFiles:
        if method not in known:
            folder = tmp_path_factory.mktemp(method)
            scenario = changed(scenario_of(method), {"output_directory": str(folder)}, "test")
            standings[method] = []
            watch = SILENT._replace(show=standings[method].append)
            known[method], _ = start_search(scenario, watch)
        return known[method]

    of.standings = standings
    return of


@pytest.mark.parametrize("method", METHODS)
def test_killed_at_any_chunk_and_resumed_it_is_the_same_search(method, whole, workdir, monkeypatch):
    """Every third chunk is saved and every fifth one killed, so that most kills lose something."""
    chunks, often = 0, 3 if method == "pbt" else 5

    def killing(standing) -> None:
        nonlocal chunks
        chunks += 1
        if chunks % often == 0:
            raise Killed

    monkeypatch.setattr(store.Store, "is_due", lambda self: chunks % 3 == 0)
    with pytest.raises(Killed):
        start_search(scenario_of(method), SILENT._replace(show=killing))
    files = find_search("pendulum")
    for _ in range(100):
        try:
            resume_search(files, SILENT._replace(show=killing))
            break
        except Killed:
            continue
    assert chunks > often
    assert content(files) == content(whole(method))
    best, undisturbed = (to_mapping(load(each.best)) for each in (files, whole(method)))
    assert best | {"output_directory": ""} == undisturbed | {"output_directory": ""}


@pytest.mark.parametrize("method", METHODS)
def test_every_method_finds_settings(method, whole):
    result = read_result(whole(method))
    assert result.method == method
    assert len(result.configurations) == {"grid": 9, "pbt": 4}.get(method, 12)
    for each in result.configurations:
        assert 1e-4 <= each.settings[RATE] <= 1e-1 and 0.5 <= each.settings[LAMBDA] <= 1.0
        assert each.curve[-1][0] == each.steps
    best = best_first(result)[0]
    assert best.number == result.chosen and best.steps == 640
    assert best.value == max(c.value for c in result.configurations if c.state == "done")


@pytest.mark.parametrize("method", METHODS)
def test_what_is_done_never_becomes_less(method, whole):
    whole(method)
    shown = [(each.done, each.steps) for each in whole.standings[method] if each.phase == "search"]
    for before, after in pairwise(shown):
        assert before[0] <= after[0] and before[1] <= after[1]
    assert shown[-1][0] == whole.standings[method][0].total


def test_the_same_seed_gives_the_same_search_and_another_seed_another(whole, tmp_path):
    settings = {"output_directory": str(tmp_path)}
    again, _ = start_search(changed(scenario_of("random"), settings, "test"), SILENT)
    assert content(again) == content(whole("random"))
    other, _ = start_search(changed(scenario_of("random", seed=2), settings, "test"), SILENT)
    assert content(other)["configurations"] != content(whole("random"))["configurations"]


def test_lanes_and_neighbours_do_not_change_a_configuration(whole, tmp_path):
    """The same configurations in another order, by a table: every curve is the same to the bit."""
    known = {tuple(c.settings.items()): c for c in read_result(whole("random")).configurations}
    rows = list(known)
    random.Random(1).shuffle(rows)
    lines = [f"{RATE},{LAMBDA}", *(f"{dict(row)[RATE]!r},{dict(row)[LAMBDA]!r}" for row in rows)]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    scenario = scenario_of("table", path=str(tmp_path / "rows.csv"), space={})
    _, result = start_search(changed(scenario, {"output_directory": str(tmp_path)}, "test"), SILENT)
    for each in result.configurations:
        before = known[tuple(each.settings.items())]
        assert (each.curve, each.values) == (before.curve, before.values)


def test_pbt_keeps_its_lineage(whole):
    result = read_result(whole("pbt"))
    assert (
        len(result.copies) == 3
    )  # one of four members is replaced after each evaluation but the last
    assert {copy.steps for copy in result.copies} == {128, 320, 448}
    for copy in result.copies:
        assert copy.member != copy.source and set(copy.settings) == set(SPACE)


def test_pbt_refuses_a_metric_that_nobody_records(workdir):
    with pytest.raises(ProximaError, match=r"search.metric: eval/retrun_mean is not recorded"):
        start_search(scenario_of("pbt", metric="eval/retrun_mean"), SILENT)


def test_a_population_of_one_has_nobody_to_copy(workdir):
    _, result = start_search(scenario_of("pbt", configs=1), SILENT)
    assert result.chosen == 0 and result.copies == ()


def test_tuning_choosing_and_test_seeds_are_apart():
    scenario = scenario_of("random")
    tuning = seeds_of(scenario, scenario.search, TUNING_ROLE, 1000)
    choosing = seeds_of(scenario, scenario.search, CHOOSING_ROLE, 1000)
    test = trial_seeds(scenario.seed, 10_000)
    assert len({*tuning, *choosing, *test}) == 12_000


def test_the_best_few_are_run_again_and_the_best_is_tested_beside_the_scenarios_own(workdir):
    scenario = scenario_of("random", confirm=2, configs=6)
    files, result = start_search(scenario, SILENT)
    assert [each.number for each in result.choosing] == [c.number for c in best_first(result)[:2]]
    means = [np.mean(each.values) for each in result.choosing]
    assert result.chosen == result.choosing[int(np.argmax(means))].number
    best, own = result.test
    assert (best.number, own.number) == (result.chosen, None)
    assert best.seeds == own.seeds == tuple(range(6)) and len(best.values) == 6
    summary = json.loads((files.root / "test" / "own" / "summary.json").read_text())
    assert [t["evaluation"]["return_mean"] for t in summary["trials"]] == list(own.values)
    shipped = load(files.best)
    assert shipped.tried == 6 and shipped.search is None
    assert shipped.algorithm.learning_rate == result.configurations[result.chosen].settings[RATE]
    assert (files.root / "report.html").is_file()


def test_a_configuration_that_breaks_down_counts_as_the_worst_and_is_listed(workdir):
    scenario = scenario_of("random", space={RATE: "log:1e-3:1e30"}, configs=8)
    _, result = start_search(scenario, SILENT)
    broken = [each for each in result.configurations if each.state == "broken"]
    assert broken and all(each.value is None for each in broken)
    assert result.configurations[result.chosen].state == "done"


def test_contradictions_inside_the_space_are_drawn_around(workdir):
    size = "algorithm.minibatch_size"
    scenario = scenario_of("random", space={RATE: "log:1e-3:1e-2", size: "int:8:64"}, configs=4)
    _, result = start_search(scenario, SILENT)
    assert all(64 % each.settings[size] == 0 for each in result.configurations)
    assert result.programs == len({each.settings[size] for each in result.configurations})


def test_on_the_host_too_asha_is_the_same_when_killed(workdir, monkeypatch):
    def scenario(output: str):
        wanted = small("cartpole_host", method="asha", configs=5, evaluations=3, lanes=2)
        return changed(wanted, {"output_directory": output}, "test")

    chunks = 0

    def killing(standing) -> None:
        nonlocal chunks
        chunks += 1
        if chunks == 3:
            raise Killed

    files, _ = start_search(scenario("whole"), SILENT)
    monkeypatch.setattr(store.Store, "is_due", lambda self: chunks == 2)
    with pytest.raises(Killed):
        start_search(scenario("killed"), SILENT._replace(show=killing))
    killed = find_search("cartpole_host", "killed")
    resume_search(killed, SILENT)
    assert content(killed) == content(files)


@pytest.mark.parametrize("method", METHODS)
def test_killed_by_a_signal_and_resumed(method, whole, workdir):
    """The command line, killed with SIGKILL at a moment of nobody's choosing, then resumed here."""
    scenario = scenario_of(method)
    (workdir / "pendulum.yaml").write_text(dump(scenario))
    command = [sys.executable, "-c", "from proxima.cli import main; main()", "tune"]
    process = subprocess.Popen([*command, "--config", "pendulum.yaml"], stdout=subprocess.DEVNULL)
    latest = workdir / "logs" / "pendulum" / "tune" / "latest"
    _wait_for(lambda: any(latest.glob("search/checkpoints/step_*")), process)
    time.sleep(random.Random(method).random() * 0.2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    files = find_search("pendulum")
    resume_search(files, SILENT)
    assert content(files) == content(whole(method))


def _wait_for(condition, process, seconds: float = 120.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("search", "words"),
    [
        ({"space": {}}, "search.space: is empty"),
        ({"space": {"algorithm.lerning_rate": "0:1"}}, "unknown key; did you mean learning_rate"),
        (
            {"space": {"algorithm.gae_lambda": "0.5:1.5"}},
            "gae_lambda: 1.* is not allowed: must be at most 1",
        ),
        ({"space": {"algorithm.minibatch_size": "8:64"}}, "whole number.*write int:LOW:HIGH"),
        ({"space": {"training.max_steps": "int:100:200"}}, "cannot vary"),
        ({"space": {"seed": "int:0:9"}}, "cannot vary"),
        ({"space": {"algorithm": "0:1"}}, "is a section; name a setting in it"),
        ({"space": {RATE: "log:1e-3:1e-2"}, "objective": "steps_to_target"}, "needs a target"),
        (
            {"space": {"algorithm.minibatch_size": [8, 16]}, "method": "pbt"},
            "pbt copies one member",
        ),
        ({"space": {"algorithm.minibatch_size": [7, 9]}}, "not a multiple"),
    ],
)
def test_what_cannot_be_searched_is_refused_in_words_and_leaves_nothing_behind(
    search, words, workdir
):
    with pytest.raises(ProximaError, match=words):
        start_search(small(**search), SILENT)
    assert not Path("logs").exists()


def test_a_range_that_is_none_is_refused_where_the_scenario_is_read():
    with pytest.raises(ProximaError, match=r"search.space.algorithm.gae_lambda: 1:0.5 is empty"):
        small(space={LAMBDA: "1:0.5"})


def test_a_finished_search_is_only_read(whole, capsys):
    files, said = whole("random"), []
    again = resume_search(files, SILENT._replace(say=said.append))
    assert "is finished" in said[0] and again == read_result(files)
    assert load_scenario(files).search.method == "random"


def test_an_objective_may_be_minimised_and_reach_a_target(workdir):
    _, lowest = start_search(scenario_of("random", direction="minimise", configs=5), SILENT)
    values = [each.value for each in lowest.configurations]
    assert lowest.configurations[lowest.chosen].value == min(values)
    wanted = scenario_of("random", objective="steps_to_target", configs=5)
    wanted = changed(wanted, {"convergence.target_reward": -1200}, "test")
    _, quickest = start_search(wanted, SILENT)
    assert all(128 <= each.value <= 1280 for each in quickest.configurations)
    assert quickest.configurations[quickest.chosen].value == min(
        each.value for each in quickest.configurations
    )
    assert not math.isnan(quickest.seconds) and os.path.isdir("logs")


def test_a_program_searches_too(workdir, capsys):
    result = proxima.search_settings(scenario_of("random", configs=2), progress=True)
    assert len(result.configurations) == 2 and "2 of 2 configurations" in capsys.readouterr().err


def test_a_search_that_is_only_planned_writes_nothing(workdir):
    search = prepare_search(scenario_of("random"), SILENT)
    assert (search.configs, search.width) == (12, 4)
    assert not list(workdir.iterdir())
