"""Tiny runs of every kind whose bits were written down: a change that moves code leaves them alone.

    PROXIMA_RECORD=1 pytest tests/golden      writes the digests of this kind of machine down anew

A digest is of the numbers alone: the tensors of the last checkpoints and of the exported policies without
their names, and what the closing evaluations say without where it stands in results.json. So renaming and
moving change nothing, and whatever does change was computed otherwise.
"""

import hashlib
import json
import os
import platform
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file
from texts import write_texts
from tiny import LANGUAGE, ROWS, SIZES, SMALL, STATISTICS, flags, run_main, without_hidden

import proxima

pytestmark = pytest.mark.emitters  # as when the digests were written down
DIGESTS = Path(__file__).parent / "digests.json"
YEAR = "data.periods_per_year=252"  # of annual figures
COMMON = ("trials=2", "seed=5", "training.max_steps=512", "checkpoint.frequency=3")
PPO, DDPG, SAC, SPO, DQN, PQN = (
    (*SMALL, *SIZES[name], *COMMON) for name in ("ppo", "ddpg", "sac", "spo", "dqn", "pqn")
)
RAINBOW = ("algorithm.double=true", "algorithm.dueling=true", "algorithm.n_step=3")
PACKING = (
    "env.params={max_num_items: 4, max_num_ems: 6}",
    "env.instances=8",
    "network={blocks: 1, heads: 2, width: 8}",
)
MAZE = (
    "env.params={num_rows: 4, num_cols: 4}",
    "env.instances=8",
    "network={channels: 2, sweeps: 4}",
)
TEXTS = {
    "trials": 2,
    "seed": 5,
    "data.source": "file",
    "data.path": "texts.parquet",
    "data.prompt_tokens": 3,
    "data.held_out": 0.25,
    "sft.batch_size": 16,
    "sft.evaluate_every": 4,
    "evaluation.judge": None,
}
RUNS: dict[str, tuple[str, Any]] = {
    "ppo": ("cartpole", (*PPO, *STATISTICS)),
    "ppo, best checkpoint": ("cartpole", (*PPO, "evaluation.checkpoint=best", "trials=3")),
    "ppo, one trial, clipped value, target KL": (
        "cartpole",
        (*PPO, "trials=1", "algorithm.value_clip_epsilon=0.2", "algorithm.target_kl=0.01"),
    ),
    "ppo, continuous": ("pendulum", PPO),
    "ppo, gymnasium": ("cartpole_host", PPO),
    "ppo, envpool": ("cartpole_envpool", PPO),
    "ddpg": ("pendulum_ddpg", (*DDPG, "env.max_steps_per_episode=21", "algorithm.exploration=ou")),
    "td3, gymnasium": (
        "pendulum_td3",
        (*DDPG, "env.max_steps_per_episode=21", "env.backend=gymnasium"),
    ),
    "sac": ("pendulum_sac", (*SAC, "env.max_steps_per_episode=21")),
    "sac, choices": ("cartpole", (*SMALL, "algorithm.name=sac", *SIZES["sac"], *COMMON)),
    "dqn, n-step, prioritised": ("acrobot_dqn", (*DQN, *RAINBOW, "algorithm.prioritized=true")),
    "dqn, gymnasium": ("acrobot_dqn", (*DQN, "env.backend=gymnasium")),
    "pqn": ("cartpole_pqn", PQN),
    "spo": ("cartpole_spo", SPO),
    "spo, continuous": ("pendulum_spo", (*SPO, "env.max_steps_per_episode=21")),
    "trading, ppo": ("sine_wave", (*PPO, ROWS, YEAR)),
    "trading, ddpg": ("sine_wave_ddpg", (*DDPG, ROWS, YEAR)),
    "portfolio, ppo": (
        "portfolio_reversion",
        (*PPO, ROWS, YEAR, "network={kind: assets, hidden: [8]}", "env.fee=0.001"),
    ),
    "portfolio, ddpg long and short": (
        "portfolio_reversion",
        ("algorithm={name: ddpg}", *DDPG, ROWS, YEAR, "env.weights=long_short", "env.leverage=2"),
    ),
    "binpack, ppo": ("binpack_ppo", (*without_hidden(PPO), *PACKING)),
    "maze, ppo": ("maze_ppo", (*PPO, *MAZE)),
    "language, three stages": ("movie_critic", LANGUAGE | TEXTS),
    "language, LoRA, leave one out": (
        "movie_critic",
        LANGUAGE
        | TEXTS
        | {
            "lora.rank": 2,
            "ppo.advantage": "leave_one_out",
            "ppo.group_size": 2,
            "reward.normalize": True,
        },
    ),
}


def machine() -> str:
    """What bits depend on besides the code: the processor's instructions and the compiler."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if platform.system() == "Linux" else []
    flags = next((line for line in lines if line.startswith("flags")), platform.processor())
    kind = hashlib.sha256(" ".join(sorted(flags.split())).encode()).hexdigest()[:12]
    return f"{platform.machine()} {kind}, jax {jax.__version__}"


def digest(arrays: list[Any]) -> str:
    """Of arrays as they are, whatever they are called and in whatever order they come."""
    arrays = [np.asarray(array) for array in arrays]
    parts = sorted(
        f"{array.dtype} {array.shape} {hashlib.sha256(array.tobytes()).hexdigest()}"
        for array in arrays
    )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def tensors_below(directory: Path, pattern: str) -> list[np.ndarray]:
    """The arrays of all the files of that name, a file behind two links once."""
    files = {path.resolve() for path in directory.glob(pattern)}
    return [array for path in sorted(files) for array in load_file(path).values()]


def figures(run: Path) -> list[Any]:
    """What the trials were found to be worth, a list per evaluation, and how long they trained."""
    numbers = []
    for path in sorted(run.glob("trial_*/results.json")):
        result = json.loads(path.read_text())
        evaluations = [
            result[name]
            for name in ("evaluation", "sampled", "random", "reference")
            if result[name] is not None
        ]
        numbers += [each[part] for each in evaluations for part in ("returns", "lengths")]
        numbers.append([result["environment_steps"], result["episodes"], result["converged"]])
        numbers += [value for _, value in sorted(result["scores"].items())]
        for split in ((result["details"] or {}).get("splits") or {}).values():
            numbers.append([each or 0.0 for _, each in sorted(split["agent"].items())])
    return numbers


def digests(run: Path) -> dict[str, str]:
    return {
        "checkpoints": digest(tensors_below(run, "trial_*/**/checkpoints/last/state.safetensors")),
        "policies": digest(
            tensors_below(run, "trial_*/policy/policy.safetensors")
            + tensors_below(run, "trial_*/model/*.safetensors")
        ),
        "results": digest([json.dumps(each) for each in figures(run)]),
    }


@pytest.mark.parametrize("name", RUNS)
def test_the_bits_are_those_written_down(name, workdir, capsys, monkeypatch):
    known = json.loads(DIGESTS.read_text()) if DIGESTS.exists() else {}
    mine, recording = machine(), "PROXIMA_RECORD" in os.environ
    if name not in known.get(mine, {}) and not recording:
        pytest.skip(f"no bits are written down for {name} on {mine}; PROXIMA_RECORD=1 does so")
    scenario, settings = RUNS[name]
    if isinstance(settings, dict):
        write_texts(workdir)
    elif ROWS in settings:
        generate = ["generate-data", "--scenario", scenario, *flags(*settings)]
        assert run_main(generate, capsys, monkeypatch).code == 0
    summary = proxima.run_multiple_experiments(proxima.load(scenario, settings))
    found = digests(Path(summary["paths"]["run"]))
    if recording:
        known.setdefault(mine, {})[name] = found
        DIGESTS.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n")
    # What was computed otherwise on purpose is gone from other machines' digests until they write it anew.
    assert found | known[mine][name] == found
