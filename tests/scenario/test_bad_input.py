"""Mistakes and mishaps through the real command line: a message in words, an exit code, nothing lost."""

import json
import textwrap
from pathlib import Path

import numpy as np
import pytest
from tiny import BUDGET, TINY, flags, read, run_main, run_process, tensors_of

from proxima.scenario import load
from proxima.train import checkpoint

SMALL = ["--scenario", "cartpole", *flags(*TINY), "--max-steps", "640"]


@pytest.fixture
def proxima(workdir, capsys, monkeypatch):
    """The command line in an empty directory."""
    return lambda *arguments: run_main(arguments, capsys, monkeypatch)


def written(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


YAML = {
    "unreadable.yaml": "env:\n\tname: CartPole-v1\n",
    "binary.yaml": "env:\n  name: CartPole\x00-v1\n",
    "list.yaml": "- env\n",
    "typed.yaml": "algorithm:\n  gamma: high\n",
    "object.yaml": "env: !!python/object:os.system {}\n",
}
MISTAKES = {
    "nothing named": ([], ["proxima experiment NAME", "--config"]),
    "both named": (["--scenario", "cartpole", "--config", "list.yaml"], ["name one scenario"]),
    "unknown scenario": (["--scenario", "cartpol"], ["cartpol", "did you mean cartpole"]),
    "unknown key": (
        ["--scenario", "cartpole", "--set", "algorithm.learning_rat=1"],
        ["algorithm.learning_rat", "did you mean learning_rate"],
    ),
    "unknown section": (
        ["--scenario", "cartpole", "--set", "algoritm.gamma=0.9"],
        ["algoritm", "algorithm"],
    ),
    "wrong type": (
        ["--scenario", "cartpole", "--set", "algorithm.gamma=high"],
        ["algorithm.gamma", "a number", '"high"'],
    ),
    "out of range": (
        ["--scenario", "cartpole", "--set", "algorithm.gamma=1.5"],
        ["algorithm.gamma", "1.5", "at most 1"],
    ),
    "minibatches that do not divide the batch": (
        ["--scenario", "cartpole", "--set", "algorithm.minibatch_size=300"],
        ["algorithm.batch_size", "1024", "algorithm.minibatch_size (300)", "nearest that work"],
    ),
    "no budget": (
        ["--scenario", "cartpole", "--set", "training.max_steps=null"],
        ["training.max_steps", "training.max_episodes", "never end"],
    ),
    "no trials": (["--scenario", "cartpole", "--trials", "0"], ["trials", "at least 1"]),
    "malformed override": (
        ["--scenario", "cartpole", "--set", "gamma"],
        ["gamma", "section.key=value"],
    ),
    "missing file": (["--config", "absent.yaml"], ["absent.yaml", "no such file"]),
    "a directory": (["--config", "."], ["is a directory"]),
    "tabs": (["--config", "unreadable.yaml"], ["unreadable.yaml", "line 2", "spaces, not tabs"]),
    "control characters": (["--config", "binary.yaml"], ["binary.yaml", "line 2"]),
    "not a mapping": (["--config", "list.yaml"], ["list.yaml"]),
    "wrong type in a file": (["--config", "typed.yaml"], ["typed.yaml", "algorithm.gamma"]),
    "code in a file": (["--config", "object.yaml"], ["object.yaml", "line 1", "not allowed"]),
    "unknown environment": (
        ["--scenario", "cartpole", "--set", "env.name=CartPol-v1"],
        ["env.name", "CartPol-v1", "CartPole-v1"],
    ),
    "unknown host environment": (
        ["--scenario", "cartpole_host", "--set", "env.name=CartPol-v1"],
        ["env.name", "CartPol-v1", "CartPole-v1"],
    ),
    "a distribution that does not fit": (
        ["--scenario", "cartpole", "--set", "network.distribution=normal"],
        ["network.distribution", "discrete", "categorical"],
    ),
    "a net that does not fit": (
        ["--scenario", "maze_ppo", "--set", "network.kind=attention"],
        ["network.kind", "ems", "items", "use mlp"],
    ),
    "a net that the domain does not have": (
        ["--scenario", "cartpole", "--set", "network.kind=attention"],
        ["network.kind", "attention", "must be mlp"],
    ),
    "positions that would be normalised": (
        ["--scenario", "maze_ppo", "--set", "algorithm.normalize_observations=true"],
        ["algorithm.normalize_observations", "grid", "network.kind to mlp"],
    ),
    "heads that do not divide the width": (
        ["--scenario", "binpack_ppo", "--set", "network.width=30"],
        ["network.width", "30", "network.heads (4)", "take 32"],
    ),
    "search where nothing can be copied": (
        ["--scenario", "cartpole_host", "--set", "algorithm.name=spo"],
        ["algorithm.name", "copies", "gymnax", "ppo"],
    ),
    "unknown packing environment": (
        ["--scenario", "maze_ppo", "--set", "env.name=Maz-v0"],
        ["env.name", "Maz-v0", "Maze-v0"],
    ),
    "unwritable directory": (
        ["--scenario", "cartpole", "--set", "output_directory=list.yaml/x"],
        ["list.yaml/x", "cannot write", "output_directory"],
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_in_words_and_leaves_nothing_behind(mistake, proxima, workdir):
    arguments, words = MISTAKES[mistake]
    for name, text in YAML.items():
        (workdir / name).write_text(text)
    said = proxima("experiment", "--json", "--no-mlflow", *arguments)
    assert said.code == 1
    assert said.out == ""
    assert said.err.startswith("Error: ")
    for word in words:
        assert word in said.err
    assert "Traceback" not in said.err and "--debug" not in said.err
    assert sorted(path.name for path in written(workdir)) == sorted(YAML)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["resume", "nothing"], ["nothing", "no runs in logs"]),
        (["evaluate", "nothing"], ["nothing", "no runs in logs"]),
        (["compare", "nothing", "nowhere"], ["nothing", "no runs in logs"]),
        (["scenarios", "cartpol"], ["did you mean cartpole"]),
    ],
)
def test_commands_about_runs_that_are_not_there(arguments, words, proxima):
    said = proxima(*arguments)
    assert said.code == 1 and said.out == ""
    assert all(word in said.err for word in words)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["experiment", "--trails", "3"], "--trails"),
        (["experiment", "--trials", "many"], "--trials"),
        (["evaluate", "cartpole", "--episodes", "0"], "--episodes"),
        (["train"], "train"),
        (["resume"], "RUN"),
    ],
)
def test_wrong_usage_is_told_with_exit_two(arguments, word, proxima):
    said = proxima(*arguments)
    assert said.code == 2
    assert word in said.err and "Usage" in said.err
    assert "Traceback" not in said.err and "not a mistake of yours" not in said.err


def test_debug_shows_where_an_error_came_from(workdir):
    arguments = ["experiment", "--scenario", "cartpol"]
    plain = run_process(arguments, workdir)
    assert plain.code == 1 and "Traceback" not in plain.err
    assert plain.err.startswith("Error: cartpol")
    shown = run_process([*arguments, "--debug"], workdir)
    assert shown.code == 1
    assert "Traceback" in shown.err and "ProximaError: cartpol" in shown.err


def test_an_error_of_ours_says_how_to_see_more(proxima, monkeypatch):
    monkeypatch.setattr("proxima.scenario.load", lambda *_: 1 / 0)
    said = proxima("experiment", "--scenario", "cartpole")
    assert said.code == 1 and said.out == ""
    assert "ZeroDivisionError" in said.err and "--debug" in said.err
    with pytest.raises(ZeroDivisionError):
        proxima("experiment", "--scenario", "cartpole", "--debug")


def test_a_tracking_server_that_is_away_does_not_end_the_run(proxima, workdir):
    away = "http://127.0.0.1:9"
    settings = flags("tracking.enabled=true", f"tracking.uri={away}")
    said = proxima("experiment", *SMALL, *settings, "--json")
    assert said.code == 0
    summary = json.loads(said.out)
    assert said.err.count(f"MLflow tracking at {away} stopped") == 1, said.err
    assert "tracking.uri" in said.err and "Traceback" not in said.err
    assert away in summary["tracking_error"]
    assert summary["trials"][0]["environment_steps"] == 640
    assert summary == read(workdir / "logs" / "cartpole" / "summary.json")
    assert not (workdir / "mlflow.db").exists()


ENVIRONMENT = """
    import os
    import gymnasium
    import numpy as np


    class Faulty(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
        action_space = gymnasium.spaces.Discrete(2)

        def __init__(self, raises_at=None, bad_seed=None):
            self.raises_at, self.bad_seed, self.is_bad = raises_at, bad_seed, False
            self.total, self.time = 0, 0

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.time = 0
            self.is_bad |= seed is not None and seed == self.bad_seed
            return self.np_random.uniform(-1, 1, 4).astype(np.float32), {}

        def step(self, action):
            self.time, self.total = self.time + 1, self.total + 1
            if self.total == self.raises_at and not os.path.exists("mended"):
                raise ValueError("the left wheel came off")
            obs = self.np_random.uniform(-1, 1, 4).astype(np.float32)
            worth = float("nan") if self.is_bad and self.total > 100 else 1.0
            return obs, worth, self.time >= 10, False, {}


    gymnasium.register("Faulty-v0", Faulty)
"""


@pytest.fixture
def faulty(workdir, monkeypatch):
    """A Gymnasium environment in a module of the user's own."""
    (workdir / "faulty_environment.py").write_text(textwrap.dedent(ENVIRONMENT))
    monkeypatch.syspath_prepend(workdir)
    settings = [*BUDGET, "env.name=faulty_environment:Faulty-v0", "env.max_steps_per_episode=null"]
    return ["experiment", "--scenario", "cartpole_host", *flags(*settings), "--max-steps", "640"]


def test_an_environment_that_raises_is_named_and_what_was_saved_stays(faulty, proxima, workdir):
    settings = flags("env.params={raises_at: 120}", "checkpoint.frequency=2")
    said = proxima(*faulty, *settings, "--json")
    assert said.code == 1 and said.out == ""
    assert "Faulty-v0: environment 0" in said.err and "the left wheel came off" in said.err
    assert "ValueError" in said.err and "Traceback" not in said.err

    run = workdir / "logs" / "cartpole_host" / "latest"
    assert read(run / "run.json")["status"] == "failed"
    assert checkpoint.available_steps(run / "trial_0") == [256, 384]
    assert f"proxima resume {run.resolve().name}" in said.err

    (workdir / "mended").touch()
    said = proxima("resume", run.resolve().name, "--json")
    assert said.code == 0
    assert json.loads(said.out)["trials"][0]["environment_steps"] == 640


def test_a_trial_whose_loss_is_no_number_stops_alone(faulty, proxima, workdir):
    from proxima.train.host.program import _training_seed

    bad_seed = _training_seed(0, 0, 0)  # the first environment of the first trial
    settings = flags(
        *("trials=2", f"env.params={{bad_seed: {bad_seed}}}"),
        *("checkpoint.frequency=2", "checkpoint.keep=10"),
    )
    said = proxima(*faulty, *settings, "--json")
    assert said.code == 0, said.err
    summary = json.loads(said.out)
    broken, healthy = summary["trials"]
    # 16 steps of an environment per update: the 101st is in the seventh update
    assert broken["stopped"] == "nan" and broken["nan_at_step"] == 7 * 64
    assert healthy["stopped"] == "budget" and healthy["environment_steps"] == 640
    assert healthy["nan_at_step"] is None
    assert summary["aggregate"]["n"] == 1 and summary["aggregate"]["failed"] == 1
    assert summary["aggregate"]["iqm"] == healthy["evaluation"]["return_mean"]

    trial = workdir / "logs" / "cartpole_host" / "latest" / "trial_0"
    assert f"{Path(summary['paths']['run']) / 'trial_0' / 'checkpoints'}" in said.err
    assert "Trial 0" in said.err and "after step 448" in said.err and "Trial 1" not in said.err
    last, good = tensors_of(trial), tensors_of(trial, "step_000000000384")
    learner = [name for name in last if name.startswith("learner")]
    assert learner and all(np.array_equal(last[name], good[name]) for name in learner)
    assert all(np.isfinite(each).all() for each in last.values())


def test_when_every_loss_is_no_number_the_command_fails(proxima, workdir):
    said = proxima("experiment", *SMALL, "--set", "algorithm.learning_rate=1e30", "--json")
    assert said.code == 1
    summary = json.loads(said.out)
    (results,) = summary["trials"]
    assert results["stopped"] == "nan" and results["nan_at_step"] == 64
    assert summary["aggregate"]["iqm"] is None
    run = workdir / "logs" / "cartpole" / "latest"
    assert summary == read(run / "summary.json")

    where = str(Path(summary["paths"]["run"]) / "trial_0" / "checkpoints")
    assert "Trial 0" in said.err and "after step 64" in said.err and where in said.err
    assert "algorithm.learning_rate" in said.err and "Traceback" not in said.err
    assert "Error: no trial came through" in said.err

    tensors = tensors_of(run / "trial_0")
    assert all(np.isfinite(each).all() for each in tensors.values())
    found = proxima("evaluate", str(run / "trial_0"), "--episodes", "4", "--json")
    assert found.code == 0
    assert json.loads(found.out)["evaluation"]["returns"] == results["evaluation"]["returns"]


def test_a_name_that_would_leave_the_output_directory_is_refused(proxima, workdir):
    assert load("cartpole").name == "cartpole"
    said = proxima("experiment", "--scenario", "cartpole", "--set", "name=../elsewhere")
    assert said.code == 1 and "name" in said.err and said.out == ""
    assert written(workdir) == []
