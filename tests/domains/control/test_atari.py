"""Atari's preprocessing: small pictures, lives that end episodes and not games, true scores in evaluation."""

import re
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest

from proxima.core.errors import ProximaError
from proxima.domains.control import envpool, pools
from proxima.domains.control import gymnasium as adapter
from proxima.domains.control.atari import Frames, resized, whole_games, wrapped
from proxima.domains.control.config import AtariConfig, EnvConfig

BREAKOUT = EnvConfig(
    name="ALE/Breakout-v5", backend="gymnasium", frame_stack=4, atari=AtariConfig()
)


class Console(gymnasium.Env):
    """A game of three lives of five frames each; every frame earns 2 and shows its number."""

    observation_space = gymnasium.spaces.Box(0, 255, (12, 10), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self.games, self.frame, self.actions = 0, 0, []
        self.ale = SimpleNamespace(lives=lambda: 3 - self.frame // 5)

    def get_action_meanings(self):
        return ["NOOP", "FIRE"]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.games, self.frame, self.actions = self.games + 1, 0, []
        return self._obs(), {}

    def step(self, action):
        self.frame += 1
        self.actions.append(action)
        return self._obs(), 2.0, self.frame == 15, False, {}

    def _obs(self):
        bright = self.frame if self.frame % 2 else 100 + self.frame  # every second frame flickers
        return np.full((12, 10), bright, np.uint8)


def game(**settings):
    config = AtariConfig(frame_skip=2, screen_size=6, noop_max=0, fire_on_reset=False)
    config = replace(config, **settings)
    return wrapped(Console(), EnvConfig(name="Console", atari=config))


def test_a_smaller_picture_is_the_mean_of_areas():
    picture = np.random.default_rng(0).integers(0, 256, (21, 16), np.uint8)
    fine = np.kron(picture, np.ones((8, 9)))  # divisible by both sizes: 168 × 144
    expected = fine.reshape(8, 21, 9, 16).mean((1, 3))
    np.testing.assert_allclose(resized(picture, 8, 9), expected, atol=0.51)
    colours = resized(np.stack([picture, picture // 2, picture], -1), 8, 9)
    np.testing.assert_array_equal(colours[..., 0], resized(picture, 8, 9))
    assert colours.shape == (8, 9, 3)


def test_a_step_is_some_frames_and_shows_the_larger_of_the_last_two():
    env = game(episodic_life=False, clip_rewards=False)
    env.reset(seed=0)
    obs, reward, *_ = env.step(1)
    assert reward == 4.0 and (obs == 102).all() and env.unwrapped.actions == [1, 1]
    obs, *_ = env.step(0)
    assert (obs == 104).all() and obs.shape == (6, 6)


def test_the_loss_of_a_life_ends_the_episode_and_not_the_game():
    env = game(frame_skip=1)
    console = env.unwrapped
    env.reset(seed=0)
    lengths = []
    for _ in range(3):
        length, terminated = 0, False
        while not terminated:
            _, reward, terminated, truncated, _ = env.step(0)
            assert not truncated and reward == 1.0  # 2, clipped
            length += 1
        lengths.append(length)
        assert console.games == 1
        if len(lengths) < 3:
            env.reset()
            assert console.games == 1  # the same game goes on, by a step of doing nothing
    assert lengths == [5, 4, 4] and console.frame == 15
    env.reset()
    assert console.games == 2 and console.frame == 0
    env.step(0)
    env.reset(seed=3)  # a seed always begins a game
    assert console.games == 3


def test_evaluation_plays_whole_games_with_their_true_score():
    config = EnvConfig(name="Console", atari=AtariConfig(noop_max=0, fire_on_reset=False))
    env = wrapped(Console(), whole_games(config))
    env.reset(seed=0)
    total, terminated, steps = 0.0, False, 0
    while not terminated:
        _, reward, terminated, _, _ = env.step(0)
        total, steps = total + reward, steps + 1
    assert (total, steps) == (30.0, 4)
    assert isinstance(env.env, Frames)


def test_a_game_begins_with_waiting_and_the_fire_button():
    begun = set()
    env = game(noop_max=4, fire_on_reset=True)
    for seed in range(20):
        env.reset(seed=seed)
        assert env.unwrapped.actions[-2:] == [1, 1]  # a step of two frames
        begun.add(env.unwrapped.actions.count(0))
    assert begun == {1, 2, 3, 4}


def test_the_fire_button_is_pressed_after_every_life_in_whole_games_too():
    env = game(frame_skip=1, fire_on_reset=True, episodic_life=False, clip_rewards=False)
    env.reset(seed=0)
    rewards, terminated = [], False
    while not terminated:
        _, reward, terminated, truncated, _ = env.step(0)
        rewards.append(reward)
    assert [frame for frame, action in enumerate(env.unwrapped.actions) if action == 1] == [
        0,
        5,
        10,
    ]
    assert sum(rewards) == 28.0 and not truncated  # of 15 frames, all but the reset's


def test_a_limit_counts_steps_of_the_game_not_frames():
    config = AtariConfig(frame_skip=2, noop_max=0, fire_on_reset=False, episodic_life=False)
    env = wrapped(Console(), EnvConfig(name="Console", max_steps_per_episode=3, atari=config))
    env.reset(seed=0)
    assert [env.step(0)[3] for _ in range(3)] == [False, False, True]


@pytest.mark.parametrize("backend", ["gymnasium", "envpool"])
def test_both_backends_show_bytes_and_end_with_lives_in_training_alone(backend):
    config = replace(BREAKOUT, backend=backend)
    if backend == "envpool":
        config = replace(config, name="Breakout-v5")
    shape = (84, 84, 4) if backend == "gymnasium" else (4, 84, 84)
    made = pools.make_pools(config, print)
    train, evaluate = made.train(2)[0], made.evaluate(2, False)
    assert train.observation_space.shape == evaluate.observation_space.shape == shape
    assert pools.translation(config).interface.observation["dtype"] == "uint8"
    ended = []
    for pool in (train, evaluate):
        assert pool.reset([1, 2]).dtype == np.uint8
        rows = [pool.step(np.zeros(2, np.int32)) for _ in range(100)]
        ended.append(sum(int(row.terminated.sum()) for row in rows))
        assert rows[-1].obs.dtype == np.uint8 and rows[-1].obs.shape == (2, *shape)
        pool.close()
    # Whoever never moves loses the ball within some thirty steps, and has five.
    assert ended[0] >= 2 and ended[1] == 0


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (
            EnvConfig(name="CartPole-v1", backend="gymnasium", atari=AtariConfig()),
            "env.atari: CartPole-v1 is none of the games of Atari",
        ),
        (replace(BREAKOUT, params={"frameskip": 2}), "env.params.frameskip: the section env.atari"),
    ],
)
def test_what_is_no_game_or_said_twice_is_refused(config, words):
    with pytest.raises(ProximaError, match=words):
        adapter.make_env(config)
    name = "Breakout-v5" if config.params else config.name
    params = {"frame_skip": 2} if config.params else {}
    with pytest.raises(ProximaError, match=words.replace("frameskip", "frame_skip")):
        envpool.EnvPool(replace(config, name=name, backend="envpool", params=params), 1)


def test_the_page_about_pictures_has_every_setting_and_its_default():
    page = (Path(__file__).parents[3] / "docs" / "pictures.md").read_text()
    section = page.partition("| `env.atari` |")[2].partition("\n\n")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (\S+) \|", section, re.MULTILINE))
    defaults = {field.name: field.default for field in fields(AtariConfig)}
    words = {True: "true", False: "false"}
    told = {
        name: words[value] if isinstance(value, bool) else f"{value:g}"
        for name, value in defaults.items()
    }
    assert rows == told
