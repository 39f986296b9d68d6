"""Gymnasium's pools: both ways to reset against a plain loop, and refusals in words."""

import os
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from host_envs import COUNTER, MODES, make_pool
from known_envs import Counter

from proxima.core.errors import ProximaError
from proxima.core.spaces import Box, Discrete, box
from proxima.domains.control import gymnasium as adapter
from proxima.domains.control.config import EnvConfig
from proxima.domains.control.gymnasium_spaces import translate


class Structured(Counter):
    observation_space = gymnasium.spaces.Dict(
        {"a": gymnasium.spaces.Tuple([gymnasium.spaces.Text(5)])}
    )


class ManyActions(Counter):
    action_space = gymnasium.spaces.Dict(
        {"gear": gymnasium.spaces.Discrete(3), "steer": gymnasium.spaces.Box(-1, 1)}
    )


def needs_a_package():
    raise gymnasium.error.DependencyNotInstalled('run `pip install "gymnasium[box2d]"`')


for entry_point in (Structured, ManyActions, needs_a_package):
    gymnasium.register(f"Test{entry_point.__name__}-v0", entry_point=entry_point)


def plain_loop(seed: int, actions: np.ndarray) -> list[tuple]:
    """The transitions of one Counter, by hand; actions count from 0 as the agent's do."""
    env, rows = Counter(), []
    obs, _ = env.reset(seed=seed)
    for action in actions:
        next_obs, reward, terminated, truncated, _ = env.step(int(action) - 1)
        rows.append((tuple(obs), reward, tuple(next_obs), terminated, truncated))
        obs = env.reset()[0] if terminated or truncated else next_obs
    return rows


def masked_transitions(pool, seeds: list[int], actions: np.ndarray) -> list[list[tuple]]:
    """The real transitions of a pool, environment i taking actions[i]; checks the fake ones."""
    obs = pool.reset(seeds)
    rows: list[list[tuple]] = [[] for _ in seeds]
    ended_before = np.zeros(len(seeds), bool)
    while min(map(len, rows)) < actions.shape[1]:
        taken = [min(len(row), actions.shape[1] - 1) for row in rows]
        step = pool.step(actions[np.arange(len(seeds)), taken])
        assert step.obs.dtype == step.next_obs.dtype == step.reward.dtype == np.float32
        ended = step.terminated | step.truncated
        for i, real in enumerate(step.mask):
            if real:
                endings = (bool(step.terminated[i]), bool(step.truncated[i]))
                rows[i].append((tuple(obs[i]), step.reward[i], tuple(step.next_obs[i]), *endings))
            else:
                assert ended_before[i] and step.reward[i] == 0 and not ended[i]
        obs, ended_before = step.obs, ended
    return [row[: actions.shape[1]] for row in rows]


def test_every_mode_gives_the_transitions_of_a_plain_loop():
    seeds = [0, 1, 2, 7]
    actions = np.random.default_rng(0).integers(0, 3, (len(seeds), 30))
    expected = [plain_loop(seed, row) for seed, row in zip(seeds, actions, strict=True)]
    endings = {row[3:] for rows in expected for row in rows}
    assert endings == {(False, False), (True, False), (False, True)}
    for pool in (make_pool(COUNTER, len(seeds), mode) for mode in MODES):
        assert masked_transitions(pool, seeds, actions) == expected
        assert masked_transitions(pool, seeds, actions) == expected  # a reset forgets old endings
        pool.close()


@pytest.mark.parametrize(("mode", "fakes"), [("same_step", 0), ("next_step", 1)])
def test_only_next_step_mode_has_fake_rows(mode, fakes):
    pool = make_pool(COUNTER, 1, mode)
    pool.reset([0])  # the first episode is one step long
    first, second = pool.step(np.array([0])), pool.step(np.array([0]))
    assert first.mask.all() and first.truncated.all()
    assert (~second.mask).sum() == fakes
    assert first.next_obs[0].tolist() == [0, 1, -1]
    assert first.obs[0].tolist() == ([0, 1, -1] if fakes else [1, 0, 0])
    assert second.obs[0].tolist() == ([1, 0, 0] if fakes else [1, 1, -1])


def test_an_environment_may_reuse_the_memory_of_its_observations():
    actions = np.random.default_rng(1).integers(0, 3, (2, 20))
    expected = [plain_loop(seed, row) for seed, row in zip((4, 5), actions, strict=True)]
    pool = adapter.make_pool(EnvConfig(name="TestRecycler-v0"), 2)
    assert masked_transitions(pool, [4, 5], actions) == expected


def test_spaces_and_actions_are_translated():
    observation_space, action_space = adapter.spaces(COUNTER)
    assert observation_space == Box((3,), (-np.inf,) * 3, (np.inf,) * 3, "float32")
    assert action_space == Discrete(3)
    pool = adapter.make_pool(EnvConfig(name="TestBounded-v0"), 2)
    assert pool.observation_space == Box((2, 1), (0.0, 0.0), (255.0, 255.0), "uint8")
    assert pool.action_space == Box((2,), (-1.0, -2.0), (1.0, 2.0), "float32")
    assert pool.reset([0, 0]).dtype == np.uint8
    step = pool.step(np.array([[9.0, 0.5], [-0.5, -9.0]], np.float32))
    assert step.reward.tolist() == [6.0, -20.5] and step.next_obs.dtype == np.uint8
    frozen_lake = adapter.make_pool(EnvConfig(name="FrozenLake-v1"), 2)
    assert frozen_lake.observation_space == box(0, 1, (16,), "bool")
    assert frozen_lake.reset([0, 1]).tolist() == [[True] + [False] * 15] * 2


def test_whole_numbers_too_large_for_32_bits_do_not_wrap_around():
    wide = gymnasium.spaces.Box(0, 2**40, (2,), np.int64)
    found = translate("wide", wide, gymnasium.spaces.Discrete(2))
    values = np.array([[2**40, 2**33 + 5]])
    assert np.array_equal(found.rows(values), values.astype(np.float32))
    store = np.zeros((1, 2), found.observation_space.dtype)
    found.put(store, 0, values[0])
    assert np.array_equal(store, values.astype(np.float32))
    many = translate("many", gymnasium.spaces.Discrete(2**40), gymnasium.spaces.Discrete(2))
    assert found.rows(2**39) == many.rows(2**39) == np.float32(2**39)
    narrow = gymnasium.spaces.Box(0, 2**31 - 1, (2,), np.int64)
    assert translate("n", narrow, gymnasium.spaces.Discrete(2)).observation_space.dtype == "int32"


def test_fields_whose_joined_names_are_the_same_are_refused():
    number = gymnasium.spaces.Box(0, 1)
    nested = gymnasium.spaces.Dict(
        {"a.b": number, "a": gymnasium.spaces.Dict({"b": number, "c": number})}
    )
    with pytest.raises(ProximaError, match="same name"):
        translate("nested", nested, gymnasium.spaces.Discrete(2))


def test_an_episode_is_cut_at_the_limit_of_the_scenario():
    pool = adapter.make_pool(EnvConfig(name="CartPole-v1", max_steps_per_episode=3), 2)
    pool.reset([0, 1])
    steps = [pool.step(np.zeros(2, int)) for _ in range(6)]
    assert [step.truncated.all() for step in steps] == [False, False, True] * 2
    assert not any(step.terminated.any() for step in steps)


def test_an_environment_that_raises_is_named_with_its_step_and_message():
    config = EnvConfig(name="TestCounter-v0", params={"raises_at": 3})
    pool = adapter.make_pool(config, 3)
    pool.reset([0, 1, 0])  # episodes last 1, 2, 3 or 2, 3, 1 steps; only a third step raises
    with pytest.raises(ProximaError, match=r"environment 1 of 3.*step 5.*wheel came off") as caught:
        for _ in range(9):
            pool.step(np.zeros(3, int))
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (EnvConfig(name="CartPol-v1"), "did you mean CartPole-v1"),
        (EnvConfig(name="CartPole-v99"), "CartPole-v1"),
        (EnvConfig(name="ALE/Pnog-v5"), "did you mean ALE/Pong-v5"),
        (EnvConfig(name="no_such_module:Thing-v0"), "there is no module no_such_module"),
        (EnvConfig(name="what is this?"), "could not make"),
        (EnvConfig(name="Testneeds_a_package-v0"), r'pip install "gymnasium\[box2d\]"'),
        (EnvConfig(name="CartPole-v1", params={"suton_barto": True}), "sutton_barto_reward"),
        (
            EnvConfig(name="TestStructured-v0"),
            r"field 'a\.0' of the observation space is Text.*env.wrappers.*FlattenObservation",
        ),
        (
            EnvConfig(name="TestManyActions-v0"),
            r"mixes choices \(gear\) with numbers \(steer\).*ActionWr",
        ),
    ],
)
def test_what_cannot_be_made_is_refused_in_words(config, words):
    with pytest.raises(ProximaError, match=words):
        adapter.make_pool(config, 2)
    with pytest.raises(ProximaError, match=words):
        adapter.spaces(config)


PICTURE = """
from contextlib import closing
from proxima.domains.control.config import EnvConfig
from proxima.domains.control.gymnasium import make_env
with closing(make_env(EnvConfig(name="CartPole-v1", backend="gymnasium"), render=True)) as env:
    env.reset(seed=0)
    assert env.render().ndim == 3
"""


@pytest.mark.parametrize("given", [{}, {"SDL_AUDIODRIVER": "disk"}])
def test_pictures_ask_for_no_sound_and_no_screen_unless_the_user_does(given, tmp_path):
    ours = ("SDL_AUDIODRIVER", "SDL_VIDEODRIVER", "XDG_RUNTIME_DIR", "DISPLAY", "WAYLAND_DISPLAY")
    left = {name: value for name, value in os.environ.items() if name not in ours}
    program = PICTURE + "import os; print(os.environ['SDL_AUDIODRIVER'])"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=left | given,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done
    assert done.stderr == "" or given, done  # SDL itself warns of that driver
    assert done.stdout.split() == [given.get("SDL_AUDIODRIVER", "dummy")]
