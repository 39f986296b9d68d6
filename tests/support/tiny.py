"""Runs small enough for a test, in the same shapes everywhere, so that each compiles only once."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

from proxima.scenario import Scenario, load

# which tests came before.
os.environ.setdefault("NPROC", "1")
jax.devices()

HIDDEN = "network.hidden=[8]"
SMALL = (
    "trials=1",
    "env.num_envs=4",
    HIDDEN,
    "training.max_steps=2000",
    "training.updates_per_chunk=1",
    "evaluation.eval_frequency=50",
    "evaluation.eval_episodes=4",
    "evaluation.final_episodes=4",
    "evaluation.film=false",
    "tracking.enabled=false",
)
SIZES = {
    "ppo": (
        "algorithm.batch_size=64",
        "algorithm.minibatch_size=32",
        "algorithm.epochs_per_update=2",
        "algorithm.sequence_length=null",
    ),
    "ddpg": (
        "algorithm.batch_size=16",
        "algorithm.buffer_size=300",
        "algorithm.warmup_steps=64",
        "algorithm.steps_per_update=4",
        "algorithm.gradient_steps=2",
    ),
    "sac": (
        "algorithm.batch_size=16",
        "algorithm.buffer_size=300",
        "algorithm.warmup_steps=64",
        "algorithm.steps_per_update=4",
        "algorithm.gradient_steps=2",
    ),
    "dqn": (
        "algorithm.batch_size=16",
        "algorithm.buffer_size=300",
        "algorithm.warmup_steps=64",
        "algorithm.gradient_steps=2",
    ),
    "pqn": (
        "algorithm.batch_size=64",
        "algorithm.minibatch_size=32",
        "algorithm.epochs_per_update=2",
    ),
    "spo": (
        "algorithm.particles=4",
        "algorithm.depth=2",
        "algorithm.sequence_length=8",
        "algorithm.batch_size=4",
        "algorithm.buffer_size=320",
        "algorithm.gradient_steps=2",
    ),
}
# Few boxes, small mazes, and nets as small: most of the time of a small run is their compiling.
BOARDS: dict[str, tuple[str, ...]] = {
    "BinPack-v2": (
        "env.params={max_num_items: 4, max_num_ems: 6}",
        "env.instances=8",
        "network={blocks: 1, heads: 2, width: 8}",
    ),
    "Maze-v0": (
        "env.params={num_rows: 4, num_cols: 4}",
        "env.instances=8",
        "network={channels: 2, sweeps: 4}",
    ),
}
# Games would be played to their end, Freeway for 2,500 steps, and Atari's be seen by a million weights.
BOARDS |= {
    "Pong-v5": ("env.max_steps_per_episode=12", "env.atari.screen_size=36"),
    "Freeway-MinAtar": ("env.max_steps_per_episode=12",),
    "SpaceInvaders-MinAtar": ("env.max_steps_per_episode=12",),
}
GROWING = "curriculum={parameters: {side: [2, 3]}, beyond: {side: [4]}}"  # in so small a grid
ROWS = "data.rows=1000"  # enough for the longest window of any scenario's features
BUDGET = (*SMALL, *SIZES["ppo"])
# CartPole whose learner also carries running statistics, so that all a learner can hold is there.
STATISTICS = ("algorithm.normalize_observations=true", "algorithm.normalize_rewards=true")
TINY = (*BUDGET, *STATISTICS)
# A language model of a few thousand weights, a few updates of each stage.
LANGUAGE: dict[str, Any] = {
    "model.new.vocabulary": 300,
    "model.new.layers": 1,
    "model.new.width": 16,
    "model.new.heads": 2,
    "model.new.inner": 16,
    "model.new.context": 24,
    "sft.epochs": 1,
    "reward_model.updates": 6,
    "reward_model.batch_size": 8,
    "reward_model.held_out_pairs": 16,
    "reward_model.calibration_samples": 16,
    "reward_model.evaluate_every": 3,
    "ppo.updates": 4,
    "ppo.batch_size": 8,
    "ppo.minibatch_size": 4,
    "ppo.new_tokens": 6,
    "evaluation.prompts": 8,
    "evaluation.frequency": 2,
    "evaluation.samples": 3,
    "tracking.enabled": False,
}


def tiny(output: Path, *settings: str, name: str = "cartpole") -> Scenario:
    """The small CartPole, its runs below `output`, with further settings."""
    return load(name, [*TINY, f"output_directory={output}", *settings])


def budget(name: str) -> tuple[str, ...]:
    """Settings that make a shipped scenario small, whichever its algorithm, and its data if it has any."""
    scenario = load(name)
    small = SMALL if hasattr(scenario.network, "hidden") else without_hidden(SMALL)
    return (
        *small,
        *SIZES[scenario.algorithm.name],
        *([ROWS] if scenario.domain in ("trading", "portfolio") else []),
        *BOARDS.get(scenario.env.name, ()),
        *([GROWING] if name == "maze_curriculum" else []),
    )


def without_hidden(settings: Sequence[str]) -> tuple[str, ...]:
    """The settings for a net that has no hidden layers to be made small."""
    return tuple(setting for setting in settings if setting != HIDDEN)


def flags(*settings: str) -> list[str]:
    """Settings as the command line takes them."""
    return [word for setting in settings for word in ("--set", setting)]


class Said(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


def run_main(arguments: Sequence[str], capsys, monkeypatch) -> Said:
    """The real entry point within this process: as fast as a call, and main handles the errors."""
    from proxima.cli import main

    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["proxima", *map(str, arguments)])
    code = 0
    try:
        main()
    except SystemExit as leaving:
        code = leaving.code or 0
    return Said(code, *capsys.readouterr())


def command(*arguments: Any) -> list[str]:
    """A command line of a process of its own, which Ctrl-C reaches even if it does not reach us."""
    start = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from proxima.cli import main; main()"
    )
    return [sys.executable, "-c", start, *map(str, arguments)]


def run_process(arguments: Sequence[Any], cwd: Path, **environment: str) -> Said:
    """The command in a process of its own."""
    done = subprocess.run(
        command(*arguments),
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return Said(done.returncode, done.stdout, done.stderr)


def stop_at_row(
    arguments: Sequence[Any], cwd: Path, metrics: str, rows: int, number: signal.Signals
) -> Said:
    """The command, sent a signal as soon as a metrics file below `cwd` has that many rows."""
    return stop_when(arguments, cwd, lambda: count_rows(cwd / metrics) >= rows, number)


def stop_when(
    arguments: Sequence[Any], cwd: Path, condition: Callable[[], bool], number: signal.Signals
) -> Said:
    """The command, sent a signal as soon as the condition is true."""
    process = subprocess.Popen(
        command(*arguments), cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 300
    try:
        while not condition():
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                pytest.fail(f"it was not there to be stopped: {process.communicate()}")
            time.sleep(0.001)
        process.send_signal(number)
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    return Said(process.returncode, out, err)


def count_rows(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def rows_of(trial: Path) -> list[dict[str, Any]]:
    """A trial's metrics without what depends on the machine's mood."""
    lines = (trial / "metrics.jsonl").read_text().splitlines()
    return [
        {k: v for k, v in json.loads(line).items() if not k.startswith(("time/", "memory/"))}
        for line in lines
    ]


def results_of(trial: Path) -> dict[str, Any]:
    """A trial's results without times and names of the run, its stages' too."""
    return _timeless(read(trial / "results.json"))


def _timeless(content: Any) -> Any:
    if not isinstance(content, dict):
        return content
    left_out = ("run_id", "steps_per_second", "time", "phases")
    return {
        key: _timeless(value)
        for key, value in content.items()
        if key not in left_out and not key.endswith("_seconds")
    }


def tensors_of(trial: Path, link: str = "last") -> dict[str, np.ndarray]:
    """Every array of a trial's checkpoint."""
    return load_file(trial / "checkpoints" / link / "state.safetensors")


def equal_bits(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> bool:
    """Whether two checkpoints hold the same arrays, bit for bit."""
    return first.keys() == second.keys() and all(
        first[name].dtype == second[name].dtype
        and first[name].shape == second[name].shape
        and first[name].tobytes() == second[name].tobytes()
        for name in first
    )


def equal_trees(first: Any, second: Any) -> bool:
    """Whether two trees of arrays and keys are the same, bit for bit."""

    def content(leaf: Any) -> bytes:
        is_key = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return np.asarray(jax.random.key_data(leaf) if is_key else leaf).tobytes()

    both = jax.tree.leaves(first), jax.tree.leaves(second)
    return len(both[0]) == len(both[1]) and all(
        content(one) == content(other) for one, other in zip(*both, strict=True)
    )
