"""What every algorithm says of itself is true of the agents it makes."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest
from probes import BOTH, continuous
from problems import problem_of

from proxima.algorithms import ddpg, dqn, ppo, pqn, sac, spo
from proxima.core.seeds import first_keys
from proxima.core.types import TrainState
from proxima.train.compiled.collect import Collector
from proxima.train.compiled.program import update_step

ENVS = 4
SETTINGS = {
    "ppo": (ppo.ALGORITHM, ppo.PPOConfig(batch_size=64, minibatch_size=32), 16),
    "ddpg": (ddpg.ALGORITHM, ddpg.DDPGConfig(name="ddpg", batch_size=8, steps_per_update=3), 3),
    "sac": (sac.ALGORITHM, sac.SACConfig(name="sac", batch_size=8, steps_per_update=3), 3),
    "dqn": (dqn.ALGORITHM, dqn.DQNConfig(name="dqn", batch_size=8, steps_per_update=3), 3),
    "pqn": (pqn.ALGORITHM, pqn.PQNConfig(name="pqn", batch_size=64, minibatch_size=16), 16),
    "spo": (spo.ALGORITHM, spo.SPOConfig(name="spo", sequence_length=5, batch_size=4), 5),
}
DISCRETE = ("dqn", "pqn")  # actions only
every_algorithm = pytest.mark.parametrize("name", SETTINGS)


@every_algorithm
def test_the_panels_are_metrics_of_an_update(name):
    algorithm, config, steps = SETTINGS[name]
    assert config.name == name and isinstance(config, algorithm.config)
    assert algorithm.rollout_steps(config, ENVS) == steps
    env = BOTH if name in DISCRETE else continuous(BOTH)
    agent = algorithm.make(
        config, problem_of((env.observation_space, env.action_space), ENVS, env=env)
    )
    collector = Collector(env, ENVS, steps)

    def one_update():
        keys = first_keys(jnp.uint32(0), ENVS)
        state = TrainState(agent.init(keys.weights), collector.init(keys.resets), keys.streams)
        return update_step(agent, collector, state)[1]

    metrics = jax.eval_shape(one_update)
    drawn = [panel.metric for panel in algorithm.panels]
    assert set(drawn) <= set(metrics) and len(set(drawn)) == len(drawn)
    assert any(metric.startswith("loss/") for metric in drawn)


def test_what_the_devices_share_and_when_learning_begins():
    shared = {name: each.shared_samples(config) for name, (each, config, _) in SETTINGS.items()}
    assert shared == {"ppo": 32, "ddpg": 1, "sac": 1, "dqn": 1, "pqn": 16, "spo": 1}
    begins = {name: each.learning_begins(config) for name, (each, config, _) in SETTINGS.items()}
    assert begins == {"ppo": 0, "ddpg": 1_008, "sac": 1_008, "dqn": 1_008, "pqn": 0, "spo": 0}
    searching = [name for name, (each, _, _) in SETTINGS.items() if each.acting == "search"]
    assert searching == ["spo"]


@every_algorithm
def test_settings_that_agree_have_no_faults(name):
    algorithm, config, _ = SETTINGS[name]
    scenario = SimpleNamespace(
        algorithm=config,
        env=SimpleNamespace(num_envs=ENVS),
        training=SimpleNamespace(max_steps=1_000),
    )
    assert list(algorithm.checks(scenario)) == []
