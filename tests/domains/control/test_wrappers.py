"""Wrappers by their paths: around every environment, in their order, or refused in words."""

import gymnasium
import numpy as np
import own_envs
import pytest
from own_compiled import Corridor as CompiledCorridor

import proxima
from proxima.core.errors import ProximaError
from proxima.core.functions import imports_in
from proxima.core.spaces import MultiDiscrete, box
from proxima.domains.control import gymnasium as adapter
from proxima.domains.control import pools
from proxima.domains.control.config import EnvConfig, WrapperConfig
from proxima.domains.control.domain import build
from proxima.scenario import dump, from_mapping, parse, to_mapping
from proxima.scenario.schema import json_schema

SCALED = WrapperConfig(path="own_envs:Scaled", params={"by": 2.0})
SHIFTED = "own_envs:shifted"
FLAT = "gymnasium.wrappers:FlattenObservation"


def scenario(wrappers, **env):
    settings = {"backend": "gymnasium", "wrappers": wrappers, **env}
    return from_mapping({"name": "wrapped", "env": settings}, "wrapped")


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("wrappers", "first"), [((SCALED, SHIFTED), 2 * 0 + 1), ((SHIFTED, SCALED), 2 * (0 + 1))]
)
def test_the_first_is_the_innermost_in_this_process_and_in_workers(workers, wrappers, first):
    config = EnvConfig(backend="own_envs:Corridor", workers=workers, wrappers=wrappers)
    assert pools.translation(config).observation_space == box(first, first + 2, (1,))
    pool = pools.make_pools(config, print).evaluate(2, False)
    try:
        assert pool.reset([0, 1]).tolist() == [[first]] * 2
        assert pool.step(np.array([1, 0])).obs.tolist() == [[first + 0.5], [first]]
    finally:
        pool.close()


@pytest.mark.parametrize(
    ("wrapper", "words"),
    [
        ("gymnasium.wrappers:FlatenObservation", r"env.wrappers.0: .* did you mean FlattenObserv"),
        ("no_such_module:Wrapper", "env.wrappers.0: cannot import no_such_module"),
        ("sys:path", "env.wrappers.0: sys:path is a list, not a gymnasium.Wrapper"),
        ("own_envs:make_nothing", "env.wrappers.0.params: .* refuses {}: too many .* none"),
        ("builtins:repr", "env.wrappers.0: builtins:repr gave a str, not a gymnasium.Env"),
        ("own_envs:Scaled", "env.wrappers.0.params: .*missing .*'by'; its settings: by"),
        (
            {"path": "own_envs:Scaled", "params": {"bye": 2}},
            r"env.wrappers.0.params.bye: own_envs:Scaled has no such setting; did you mean by\?",
        ),
        ("gymnasium.wrappers:GrayscaleObservation", "cannot be put around .*CartPole.*Assertion"),
        ("gymnasium.wrappers:NormalizeReward", "set algorithm.normalize_rewards to true"),
        ("gymnasium.wrappers:NormalizeObservation", "algorithm.normalize_observations to true"),
    ],
)
def test_what_does_not_wrap_is_told_by_its_place(wrapper, words):
    config = scenario([wrapper], name="CartPole-v1").env
    with pytest.raises(ProximaError, match=words):
        adapter.make_env(config)


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (
            {"wrappers": [FLAT], "backend": "gymnax"},
            "env.wrappers: .*env.backend gymnax has others",
        ),
        ({"wrappers": [FLAT], "backend": "envpool"}, "env.wrappers: .*env.backend to gymnasium"),
        ({"wrappers": FLAT}, "env.wrappers: expected a list"),
        ({"wrappers": [3]}, "env.wrappers.0: expected text or keys and values, got 3"),
        (
            {"wrappers": [FLAT, {"pth": FLAT}]},
            r"env.wrappers.1.pth: unknown key; did you mean path\?",
        ),
        ({"wrappers": ["python:x-1"], "workers": 1}, "env.workers: 1, and .* make a wrapper that"),
    ],
)
def test_settings_that_cannot_be_are_faults_of_the_scenario(env, words):
    with pytest.raises(ProximaError, match=words):
        scenario(**env)


def test_a_compiled_environment_takes_none():
    trainer = proxima.PPOTrainer(CompiledCorridor(), wrappers=[FLAT])
    with pytest.raises(ProximaError, match=r"env.wrappers: Corridor is compiled .* wrap it where"):
        build(trainer.scenario)


def test_a_scenario_holds_them_and_says_what_they_import():
    read = scenario([FLAT, {"path": "own_envs:Scaled", "params": {"by": 2}}])
    again = from_mapping(parse(dump(read), "again"), "again")
    assert again == read and again.env.wrappers[1].params == {"by": 2}
    adapter.make_env(read.env).close()
    told = [line for line in imports_in(to_mapping(read)) if "own_envs" in line]
    assert told == [f"Imports own_envs ({own_envs.__file__}), named by env.wrappers.1.path."]
    definition = json_schema()["$defs"]["EnvConfig"]["properties"]["wrappers"]
    assert definition["type"] == "array" and "FlattenObservation" in definition["description"]


def test_a_wrapped_environment_is_trained_in_evaluated_and_predicted_for(tmp_path, monkeypatch):
    """Actions are a Dict with a Tuple in it, observations a Tuple: unlike choices, learnt on the host."""
    monkeypatch.chdir(tmp_path)
    trainer = proxima.PPOTrainer(
        own_envs.Corridor,
        wrappers=[lambda env: gymnasium.wrappers.TimeLimit(env, 12), own_envs.Parted],
        params={"size": 2},
        **{"num_envs": 8, "max_steps": 4096, "max_episodes": None, "batch_size": 256},
        **{"minibatch_size": 64, "learning_rate": 1e-2, "hidden": [16], "updates_per_chunk": 8},
        **{"eval_episodes": 2, "final_episodes": 4, "film": False, "progress": False},
    )
    assert pools.translation(trainer.scenario.env).action_space == MultiDiscrete(3, 2, (2, 3))
    result = trainer.train()
    assert result.evaluation.return_mean == 1.0
    assert trainer.evaluate(2)["return_mean"] == 1.0  # made again from what the run wrote
    action = trainer.predict((np.zeros(1, np.float32),))
    assert own_envs.Parted.action_space.contains(action) and action == {"left": 0, "others": (7,)}
    many = trainer.predict({"0": np.zeros((3, 1))})
    assert many["left"].tolist() == [0] * 3 and many["others"][0].tolist() == [7] * 3
    assert "left, others.0" in repr(trainer.policy)
