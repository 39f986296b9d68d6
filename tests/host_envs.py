"""Host environments whose every step is known, and small programs that spy on their pools."""

from typing import ClassVar

import gymnasium
import numpy as np

from proxima.algorithms.ppo import PPOConfig, ppo
from proxima.domains.control import gymnasium as adapter
from proxima.domains.control.config import EnvConfig
from proxima.nets.actor_critic import NetworkConfig
from proxima.train import host

MODES = ("same_step", "next_step", "disabled")
NUM_ENVS, STEPS = 2, 16


class Counter(gymnasium.Env):
    """Known endings: episode k of seed s lasts (s + k) % 3 + 1 steps; even ones are truncated."""

    metadata: ClassVar = {"render_modes": ["rgb_array"]}
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = gymnasium.spaces.Discrete(3, start=-1)

    def __init__(self, raises_at: int = 0, render_mode: str | None = None):
        self.raises_at, self.render_mode = raises_at, render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.seed, self.episode = seed, -1
        self.episode += 1
        self.step_in_episode = 0
        return self._observe(0), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.step_in_episode += 1
        if self.step_in_episode == self.raises_at:
            raise ValueError("the wheel came off")
        ended = self.step_in_episode == (self.seed + self.episode) % 3 + 1
        truncated = ended and self.episode % 2 == 0
        reward = 100 * self.episode + 10 * self.step_in_episode + action
        return self._observe(action), reward, ended and not truncated, truncated, {}

    def _observe(self, action):
        return np.array([self.episode, self.step_in_episode, action], np.float64)

    def render(self):
        return np.full((4, 4, 3), self.step_in_episode, np.uint8)


class Recycler(Counter):
    """Gives out one array for all its observations and overwrites it."""

    memory = None

    def _observe(self, action):
        if self.memory is None:
            self.memory = np.zeros(3)
        self.memory[:] = self.episode, self.step_in_episode, action
        return self.memory


class Bounded(gymnasium.Env):
    """Shows the action it was given."""

    observation_space = gymnasium.spaces.Box(0, 255, (2, 1), np.uint8)
    action_space = gymnasium.spaces.Box(
        np.array([-1.0, -2.0]), np.array([1.0, 2.0]), dtype=np.float64
    )

    def reset(self, *, seed=None, options=None):
        return np.zeros((2, 1), np.uint8), {}

    def step(self, action):
        assert action.dtype == np.float64 and action.shape == (2,)
        return np.full((2, 1), 200, np.uint8), float(action @ [1.0, 10.0]), False, False, {}


for entry_point in (Counter, Recycler, Bounded):
    gymnasium.register(f"Test{entry_point.__name__}-v0", entry_point=entry_point)


COUNTER = EnvConfig(name="TestCounter-v0")
CARTPOLE = EnvConfig(name="CartPole-v1")


class Spy:
    """A pool that remembers what went through it."""

    def __init__(self, pool):
        self.pool = pool
        self.observation_space, self.action_space = pool.observation_space, pool.action_space
        self.num_envs = pool.num_envs
        self.resets, self.steps, self.seeds = [], [], []

    def reset(self, seeds):
        self.seeds.append(list(seeds))
        self.resets.append(self.pool.reset(seeds))
        return self.resets[-1]

    def step(self, actions):
        self.send(actions)
        return self.receive()

    def send(self, actions):
        self.pool.send(actions)

    def receive(self):
        self.steps.append(self.pool.receive())
        return self.steps[-1]

    def render(self):
        return self.pool.render()

    def close(self):
        self.pool.close()


def make(config: EnvConfig = CARTPOLE, trials: int = 1, autoreset="same_step", **settings):
    """A small program, its agent and the pools it has made so far."""
    algorithm = PPOConfig(
        batch_size=NUM_ENVS * STEPS, minibatch_size=16, epochs_per_update=2, **settings
    )
    agent = ppo(algorithm, NetworkConfig(hidden=(8,)), adapter.spaces(config), NUM_ENVS, None, None)
    spies = []

    def make_pool(num_envs, render):
        spies.append(Spy(adapter.make_pool(config, num_envs, autoreset, render)))
        return spies[-1]

    pools = host.Pools(lambda num_envs: [make_pool(num_envs, False)], make_pool)
    return host.host_program(agent, pools, trials, NUM_ENVS, STEPS, 0), agent, spies
