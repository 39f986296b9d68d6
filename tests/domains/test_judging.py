"""Exported policies act in the environment's own terms, and just as an evaluation does."""

import json
import re
from itertools import cycle
from pathlib import Path
from typing import ClassVar

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array
from probes import AnswerProbe

import proxima
from proxima.core.spaces import Discrete, MultiDiscrete, box, fields, mask_space, multi_discrete
from proxima.core.types import Step
from proxima.domains import judging
from proxima.domains.control.domain import build
from proxima.domains.domain import Trained
from proxima.run.policy import load_policy
from proxima.train import checkpoint

SMALL = {
    "hidden": [8],
    "num_envs": 2,
    "batch_size": 8,
    "minibatch_size": 8,
    "final_episodes": 2,
    "progress": False,
}
EPISODE = 4
SEEN = spaces.Box(-1, 1, (3,), np.float32)
MASKED = spaces.Dict({"seen": SEEN, "action_mask": spaces.MultiBinary(3)})
OBSERVATIONS = {
    "64 bits": spaces.Box(-np.inf, np.inf, (2, 2), np.float64),
    "pixels": spaces.Box(0, 255, (2, 3), np.uint8),
    "a number of a few": spaces.Discrete(4, start=-2),
    "a number of many": spaces.Discrete(5_000, start=7),
    "far from 0": spaces.Discrete(3, start=2**40),
    "flags": spaces.MultiBinary((2, 2)),
    "fields": spaces.Dict(
        {"in": spaces.Dict({"b": spaces.Discrete(3), "a": SEEN}), "c": spaces.MultiBinary(2)}
    ),
    "a tuple": spaces.Tuple([SEEN, spaces.Dict({"b": spaces.MultiDiscrete([2, 3], start=[4, 0])})]),
}
ACTIONS = {
    "choices": spaces.Discrete(3),
    "choices from 5 on": spaces.Discrete(3, start=5),
    "choices far from 0": spaces.Discrete(3, start=2**40),
    "several choices": spaces.MultiDiscrete([3, 3], start=[1, -4]),
    "a table of choices": spaces.MultiDiscrete([[2, 2], [2, 2]]),
    "numbers": spaces.Box(-2, 2, (1,), np.float32),
    "a table of numbers": spaces.Box(-0.1, 0.1, (2, 2), np.float64),
    "unlike bounds": spaces.Box(np.float32([10, 0]), np.float32([11, 100])),
    "one number, half bounded": spaces.Box(-np.inf, 0.1, (), np.float64),
    "16 bits": spaces.Box(-0.1, 0.1, (2,), np.float16),
    "flags": spaces.MultiBinary((2, 2)),
    "unlike choices": spaces.MultiDiscrete([[2, 5], [1, 3]], start=[[0, 7], [0, -1]]),
    "a dict of choices": spaces.Dict(
        {"go": spaces.MultiBinary(2), "to": spaces.Tuple([spaces.Discrete(5, start=1)])}
    ),
    "a tuple of numbers": spaces.Tuple([SEEN, spaces.Box(0, 0.1, (), np.float64)]),
}


class Seen(gymnasium.Env):
    """Any spaces: shows random observations, and writes down what it showed and what it was told."""

    log: ClassVar[list] = []

    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.time = 0
        return self._observe(), {}

    def step(self, action):
        action = jax.tree.map(np.array, action)
        Seen.log.append((self.shown, action))
        assert self.action_space.contains(action)
        self.time += 1
        return self._observe(), 0.0, self.time == EPISODE, False, {}

    def _observe(self):
        self.shown = self.observation_space.sample()
        if self.observation_space is MASKED:
            self.shown["action_mask"][self.time % 3] = 1
        return self.shown


class CompiledSeen:
    """The same compiled: what it is told is its reward, so that it can be told from outside."""

    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, key):
        return jnp.int32(0), self._observe(key)

    def step(self, state, action, key):
        assert action.shape == self.action_space.shape
        weights = 1.0 + jnp.arange(action.size, dtype=jnp.float32)
        reward = jnp.sum(action.ravel() * weights)
        ended = state + 1 == EPISODE
        return state + 1, Step(self._observe(key), reward, ended, jnp.zeros_like(ended), {})

    def _observe(self, key):
        if hasattr(self.observation_space, "names"):
            seen = jax.random.normal(key, (3,))
            mask = jax.random.bernoulli(key, 0.5, mask_space(self.action_space).shape)
            return {"seen": seen, "action_mask": mask.at[..., 1].set(True)}
        return jax.random.normal(key, self.observation_space.shape)


def loud(tree):
    """Weights large enough for actions of all kinds, also beyond all bounds."""
    return jax.tree.map(lambda leaf: leaf * 60 if leaf.dtype == jnp.float32 else leaf, tree)


def exported(trainer, tmp_path: Path):
    """The built scenario, its learner, and the policy exported of it; nothing is trained."""
    built = build(trainer.scenario)
    (state,) = checkpoint.split_trials(built.program.init([0]))
    state = state._replace(learner=loud(state.learner))
    checkpoint.save(tmp_path, 0, state, {"scenario": {}, "loop": {}}, keep=2, best=False)
    trained = Trained([state], (), [tmp_path], [tmp_path], lambda lane: [], print)
    judging.export(trainer.scenario, built, trained)
    return built, state.learner, load_policy(tmp_path)


def equal_actions(chosen, told) -> None:
    """The same type and shape; the same choice, or the same number but for its last bits."""
    assert (chosen.dtype, chosen.shape) == (told.dtype, told.shape)
    if told.dtype.kind == "f":
        np.testing.assert_allclose(chosen, told, rtol=1e-4, atol=1e-5)
    else:
        np.testing.assert_array_equal(chosen, told)


def all_actions_are_those_of_an_evaluation(env, tmp_path, train=proxima.PPOTrainer, **settings):
    trainer = train(lambda: Seen(env.observation_space, env.action_space), **SMALL | settings)
    built, learner, policy = exported(trainer, tmp_path)
    Seen.log.clear()
    alone = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], learner)
    built.program.evaluate(alone, "greedy", 2)
    built.program.close()
    assert len(Seen.log) == 2 * EPISODE
    for shown, told in Seen.log:
        action = jax.tree.map(np.asarray, policy.predict(shown))
        assert env.action_space.contains(action)
        jax.tree.map(equal_actions, action, told)
    return policy


def batched(space, samples):
    """Samples side by side, as a vector of environments has them."""
    return concatenate(space, samples, create_empty_array(space, len(samples)))


# Every kind of action, and beside them every kind of observation.
SPACES = [(name, *pair) for name, pair in zip(ACTIONS, cycle(OBSERVATIONS.items()), strict=False)]


@pytest.mark.parametrize(
    ("action", "seen", "observed"), SPACES, ids=[f"{seen}, {told}" for told, seen, _ in SPACES]
)
def test_a_policy_takes_the_environments_observations_and_gives_its_actions(
    action, seen, observed, tmp_path
):
    space = ACTIONS[action]
    policy = all_actions_are_those_of_an_evaluation(Seen(observed, space), tmp_path)
    text = (policy.directory / "policy.json").read_text()
    about = json.loads(text, parse_constant=lambda constant: pytest.fail(constant))
    described = about["action"]
    if isinstance(space, spaces.Dict | spaces.Tuple):
        assert about["format"] == 2 and set(described) == {"fields", "layout"}
        many = batched(observed, [observed.sample() for _ in range(3)])
        assert all(len(leaf) == 3 for leaf in jax.tree.leaves(policy.predict(many)))
        described["layout"] = [next(iter(described["fields"]))]
        (policy.directory / "policy.json").write_text(json.dumps(about))
        with pytest.raises(proxima.ProximaError, match=r"action\.layout does not name every field"):
            load_policy(tmp_path)
        return
    assert about["format"] == 1
    assert (tuple(described["shape"]), described["dtype"]) == (space.shape, str(space.dtype))
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        np.testing.assert_array_equal(described["start"], space.start)


def test_a_policy_heeds_masks_and_its_normaliser(tmp_path):
    env = Seen(MASKED, spaces.Discrete(3, start=5))
    all_actions_are_those_of_an_evaluation(env, tmp_path, normalize_observations=True)
    for shown, told in Seen.log:
        assert shown["action_mask"][told - 5]


def test_deterministic_policies_act_within_bounds_too(tmp_path):
    env = Seen(SEEN, ACTIONS["a table of numbers"])
    sizes = {"minibatch_size": None, "buffer_size": 64, "warmup_steps": 8, "steps_per_update": 4}
    settings = {name: value for name, value in (SMALL | sizes).items() if value is not None}
    trainer = proxima.DDPGTrainer(lambda: env, **settings)
    built, _, policy = exported(trainer, tmp_path)
    built.program.close()
    for _ in range(8):
        assert env.action_space.contains(policy.predict(SEEN.sample()))


COMPILED = {
    "choices": (Discrete(3), spaces.Discrete(3)),
    "several choices": (MultiDiscrete(3, 2), spaces.MultiDiscrete([3, 3])),
    "unlike choices": (multi_discrete((2, 4)), spaces.MultiDiscrete([2, 4])),
    "a table of numbers": (box(-0.1, 0.1, (2, 2)), spaces.Box(-0.1, 0.1, (2, 2))),
    "one number": (box(0.0, 0.1, ()), spaces.Box(0.0, 0.1, ())),
}


@pytest.mark.parametrize(("ours", "theirs"), COMPILED.values(), ids=COMPILED)
def test_policies_of_compiled_environments_too(ours, theirs, tmp_path):
    seen = box(-np.inf, np.inf, (3,))
    masked = not isinstance(theirs, spaces.Box)  # masks are for choices
    observed = fields({"seen": seen, "action_mask": mask_space(ours)}) if masked else seen
    trainer = proxima.PPOTrainer(CompiledSeen(observed, ours), **SMALL)
    built, learner, policy = exported(trainer, tmp_path)
    recording = built.program.record(learner)
    told = policy.predict(recording.obs)
    assert all(theirs.contains(np.asarray(action)) for action in told)
    weights = 1.0 + np.arange(max(1, np.prod(ours.shape, dtype=int)))
    np.testing.assert_allclose(
        told.reshape(EPISODE, -1) @ weights, recording.rewards, rtol=1e-4, atol=1e-5
    )
    json.loads((policy.directory / "policy.json").read_text(), parse_constant=pytest.fail)


def test_a_number_that_gymnax_observes_is_taken_as_the_number(tmp_path):
    built, learner, policy = exported(proxima.PPOTrainer("FrozenLake-misc", **SMALL), tmp_path)
    recording = built.program.record(learner)
    shown = np.argmax(recording.obs, axis=-1)
    np.testing.assert_array_equal(policy.predict(shown), recording.actions)


def test_choices_that_a_compiled_environment_observes_are_taken_as_their_numbers(tmp_path):
    trainer = proxima.PPOTrainer(AnswerProbe(multi_discrete((2, 4))), **SMALL)
    built, learner, policy = exported(trainer, tmp_path)
    assert policy.about["observation"]["n"] == policy.about["action"]["n"] == [2, 4]
    recording = built.program.record(learner)
    shown = [np.argmax(recording.obs[:, :2], axis=1), np.argmax(recording.obs[:, 2:], axis=1)]
    np.testing.assert_array_equal(policy.predict(np.stack(shown, axis=1)), recording.actions)


def test_a_policy_says_what_it_is(tmp_path):
    trainer = proxima.SPOTrainer("CartPole-v1", hidden=[8], num_envs=2, progress=False)
    _, _, policy = exported(trainer, tmp_path)
    assert "without the search" in policy.about["policy"]
    assert policy.about["checkpoint"] == {"kind": "last", "step": 0}
    assert policy.about["observation"]["low"] and policy.about["format"] == 1


def test_a_program_is_the_same_wherever_it_was_written(tmp_path):
    trainer = proxima.PPOTrainer("Pendulum-v1", **SMALL)
    first, second = (exported(trainer, tmp_path / name)[2] for name in "ab")
    programs = [(p.directory / "policy.stablehlo").read_bytes() for p in (first, second)]
    assert programs[0] == programs[1]
    source = str(Path(judging.__file__).parents[3]).encode()
    assert source not in programs[0] and b".py" not in programs[0]


def test_predictions_are_refused_in_words_where_they_would_be_guesses(tmp_path):
    env = Seen(spaces.Dict({"kind": spaces.Discrete(3), "seen": SEEN}), ACTIONS["choices"])
    built, _, policy = exported(proxima.PPOTrainer(lambda: env, **SMALL), tmp_path)
    built.program.close()
    whole = {"kind": 1, "seen": np.zeros(3)}
    assert policy.predict(whole).shape == ()
    assert policy.predict({"kind": [1, 2], "seen": np.zeros((2, 3))}).shape == (2,)
    for wrong, words in (
        ({"kind": 3}, "an observation of kind is not among the 3 from 0 on"),
        ({"kind": 0.5}, "an observation of kind is no int64"),
        ({"kind": [1, 1, 1]}, "not equally many: 3 of kind, 1 of seen"),
        ({"seen": np.zeros((3, 2))}, r"of seen have shape (3, 2)"),
    ):
        with pytest.raises(proxima.ProximaError, match=re.escape(words)):
            policy.predict(whole | wrong)
