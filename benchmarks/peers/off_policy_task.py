"""The environments and settings that learners from a replay buffer are given, Stable-Baselines3's and SBX's.

One environment, one gradient step per environment step; batches of 256 drawn uniformly from a buffer; nets
of 256-256 ReLU; float32; losses recorded; bootstrapping at truncation. The steps counted are those with a
gradient step: the warm-up is over before the clock starts.

    ddpg    Pendulum-v1   an actor and a critic, targets of both, soft updates, an Adam each, Gaussian noise
    td3     Pendulum-v1   the same with two critics
    sac     Pendulum-v1   an actor and two critics, targets of the critics, soft updates; an Adam each and one
                          for the temperature
    dqn     CartPole-v1   a net and its target, copied every 250 steps; Adam, Huber's loss, gradients cut
                          at 10; ε-greedy actions

Standard library only: what a setting needs beyond it is imported under the peer's Python.
"""

import argparse
import time
from typing import Any, NamedTuple

import protocol

BATCH = 256
HIDDEN = (256, 256)


class Task(NamedTuple):
    """What differs between the algorithms."""

    env: str
    settings: dict[str, float]
    noise: float | None = None  # deviation of what is added to actions


TASKS = {
    "ddpg": Task("Pendulum-v1", {"learning_rate": 1e-3}, noise=0.1),
    "td3": Task("Pendulum-v1", {"learning_rate": 1e-3}, noise=0.1),
    "sac": Task("Pendulum-v1", {"learning_rate": 1e-3}),
    "dqn": Task("CartPole-v1", {"learning_rate": 6.3e-4, "target_update_interval": 250}),
}


def options_of(peer: str) -> argparse.Namespace:
    """What the command line asks of the peer."""
    parser = protocol.arguments(f"{peer}, learning from a replay buffer", envs=1, updates=1_000)
    parser.add_argument("--algorithm", choices=TASKS, default="ddpg")
    return parser.parse_args()


def make_model(algorithms: dict[str, Any], algorithm: str, **more: Any) -> Any:
    """The peer's model for the task; `more` is what only this peer is told."""
    task = TASKS[algorithm]
    settings: dict[str, Any] = {
        "buffer_size": 100_000,
        "learning_starts": BATCH,
        "batch_size": BATCH,
        "train_freq": 1,
        "gradient_steps": 1,
        "seed": 0,
    }
    if task.noise is not None:
        import numpy as np
        from stable_baselines3.common.noise import NormalActionNoise

        settings["action_noise"] = NormalActionNoise(np.zeros(1), np.full(1, task.noise))
    return algorithms[algorithm]("MlpPolicy", task.env, **settings, **task.settings, **more)


def seconds_to_learn(model: Any, steps: int) -> float:
    """The time that so many steps more take."""
    before = model.num_timesteps
    start = time.perf_counter()
    model.learn(steps, reset_num_timesteps=False)
    seconds = time.perf_counter() - start
    if model.num_timesteps - before != steps:
        raise SystemExit(f"{model.num_timesteps - before} steps were made, not {steps}")
    return seconds
