"""Small programs on host environments that spy on their pools; the environments are known_envs.py's."""

import jax
import jax.numpy as jnp
import known_envs  # noqa: F401, registers them
import numpy as np
from problems import problem_of

from proxima.algorithms.ppo import PPOConfig, ppo
from proxima.core.types import HostStep
from proxima.domains.control import gymnasium as adapter
from proxima.domains.control.config import EnvConfig
from proxima.nets.actor_critic import MLPConfig
from proxima.train.host import program as host

MODES = ("same_step", "next_step")
NUM_ENVS, STEPS = 2, 16


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


class NextStep:
    """Environments that reset in the step after an ending, as EnvPool's do; that row is a fake one."""

    def __init__(self, pools):
        self.pools = pools  # of one environment each
        self.observation_space, self.action_space = (
            pools[0].observation_space,
            pools[0].action_space,
        )
        self.num_envs = len(pools)

    def reset(self, seeds):
        self.first = [None] * self.num_envs  # observations of episodes that begin with the next row
        firsts = [pool.reset([seed]) for pool, seed in zip(self.pools, seeds, strict=True)]
        return np.concatenate(firsts)

    def step(self, actions):
        rows = [self._row(index, actions[index : index + 1]) for index in range(self.num_envs)]
        return HostStep(*map(np.concatenate, zip(*rows, strict=True)))

    def _row(self, index, action):
        first, no = self.first[index], np.zeros(1, bool)
        if first is not None:
            self.first[index] = None
            return HostStep(first, np.zeros(1, np.float32), no, no, first, no)
        row = self.pools[index].step(action)
        if row.terminated or row.truncated:
            self.first[index] = row.obs
        return row._replace(obs=row.next_obs)

    def send(self, actions):
        self.sent = actions

    def receive(self):
        return self.step(self.sent)

    def render(self):
        return self.pools[0].render()

    def close(self):
        for pool in self.pools:
            pool.close()


def make_pool(config: EnvConfig, num_envs: int, autoreset: str, render: bool = False):
    """A pool of environments in this process, which reset themselves in that mode."""
    if autoreset == "same_step":
        return adapter.make_pool(config, num_envs, render)
    return NextStep([adapter.make_pool(config, 1, render) for _ in range(num_envs)])


def make(
    config: EnvConfig = CARTPOLE,
    trials: int = 1,
    autoreset="same_step",
    groups: int = 1,
    network: MLPConfig | None = None,
    policy_lag: int = 0,
    **settings,
):
    """A small program, its agent and the pools it has made so far."""
    algorithm = PPOConfig(
        batch_size=NUM_ENVS * STEPS, minibatch_size=16, epochs_per_update=2, **settings
    )
    agent = ppo(algorithm, problem_of(adapter.spaces(config), NUM_ENVS, network))
    spies = []

    def spied(num_envs, render):
        spies.append(Spy(make_pool(config, num_envs, autoreset, render)))
        return spies[-1]

    def make_groups(num_envs):
        return [spied(num_envs // groups, False) for _ in range(groups)]

    pools = host.Pools(make_groups, spied)
    program = host.host_program(agent, pools, trials, NUM_ENVS, STEPS, 0, policy_lag=policy_lag)
    return program, agent, spies


def leaves(tree):
    """NumPy leaves, keys as numbers."""
    keys = jax.dtypes.prng_key
    return [
        np.array(jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, keys) else leaf)
        for leaf in jax.tree.leaves(tree)
    ]


def assert_same(a, b):
    for left, right in zip(leaves(a), leaves(b), strict=True):
        np.testing.assert_array_equal(left, right)


def differ(a, b) -> bool:
    return any(not np.array_equal(x, y) for x, y in zip(leaves(a), leaves(b), strict=True))


def without_times(sums):
    return {name: value for name, value in sums.items() if not name.startswith("time/")}
