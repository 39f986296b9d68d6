"""Atari's games as they are usually learnt from: the settings of `env.atari`, for ALE and for EnvPool.

    every step        frame_skip frames of the game; of the last two the larger is seen, pixel by pixel
    what is seen      shades of grey, screen_size × screen_size, each pixel the mean of those it covers
    a game's start    up to noop_max frames of doing nothing
    a life's start    the fire button, where there is one: some games stand still without
    in training       rewards are clipped to their sign, and the loss of a life ends the episode, not the
                      game: after it the same game goes on
    in evaluation     whole games and their true scores, whatever the settings for training are

Worker processes import this file too: JAX is not imported here.
"""

from dataclasses import replace
from functools import cache
from typing import Any, final

import gymnasium
import numpy as np
from gymnasium.wrappers import TimeLimit

from proxima.core.errors import ProximaError
from proxima.domains.control.config import AtariConfig, EnvConfig

# What `env.atari` decides, and `env.params` must not say again.
ALE_SETTINGS = ("obs_type", "frameskip", "repeat_action_probability", "full_action_space")
ENVPOOL_SETTINGS = (
    *("stack_num", "frame_skip", "noop_max", "episodic_life", "reward_clip", "use_fire_reset"),
    *("img_height", "img_width", "full_action_space", "repeat_action_probability", "gray_scale"),
)
FIRE = "FIRE"
NOTHING = 0  # the action that every game has


def whole_games(config: EnvConfig) -> EnvConfig:
    """The settings for evaluation and films: games from first to last life, with their true scores."""
    if config.atari is None:
        return config
    return replace(config, atari=replace(config.atari, episodic_life=False, clip_rewards=False))


def ale_settings(config: EnvConfig) -> dict[str, Any]:
    """What gymnasium.make is told for a game; without the section `env.atari`, nothing."""
    if config.atari is None:
        return {}
    _check(config, ALE_SETTINGS, config.name.startswith("ALE/"), "ALE/Pong-v5")
    return {
        "obs_type": "grayscale" if config.atari.grayscale else "rgb",
        "frameskip": 1,  # frames are skipped here, where the last two are still known
        "repeat_action_probability": config.atari.repeat_action_probability,
        "full_action_space": config.atari.full_action_space,
    }


def envpool_settings(config: EnvConfig, known: Any) -> dict[str, Any]:
    """What envpool.make is told for a game; `known` are the settings that the environment has."""
    atari = config.atari
    if atari is None:
        return {}
    _check(config, ENVPOOL_SETTINGS, "episodic_life" in known, "Pong-v5")
    return {
        "stack_num": 1,  # env.frame_stack stacks, here as everywhere
        "frame_skip": atari.frame_skip,
        "noop_max": max(atari.noop_max, 1),  # EnvPool draws from 1 to this many, and at least 1
        "episodic_life": atari.episodic_life,
        "reward_clip": atari.clip_rewards,
        "use_fire_reset": atari.fire_on_reset,
        "img_height": atari.screen_size,
        "img_width": atari.screen_size,
        "full_action_space": atari.full_action_space,
        "repeat_action_probability": atari.repeat_action_probability,
        "gray_scale": atari.grayscale,
    }


def wrapped(env: Any, config: EnvConfig) -> Any:
    """ALE's environment as the section `env.atari` says; without it, as it is."""
    atari = config.atari
    if atari is None:
        return env
    env = Frames(env, atari)
    if config.max_steps_per_episode is not None:
        env = TimeLimit(env, config.max_steps_per_episode)
    env = Lives(env, atari.episodic_life, atari.fire_on_reset)
    return Signs(env) if atari.clip_rewards else env


def _check(config: EnvConfig, decided: tuple[str, ...], is_atari: bool, example: str) -> None:
    if not is_atari:
        raise ProximaError(
            f"env.atari: {config.name} is none of the games of Atari that {config.backend} has, such as "
            f"{example}; leave the section out"
        )
    for name in config.params:
        if name in decided:
            raise ProximaError(
                f"env.params.{name}: the section env.atari decides that; say it there, or leave env.atari out"
            )


@final
class Frames(gymnasium.Wrapper):
    """A step is some frames of the game, and shows the last two as one small picture."""

    def __init__(self, env: Any, config: AtariConfig):
        super().__init__(env)
        self._config = config
        shown = env.observation_space.shape
        size = (config.screen_size, config.screen_size)
        self.observation_space = gymnasium.spaces.Box(0, 255, (*size, *shown[2:]), np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        """The start of a game, after a random number of frames."""
        obs, info = self.env.reset(seed=seed, options=options)
        random = self.env.unwrapped.np_random
        count = int(random.integers(1, self._config.noop_max + 1)) if self._config.noop_max else 0
        for _ in range(count):
            obs, _, terminated, truncated, info = self.env.step(NOTHING)
            if terminated or truncated:
                obs, info = self.env.reset(options=options)
        return self._small(obs), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        """The rewards of all frames, and the larger of the last two pictures."""
        total, frames = 0.0, list[np.ndarray]()
        for _ in range(self._config.frame_skip):
            obs, reward, terminated, truncated, info = self.env.step(action)
            frames = [*frames[-1:], obs]
            total += float(reward)
            if terminated or truncated:
                break
        # the console of 1977 draws some things in every second frame only
        return self._small(np.maximum(frames[0], frames[-1])), total, terminated, truncated, info

    def _small(self, picture: np.ndarray) -> np.ndarray:
        return resized(picture, self._config.screen_size, self._config.screen_size)


@final
class Lives(gymnasium.Wrapper):
    """Every life begins with the fire button, where a game has one; with `ends`, it is an episode of its own.

    Only when the game itself has ended does a reset then begin another.
    """

    def __init__(self, env: Any, ends: bool, fires: bool):
        super().__init__(env)
        console: Any = env.unwrapped
        meanings = console.get_action_meanings()
        self._first = meanings.index(FIRE) if fires and FIRE in meanings else None
        self._ends = ends
        self._lives = 0
        self._is_over = True

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        """A new game, or the next life of this one; a step shows it."""
        action = self._first
        if self._is_over or seed is not None:
            obs, info = self.env.reset(seed=seed, options=options)
        else:
            action = NOTHING if action is None else action
        if action is not None:
            obs, _, terminated, truncated, info = self.env.step(action)
            if terminated or truncated:
                obs, info = self.env.reset(options=options)
        self._is_over = False
        self._lives = self._left()
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict]:
        """The loss of a life is an ending, or followed by the fire button: else some games stand still."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        lives = self._left()
        lost = 0 < lives < self._lives  # Qbert shows 0 for some frames before its game is over
        self._lives = lives
        if lost and not self._ends and self._first is not None and not (terminated or truncated):
            obs, more, terminated, truncated, info = self.env.step(self._first)
            reward = float(reward) + float(more)
        self._is_over = terminated or truncated
        ends = lost and self._ends
        return obs, reward, terminated or ends, truncated and not ends, info

    def _left(self) -> int:
        console: Any = self.env.unwrapped
        return int(console.ale.lives())


@final
class Signs(gymnasium.RewardWrapper):
    """Rewards are −1, 0 or 1."""

    def reward(self, reward: Any) -> float:
        """The sign."""
        return float(np.sign(reward))


def resized(picture: np.ndarray, height: int, width: int) -> np.ndarray:
    """The picture in that size, each of its pixels the mean of the area that it covers."""
    rows = _averaged(picture.astype(np.float32), height)
    small = _averaged(rows.swapaxes(0, 1), width).swapaxes(0, 1)
    return np.rint(small).astype(np.uint8)


def _averaged(rows: np.ndarray, few: int) -> np.ndarray:
    """`few` rows in the place of many."""
    index, share = area_shares(len(rows), few)
    share = share.reshape(*share.shape, *(1,) * (rows.ndim - 1))
    # Sums of a few rows, no product of matrices: that would wake threads for a tenth of a millisecond's work.
    return sum(rows[index[k]] * share[k] for k in range(len(index)))


@cache
def area_shares(many: int, few: int) -> tuple[np.ndarray, np.ndarray]:
    """Which of `many` rows each of `few` equal parts covers, and its share of them, both (k, few)."""
    edges = np.arange(few + 1) * (many / few)
    first = np.floor(edges[:-1]).astype(int)
    index = first[None] + np.arange(int(np.ceil(many / few)) + 1)[:, None]
    covered = np.minimum(edges[None, 1:], index + 1) - np.maximum(edges[None, :-1], index)
    share = np.maximum(covered, 0.0) * (few / many)
    return np.minimum(index, many - 1), share.astype(np.float32)
