"""A user's directory: a module with everything of their own, and a scenario that names it by paths."""

from pathlib import Path

MODULE = """
from dataclasses import dataclass

import equinox as eqx
import gymnasium
import jax
import numpy as np

from proxima.algorithms import ppo
from proxima.core.algorithm import Algorithm
from proxima.core.distributions import categorical
from proxima.domains.control.domain import DOMAIN as CONTROL


class Corridor(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, size):
        self.size = size

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.time = 0, 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.place, self.time = max(0, self.place + 2 * int(action) - 1), self.time + 1
        ended = self.place == self.size
        obs = np.array([self.place / self.size], np.float32)
        return obs, float(ended), ended, not ended and self.time == 20, {}


def make_env(size=4):
    return Corridor(size)


@dataclass(frozen=True, kw_only=True)
class Config:
    name: str = "mine:ALGORITHM"
    learning_rate: float = 1e-2
    batch_size: int = 64


def make(config, problem):
    settings = ppo.PPOConfig(
        learning_rate=config.learning_rate,
        batch_size=config.batch_size,
        minibatch_size=32,
        epochs_per_update=2,
    )
    return ppo.ppo(settings, problem)


ALGORITHM = Algorithm(
    config=Config,
    make=make,
    rollout_steps=lambda config, num_envs: config.batch_size // num_envs,
    checks=lambda scenario: iter(()),
    panels=ppo.ALGORITHM.panels,
)
BORROWED = ppo.ALGORITHM


class Net(eqx.Module):
    actor: eqx.nn.Linear
    critic: eqx.nn.Linear

    def policy(self, obs):
        return categorical(self.actor(obs))

    def value(self, obs):
        return self.critic(obs)[0]


def make_net(key, observation_space, action_space):
    actor, critic = jax.random.split(key)
    return Net(eqx.nn.Linear(1, 2, key=actor), eqx.nn.Linear(1, 1, key=critic))


DOMAIN = CONTROL._replace(name="corridors")
"""
SCENARIO = """
domain: "mine:DOMAIN"
env: {backend: "mine:make_env", params: {size: 3}, num_envs: 4, workers: 2}
algorithm: {name: "mine:ALGORITHM", learning_rate: 0.005}
network: {kind: "mine:make_net"}
training: {max_steps: 20000, max_episodes: null, updates_per_chunk: 2}
evaluation: {eval_episodes: 2, final_episodes: 2, film: false}
checkpoint: {frequency: 1}
tracking: {enabled: false}
"""


def write_own(directory: Path) -> Path:
    """The module and the scenario; returns the scenario's file."""
    directory.mkdir()
    (directory / "mine.py").write_text(MODULE)
    (directory / "corridor.yaml").write_text(SCENARIO)
    return directory / "corridor.yaml"
