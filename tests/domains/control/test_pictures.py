"""Pictures from environment to policy: learnt from, kept as bytes on the way, and exported as bytes."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from corners import LIT, SIDE, CompiledCorners
from problems import problem_of
from tiny import load

import proxima
from proxima.algorithms.ppo import PPOConfig, ppo
from proxima.core.seeds import first_keys, split_streams
from proxima.core.types import Acted, TrainState
from proxima.domains.control.domain import build
from proxima.domains.control.pools import make_pools
from proxima.nets.actor_critic import MLPConfig
from proxima.train.compiled.collect import Collector
from proxima.train.compiled.program import run_updates
from proxima.train.host.collect import HostCollector

ENVS = 8
PPO = PPOConfig(learning_rate=1e-2, batch_size=64, minibatch_size=32, epochs_per_update=4)
HOST = (
    "trials=1",
    "env={name: Corners, backend: 'corners:Corners', num_envs: 8, frame_stack: 2}",
    "network={hidden: [8]}",
    "algorithm={batch_size: 64, minibatch_size: 32, epochs_per_update: 4, learning_rate: 0.01}",
    "training={max_steps: 1280, max_episodes: null}",
    "evaluation={eval_episodes: 4, final_episodes: 16, film: false}",
    "tracking.enabled=false",
)


def test_ppo_learns_from_a_compiled_picture_and_its_rollout_stays_bytes():
    env = CompiledCorners()
    spaces = env.observation_space, env.action_space
    agent = ppo(PPO, problem_of(spaces, ENVS, MLPConfig(hidden=(8,))))
    collector = Collector(env, ENVS, PPO.batch_size // ENVS)
    keys = first_keys(jnp.uint32(0), ENVS)
    state = TrainState(agent.init(keys.weights), collector.init(keys.resets), keys.streams)

    @jax.jit
    def learn(state):
        state, _ = run_updates(agent, collector, state, 20)
        _, use = split_streams(state.key)
        return state, collector(agent, state.learner, state.actors, use)[1]

    state, rollout = learn(state)
    assert rollout.obs.dtype == rollout.next_obs.dtype == jnp.uint8
    assert float(jnp.mean(rollout.reward)) > 0.9
    lit = [env._obs(jnp.int32(corner)) for corner in range(2)]
    np.testing.assert_array_equal(state.learner.net.policy(jnp.stack(lit)).mode(), [0, 1])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on the host whose observations are stacked pictures of bytes."""
    where = tmp_path_factory.mktemp("pictures")
    scenario = load("cartpole", [*HOST, f"output_directory={where}"])
    result = proxima.run_single_experiment(scenario)
    return result, next(where.rglob("policy.json")).parent


def test_ppo_learns_from_pictures_on_the_host(run):
    assert run[0].evaluation.return_mean == 1.0


def test_an_exported_policy_takes_the_bytes_as_they_were_stacked(run):
    about = json.loads((run[1] / "policy.json").read_text())
    assert about["observation"]["dtype"] == "uint8"
    assert about["observation"]["shape"] == [4, SIDE, SIDE]
    pictures = np.zeros((2, 4, SIDE, SIDE), np.uint8)
    pictures[0, ::2, 0, 0] = LIT
    pictures[1, ::2, -1, -1] = LIT
    np.testing.assert_array_equal(proxima.load_policy(run[1]).predict(pictures), [0, 1])


def test_a_rollout_on_the_host_stays_bytes():
    pools = make_pools(load("cartpole", HOST).env, print).train(ENVS)
    spaces = pools[0].observation_space, pools[0].action_space
    agent = ppo(PPO, problem_of(spaces, ENVS))
    collector = HostCollector(agent, pools, trials=1, steps=3)
    collector.reset(np.arange(ENVS)[None])
    actions = np.zeros(ENVS, np.int32)
    rollout, _ = collector.collect(lambda *_: Acted(actions), np.zeros((3, 1, ENVS)))
    assert rollout.obs.dtype == rollout.next_obs.dtype == np.uint8
    assert rollout.obs.shape == (3, ENVS, 4, SIDE, SIDE) and rollout.obs.max() == LIT
    collector.close()


@pytest.mark.parametrize(
    ("name", "torso"), [("Breakout-MinAtar", "minatar"), ("CartPole-v1", None)]
)
def test_a_shipped_environment_gets_the_torso_of_its_shape(name, torso):
    settings = [f"env.name={name}", "env.num_envs=4", "algorithm.batch_size=64"]
    built = build(load("cartpole", [*settings, "algorithm.minibatch_size=32", "trials=1"]))
    torsos = jax.eval_shape(built.agent.init, jax.random.key(0)).net.encoder.torsos
    assert len(torsos) == (torso is not None)
    for made in torsos.values():
        assert made.last.bias.shape == (128,)
