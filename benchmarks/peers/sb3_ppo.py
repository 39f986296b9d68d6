"""Stable-Baselines3's PPO on Gymnasium's CartPole-v1: steps per second, time to a trained policy.

    python benchmarks/peers/sb3_ppo.py --envs 8 --steps 128 --updates 20
    python benchmarks/peers/sb3_ppo.py --solve                          default and zoo settings
    python benchmarks/peers/sb3_ppo.py --solve --hyperparameters zoo    one of them

Same work as ours: rollouts of envs × steps; a policy and a value net of 64-64 tanh; GAE with a
bootstrap at truncation; 4 epochs × 4 minibatches, reshuffled every epoch; clipped policy loss,
advantages normalised per minibatch; gradient clipped by the global norm; Adam; float32; metrics of
losses and episodes recorded after every rollout (and written nowhere).

What differs: the envs are Python objects stepped in turn by DummyVecEnv, SB3's fastest for an env
this cheap; the value loss is not clipped and there is no entropy bonus (SB3's defaults, both less
work); each timed run trains a new model, built before the clock starts, from its first step.

Torch runs with one thread or two, whichever a short trial of both in the warm-up finds quicker;
every answer says which.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import protocol
import venvs

THREADS = (1, 2)
TRIALS = 2  # of each number of threads, alternating
TRIAL_UPDATES = 4
TRIAL_STEPS = 2_048  # of a solving script: one rollout of the default hyperparameters


def quickest(seconds: Callable[[int], float]) -> int:
    """The number of threads with the least `seconds` in a few alternating trials."""
    timed = [(seconds(threads), threads) for _ in range(TRIALS) for threads in THREADS]
    return min(timed)[1]


def prepare(envs: int, steps: int, updates: int) -> protocol.Run:
    """A run of `updates` rollouts, each time with a new model and seed."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import DummyVecEnv

    def learn(updates: int, threads: int, seed: int) -> float:
        torch.set_num_threads(threads)
        model = PPO(
            "MlpPolicy",
            make_vec_env("CartPole-v1", n_envs=envs, seed=seed, vec_env_cls=DummyVecEnv),
            n_steps=steps,
            batch_size=envs * steps // 4,
            n_epochs=4,
            learning_rate=2.5e-4,
            policy_kwargs={"net_arch": [64, 64], "activation_fn": torch.nn.Tanh},
            device="cpu",
            seed=seed,
        )
        start = time.perf_counter()
        model.learn(envs * steps * updates)
        seconds = time.perf_counter() - start
        if model.num_timesteps != envs * steps * updates:
            raise SystemExit(f"SB3 made {model.num_timesteps} steps, not {envs * steps * updates}")
        return seconds

    learn(1, 1, seed=0)
    threads = quickest(lambda threads: learn(TRIAL_UPDATES, threads, seed=0))
    runs = 0

    def run() -> dict[str, Any]:
        nonlocal runs
        runs += 1
        seconds = learn(updates, threads, seed=runs)
        return protocol.measurement(envs * steps * updates, seconds) | {"threads": threads}

    return run


def solve(
    hyperparameters: str, total_steps: int, episodes: int, threads: int, seed: int
) -> dict[str, Any]:
    """What a whole SB3 script reports, in a process of its own whose start is the time's start."""
    values = {
        "hyperparameters": hyperparameters,
        "total-steps": total_steps,
        "episodes": episodes,
        "threads": threads,
        "seed": seed,
        "started": time.time(),
    }
    command = [sys.executable, str(Path(__file__).with_name("sb3_solve.py"))]
    command += [f"--{name}={value}" for name, value in values.items()]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def prepare_solve(settings: list[str], total_steps: int) -> protocol.Run:
    """A run of the whole script per setting, in turn; its files are in the page cache by then."""

    def learning_seconds(setting: str, threads: int) -> float:
        result = solve(setting, min(TRIAL_STEPS, total_steps), 0, threads, seed=0)
        return result["seconds_to_learnt"] - result["seconds_to_imported"]

    threads = {
        setting: quickest(lambda threads, setting=setting: learning_seconds(setting, threads))
        for setting in settings
    }
    runs = 0

    def run() -> dict[str, Any]:
        nonlocal runs
        runs += 1
        return {
            setting: solve(setting, total_steps, 100, threads[setting], seed=runs)
            for setting in settings
        }

    return run


def main() -> None:
    """Times what the command line asks for."""
    parser = protocol.arguments("Stable-Baselines3 PPO on CartPole-v1", envs=8, updates=20)
    parser.add_argument("--solve", action="store_true", help="time whole scripts, from the start")
    parser.add_argument("--hyperparameters", choices=["default", "zoo"], help="with --solve: one")
    parser.add_argument(
        "--total-steps", type=protocol.positive, default=100_000, help="with --solve: the budget"
    )
    options = parser.parse_args()
    if options.envs * options.steps % 4:
        parser.error("--envs times --steps must divide into 4 minibatches")
    venvs.enter("sb3")
    if options.solve:
        settings = [options.hyperparameters] if options.hyperparameters else ["default", "zoo"]
        # A whole script takes a minute or two: once, unless the driver asks for more.
        protocol.speak(lambda: prepare_solve(settings, options.total_steps), 1, options.serve)
    else:
        protocol.speak(
            lambda: prepare(options.envs, options.steps, options.updates),
            options.repeat,
            options.serve,
        )


if __name__ == "__main__":
    main()
