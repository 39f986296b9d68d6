"""Memory on host environments: carried from step to step, and begun anew with every episode."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from host_envs import COUNTER, MODES, NUM_ENVS, STEPS, make, make_pool
from problems import problem_of

from proxima.algorithms.ppo import PPOConfig, ppo
from proxima.core.types import View
from proxima.domains.control import gymnasium as adapter
from proxima.nets.actor_critic import MLPConfig
from proxima.train.host.act import chooser
from proxima.train.host.collect import HostCollector

TRIALS = 2
NETWORK = MLPConfig(hidden=(8,), memory="lstm", memory_size=4)
CONFIG = PPOConfig(batch_size=NUM_ENVS * STEPS, minibatch_size=16)


@pytest.mark.parametrize("autoreset", MODES)
@pytest.mark.parametrize("groups", [1, 2])
def test_a_rollout_remembers_its_episodes_row_by_row(autoreset, groups):
    agent = ppo(CONFIG, problem_of(adapter.spaces(COUNTER), NUM_ENVS, NETWORK))
    size = TRIALS * NUM_ENVS // groups
    pools = [make_pool(COUNTER, size, autoreset) for _ in range(groups)]
    collector = HostCollector(agent, pools, TRIALS, STEPS)
    learners = jax.vmap(agent.init)(jax.random.split(jax.random.key(0), TRIALS))
    explore = chooser(agent, agent.policy(learners), greedy=False)
    collector.reset(np.arange(TRIALS * NUM_ENVS).reshape(TRIALS, NUM_ENVS))
    shape = (STEPS, TRIALS, NUM_ENVS)
    for rollout_number in range(2):
        noise = jax.device_get(agent.noise(None, jax.random.key(rollout_number), shape))
        rollout, _ = collector.collect(explore, noise)
    memory = jax.tree.map(np.array, rollout.aux.memory)
    ended = rollout.terminated | rollout.truncated | ~rollout.mask
    assert ended.any() and (autoreset == "same_step") == rollout.mask.all()
    if not ended[-1].all():
        assert np.abs(memory.output[0]).sum() > 0  # carried on from the first rollout

    def by_trial(leaf):
        return jnp.asarray(leaf).reshape(STEPS, TRIALS, NUM_ENVS, *leaf.shape[2:]).swapaxes(0, 1)

    remember = jax.vmap(lambda net, memory, obs: net.remember(memory, obs)[1])
    after = remember(learners.net, *jax.tree.map(by_trial, (memory, rollout.obs)))
    pairs = zip(*map(jax.tree.leaves, (jax.tree.map(by_trial, memory), after)), strict=True)
    for found, left in pairs:
        expected = np.where(by_trial(ended)[:, :-1, :, None], 0.0, left[:, :-1])
        np.testing.assert_allclose(found[:, 1:], expected, atol=1e-6)
    collector.close()


def test_a_recorded_episode_is_played_with_memory():
    program, agent, _ = make(COUNTER, network=NETWORK)
    learner = jax.tree.map(lambda leaf: leaf[0], program.init([3]).learner)
    recording, memory = program.record(learner), agent.memory(1)
    for obs, action in zip(recording.obs, recording.actions, strict=True):
        acted = agent.exploit(learner, View(jnp.asarray(obs)[None], memory=memory))
        memory = acted.memory
        assert np.asarray(acted.action)[0] == action
    assert len(recording.actions) > 1
    program.close()
