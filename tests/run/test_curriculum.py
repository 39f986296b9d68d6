"""Runs with a curriculum: what is recorded, judged, drawn and said of its levels; every kind of algorithm."""

from pathlib import Path

import jax
import pytest
from page_reader import read as read_page
from tiny import SIZES, SMALL, TINY, read, rows_of
from tracing import traced_update

from proxima import load, run_multiple_experiments
from proxima.domains.judging import closing

LEVELS = "curriculum={by: progress, parameters: {length: [0.5, 0.25, 0.1]}, beyond: {length: [1]}}"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Three trials that share their programs with those that are killed and resumed elsewhere."""
    output = tmp_path_factory.mktemp("levels")
    settings = [*TINY, "trials=3", LEVELS, "training.max_steps=1024", f"output_directory={output}"]
    return run_multiple_experiments(load("cartpole", settings))


def test_the_level_is_recorded_with_every_chunk(run):
    for trial in run.trials:
        rows = rows_of(Path(run.paths["run"]) / f"trial_{trial.trial}")
        levels = [row["curriculum/level"] for row in rows]
        assert levels[0] == pytest.approx(2.0)  # nothing known: all as likely
        assert all(1.0 <= level <= 3.0 for level in levels) and len(set(levels)) > 2


def test_results_have_the_returns_on_every_level_and_beyond(run):
    lengths = [0.5, 0.25, 0.1, 1.0]
    assert [level.parameters["length"] for level in run.levels] == lengths
    assert [level.beyond for level in run.levels] == [False, False, False, True]
    for index, level in enumerate(run.levels):
        means = [trial.levels[index].return_mean for trial in run.trials]
        assert level.returns.n == 3 and min(means) <= level.returns.iqm <= max(means)
        assert len({trial.levels[index].random for trial in run.trials}) == 1
    # the first level is the task itself: the same episodes, played by the same policy
    for trial in run.trials:
        assert trial.levels[0].return_mean == trial.evaluation.return_mean
        assert trial.levels[0].random == trial.random.return_mean
    randoms = [level.random.iqm for level in run.levels]
    assert len(set(randoms)) > 1, "levels are different tasks"
    assert read(Path(run.paths["run"]) / "summary.json")["levels"][3]["beyond"] is True


def test_the_console_and_the_page_say_what_came_of_the_levels(run):
    lines = closing(run).lines
    assert any(line.startswith("Trained levels, greedy return: length 0.5: ") for line in lines)
    assert any(line.startswith("Beyond them, greedy return: length 1: ") for line in lines)
    page = read_page((Path(run.paths["run"]) / "report.html").read_text(encoding="utf-8"))
    for words in ("Curriculum", "beyond 1", "length 0.25", "Every episode", "never trained on"):
        assert words in page.words, words
    for name in ("curriculum.png", "returns_by_level.png"):
        assert (Path(run.paths["plots"]) / name).stat().st_size > 1000


PARAMETERS = {"pendulum_ddpg": "l", "cartpole_spo": "length", "acrobot_dqn": "link_length_1"}
SMALLER = SIZES | {"dqn": ("algorithm.batch_size=16", "algorithm.buffer_size=320")}


@pytest.mark.parametrize("name", PARAMETERS)
def test_every_algorithm_updates_over_levels(name):
    """Traced, not run: what a search steps ahead in is an environment with levels too."""
    levels = f"curriculum={{by: steps, parameters: {{{PARAMETERS[name]}: [1, 2]}}}}"
    sizes = SMALLER[name.rpartition("_")[2]]
    scenario = load(name, [*SMALL, *sizes, levels])
    state, after, metrics = traced_update(scenario)
    assert jax.tree.structure(after) == jax.tree.structure(state)
    assert metrics["curriculum/level"].shape == ()
    assert state.actors.env_state.level.shape == (scenario.env.num_envs,)
