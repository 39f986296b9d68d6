"""Runs that are interrupted, and those that nobody disturbed to compare them with: a case of every kind."""

import json
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import texts
from checkpoints import common_step
from safetensors.numpy import load_file
from tiny import (
    BUDGET,
    ROWS,
    SIZES,
    SMALL,
    TINY,
    equal_bits,
    flags,
    read,
    results_of,
    rows_of,
    stop_at_row,
    without_hidden,
)

from proxima import load, resume_experiment, run_multiple_experiments
from proxima.build import domain_of
from proxima.run.display import silent


class Case:
    """A scenario as the command line and as a call run it."""

    def __init__(self, name: str, *settings: str):
        self.name, self.settings = name, settings

    def command(self) -> list[str]:
        return ["experiment", "--scenario", self.name, *flags(*self.settings)]

    def uninterrupted(self, output: Path) -> Path:
        """The directory of a run that nobody disturbed, within this process."""
        scenario = load(self.name, [*self.settings, f"output_directory={output}"])
        return Path(run_multiple_experiments(scenario)["paths"]["run"])


def latest(workdir: Path, case: Case) -> Path:
    return (workdir / "logs" / case.name / "latest").resolve()


def check_same(run: Path, whole: Path, but: str = "") -> None:
    """Whether weights, results and metrics are those of the uninterrupted run, of every stage.

    `but` names an array of checkpoints that may differ.
    """
    assert read(run / "run.json")["status"] == "finished"
    trials = sorted(path.parent for path in whole.glob("trial_*/results.json"))
    assert trials and len(trials) == len(list(run.glob("trial_*/results.json")))
    for trial in trials:
        assert results_of(run / trial.name) == results_of(trial)
    for metrics in whole.glob("trial_*/**/metrics.jsonl"):
        folder = metrics.parent.relative_to(whole)
        assert rows_of(run / folder) == rows_of(whole / folder), folder
    weights = weights_of(whole)
    assert weights and weights_of(run).keys() == weights.keys()
    for name, path in weights_of(run).items():
        mine, theirs = load_file(path), load_file(weights[name])
        assert equal_bits(mine | {but: theirs[but]} if but in theirs else mine, theirs), name
    for path in whole.rglob("*.parquet"):
        assert (run / path.relative_to(whole)).read_bytes() == path.read_bytes(), path.name
    found, expected = read(run / "summary.json"), read(whole / "summary.json")
    for name in ("aggregate", "sampled", "baselines", "scores", "figures", "details"):
        assert found[name] == expected[name], name


def weights_of(run: Path) -> dict[str, Path]:
    """Exported models and policies, and what the links `last` and `best` point to, by their names."""
    links = [
        path
        for link in ("last", "best")
        for path in run.glob(f"trial_*/**/checkpoints/{link}/*.safetensors")
    ]
    exported = [
        path
        for path in run.glob("trial_*/**/*.safetensors")
        if not any(part.startswith("step_") for part in path.parts)
    ]
    return {str(path.relative_to(run)): path for path in (*links, *exported)}


class Kind(NamedTuple):
    """A kind of run, and when it is stopped."""

    case: Case
    steps: int  # of the whole run, or of the stage in which it is stopped
    rows: tuple[int, ...]  # of metrics after which it is killed, time after time
    stage: str = ""
    saves_every: int = 1  # steps; what a run resumes from is a multiple
    begins_at: int = 1  # the kill must come after that step
    prepare: Callable[[Path], object] = lambda directory: None  # data in a working directory
    exact: bool = True  # resumes from any chunk, not only from saves that were due


def kind(name: str, steps: int, rows: tuple[int, ...], *settings: str, **more) -> Kind:
    return Kind(Case(name, *settings, f"training.max_steps={steps}", "seed=3"), steps, rows, **more)


def generate(directory: Path, name: str = "sine_wave_ddpg") -> None:
    scenario = load(name, [ROWS])
    domain_of(scenario).data.generate(scenario, directory)


MEMORY = ("network.memory=lstm", "network.memory_size=4")
OFTEN, SELDOM = "checkpoint.frequency=1", "checkpoint.frequency=7"
PENDULUM = (
    *SMALL,
    *SIZES["ddpg"],
    "env.max_steps_per_episode=21",
    "algorithm.buffer_size=600",  # is overwritten from its start within the run
    "algorithm.warmup_steps=100",
    "algorithm.gradient_steps=null",
    "algorithm.normalize_observations=true",
    "algorithm.exploration=ou",
    "evaluation.eval_frequency=20",
)
# Episodes that end while samples of three steps wait, and a ring that is overwritten within the run.
ACROBOT = (
    *SMALL,
    *SIZES["dqn"],
    "env.max_steps_per_episode=21",
    "algorithm.buffer_size=600",
    "algorithm.n_step=3",
    "algorithm.normalize_observations=true",
    "evaluation.eval_frequency=20",
)
FIELDS = (
    *BUDGET,
    SELDOM,
    "env.groups=2",
    "env.name=known_envs:TestMasked-v0",
    "env.max_steps_per_episode=null",
    "env.workers=2",
    "algorithm.normalize_observations=true",
)
PACKING = (
    *without_hidden(BUDGET),
    OFTEN,
    "env.params={max_num_items: 4, max_num_ems: 6}",
    "env.instances=8",
    "network={blocks: 1, heads: 2, width: 8}",
    "evaluation.eval_frequency=20",
)
LEVELS = "curriculum={by: progress, parameters: {length: [0.5, 0.25, 0.1]}, beyond: {length: [1]}}"
LANGUAGE = tuple(f"{key}={json.dumps(value)}" for key, value in texts.TINY.items())
HOST = {"saves_every": 7 * 64, "exact": False}
KINDS = {
    "ppo": kind("cartpole", 4096, (15, 40), *TINY, OFTEN),
    "ppo with memory, three trials": kind(  # each at its own level
        *("cartpole", 2048, (12,), *TINY, *MEMORY, "trials=3", "checkpoint.frequency=3", LEVELS),
        saves_every=3 * 64,
    ),
    "gymnasium": kind("cartpole_host", 2048, (12,), *BUDGET, SELDOM, **HOST),
    "gymnasium, with a policy lag": kind(  # two updates a chunk: environments step beside the first
        *("cartpole_host", 4096, (12,), *TINY, SELDOM),
        *("training.policy_lag=1", "training.updates_per_chunk=2"),
        **(HOST | {"saves_every": 7 * 128}),
    ),
    "envpool, with memory": kind(
        "cartpole_envpool", 2048, (12,), *BUDGET, *MEMORY, SELDOM, "env.groups=2", **HOST
    ),
    "fields in workers": kind("cartpole_host", 2048, (12,), *FIELDS, **HOST),
    "td3": kind("pendulum_td3", 1600, (50,), *PENDULUM, OFTEN, begins_at=600),
    "td3, gymnasium": kind(
        *("pendulum_td3", 1600, (20,), *PENDULUM, SELDOM, "env.backend=gymnasium"),
        **(HOST | {"saves_every": 7 * 16}),
    ),
    "sac, gymnasium": kind(
        *("pendulum_sac", 1600, (20,), *SMALL, *SIZES["sac"], SELDOM, "env.backend=gymnasium"),
        *("env.max_steps_per_episode=21", "algorithm.noise_correlation=0.5"),
        **(HOST | {"saves_every": 7 * 16}),
    ),
    "dqn": kind(
        *("acrobot_dqn", 1600, (50,), *ACROBOT, OFTEN, "algorithm.prioritized=true"),
        begins_at=600,
    ),
    "spo": kind(
        *("cartpole_spo", 1600, (25,), *SMALL, *SIZES["spo"], OFTEN),
        "algorithm.normalize_observations=true",
        begins_at=320,
    ),
    "trading": kind(
        *("sine_wave_ddpg", 1200, (40,), *SMALL, *SIZES["ddpg"], ROWS, OFTEN),
        *("env.max_steps_per_episode=32", "evaluation.eval_frequency=1"),
        begins_at=300,
        prepare=generate,
    ),
    "trading, a walk over all folds": kind(
        *("mean_reversion", 1280, (6,), *SMALL, *SIZES["ppo"], ROWS, OFTEN, "trials=4"),
        *("env.max_steps_per_episode=32", "evaluation.eval_frequency=1"),
        *("data.split.folds=2", "data.split.fold=all"),
        prepare=partial(generate, name="mean_reversion"),
    ),
    "packing": kind("binpack_ppo", 1280, (4,), *PACKING),
    "language": Kind(
        Case("movie_critic", *LANGUAGE), 4, (3,), stage="ppo", prepare=texts.write_texts
    ),
}


class Undisturbed:
    """Runs of kinds that nobody disturbed, each made once."""

    def __init__(self, make_directory: Callable[[str], Path]):
        self._make_directory, self._made = make_directory, dict[str, Path]()

    def __call__(self, name: str) -> Path:
        if name not in self._made:
            directory = self._make_directory("whole")
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(directory)
                KINDS[name].prepare(directory)
                self._made[name] = KINDS[name].case.uninterrupted(directory / "logs")
        return self._made[name]


def check_killed_in_training(name: str, workdir: Path, whole: Undisturbed) -> None:
    """A process of this kind, killed while it trains and resumed, ends as if nothing had happened."""
    this = KINDS[name]
    this.prepare(workdir)
    metrics = f"logs/{this.case.name}/latest/trial_0/{this.stage}/metrics.jsonl"
    command = this.case.command()
    for rows in this.rows:
        ended = stop_at_row(command, workdir, metrics, rows, signal.SIGKILL)
        assert ended.code == -signal.SIGKILL
        command = ["resume", this.case.name]
    run = latest(workdir, this.case)
    assert read(run / "run.json")["status"] == "running"
    step = common_step([path / this.stage for path in run.glob("trial_*")])
    assert this.begins_at <= step < this.steps and step % this.saves_every == 0
    sentences: list[str] = []
    resume_experiment(this.case.name, display=silent()._replace(say=sentences.append))
    assert any("Resuming" in text and f" {step:,}." in text for text in sentences), sentences
    assert not any("another way" in text for text in sentences), sentences
    check_same(run, whole(name))
