"""What both TorchRL and we are given: weights by a formula, rollouts, noise and settings, in NumPy alone."""

import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

GOLDEN = Path(__file__).parent / "golden_torchrl.json"  # TorchRL's numbers, by `torchrl_oracle`
GAMMA, LAM = 0.9, 0.8
STEPS, ENVS, WIDTH = 6, 3, 8  # of a rollout (T, B), and of every hidden layer
COUNT = STEPS * ENVS
SEEN, CHOICES, NUMBERS = 3, 3, 2  # sizes of an observation, of a choice, of an action of numbers
UPDATES = 3  # one after another on the same rollout, so that targets fall behind and Adam remembers
RATE, TAU = 0.02, 0.3
CAPACITY = UPDATES * COUNT  # of a buffer that no row has to leave
EPOCHS = 8  # of PQN: RAdam is careful in its first five steps
ALPHA, BETA, SMALLEST = 0.6, 0.4, 1e-6  # of priorities
CLIP, VALUE_CLIP, ENTROPY_COEF, VALUE_COEF = 0.2, 0.05, 0.03, 0.7
TARGET_ENTROPY, TEMPERATURE = 0.25, 0.3
TARGET_NOISE, TARGET_NOISE_CLIP = 0.3, 0.4


def normal(name: str, *shape: int) -> np.ndarray:
    """Normal numbers seeded by the name, by NumPy's generator that never changes."""
    seed = zlib.crc32(name.encode())
    return np.random.RandomState(seed).standard_normal(shape).astype(np.float32)


def layer(index: int, inputs: int, outputs: int) -> tuple[np.ndarray, np.ndarray]:
    """Weight (inputs, outputs) and bias of the layer that an agent makes as its `index`-th."""
    weight = normal(f"weight {index}", inputs, outputs) / np.float32(inputs**0.5)
    return weight, 0.3 * normal(f"bias {index}", outputs)


class Rollout(NamedTuple):
    """Steps (T, B, ...) with both endings in it; the last row of every environment ends."""

    obs: np.ndarray
    next_obs: np.ndarray  # before any reset; else the next row's
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    mask: np.ndarray  # of the actions at `obs`; the one taken is always valid
    next_mask: np.ndarray
    choice: np.ndarray
    number: np.ndarray  # (T, B, 2), within [-1, 1]
    choice_log_prob: np.ndarray  # what a policy that acted before gave to the actions
    number_log_prob: np.ndarray


def rollout() -> Rollout:
    terminated, truncated = np.zeros((2, STEPS, ENVS), bool)
    terminated[1, 0] = terminated[4, 1] = terminated[-1, 1] = True
    truncated[2, 1] = truncated[3, 2] = truncated[-1, 0] = truncated[-1, 2] = True
    obs, next_obs = normal("obs", STEPS, ENVS, SEEN), normal("next obs", STEPS, ENVS, SEEN)
    draw = np.random.RandomState(1)
    choice, other = draw.randint(0, CHOICES, (2, STEPS, ENVS)).astype(np.int32)
    mask, next_mask = draw.uniform(size=(2, STEPS, ENVS, CHOICES)) < 0.5
    mask |= np.arange(CHOICES) == choice[..., None]
    next_mask |= np.arange(CHOICES) == other[..., None]
    goes_on = ~(terminated | truncated)[:-1, :, None]
    next_obs[:-1] = np.where(goes_on, obs[1:], next_obs[:-1])
    next_mask[:-1] = np.where(goes_on, mask[1:], next_mask[:-1])
    return Rollout(
        obs=obs,
        next_obs=next_obs,
        reward=normal("reward", STEPS, ENVS),
        terminated=terminated,
        truncated=truncated,
        mask=mask,
        next_mask=next_mask,
        choice=choice,
        number=np.tanh(normal("number", STEPS, ENVS, NUMBERS)),
        choice_log_prob=-0.5 + 0.2 * normal("choice log prob", STEPS, ENVS),
        number_log_prob=-2.3 + 0.3 * normal("number log prob", STEPS, ENVS),
    )


def noise() -> np.ndarray:
    """Of actions at the next observations and at the rollout's own, (2, T · B, 2)."""
    return normal("noise", 2, COUNT, NUMBERS)


def values() -> tuple[np.ndarray, np.ndarray]:
    """Of the observations and of the next ones, (T, B) each."""
    return normal("value", STEPS, ENVS), normal("next value", STEPS, ENVS)


def beta_of(update: int) -> float:
    """β rises in a line to 1 over the updates."""
    return BETA + (update + 1) / UPDATES * (1.0 - BETA)


# A buffer of seven rows, of which two were never drawn; each number is where in its part a draw lies.
ERRORS = np.array([0.2, 1.7, -0.5, 3.0, -1.2], np.float32)
ROWS = 7
UNIFORMS = np.array([0.1, 0.1, 0.05, 0.3, 0.3, 0.2, 0.6, 0.8], np.float32)
# Tanh-normals over [-2, 6] × [0, 1].
LOW, HIGH = np.array([-2.0, 0.0], np.float32), np.array([6.0, 1.0], np.float32)
