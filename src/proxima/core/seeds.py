"""The seed contract: which random stream starts from which number.

    backend (weights, action sampling)   seed
    env pool, environment i              seed + i
    first reset, environment i           seed + 10_000 + i
    evaluation episode i                 seed of the experiment + 999 + i
    minibatch shuffle                    seed ^ 0xA11CE
    trial k                              seed of the experiment + k

These numbers overlap (environment 1 of trial 0 and environment 0 of trial 1 are both seed + 1, and
environment 999 has the number of the first evaluation episode), so every key also folds in its trial's
seed and its role: no two share a stream.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from proxima.core.types import Streams

FIRST_RESET = 10_000
EVALUATION = 999
SHUFFLE = 0xA11CE
BACKEND_ROLE, POOL_ROLE, RESET_ROLE, EVALUATION_ROLE, SHUFFLE_ROLE = range(5)


class FirstKeys(NamedTuple):
    """What starts a trial: keys for the weights and the first resets, and the lasting streams."""

    weights: Array
    resets: Array  # (B,)
    streams: Streams


def _key(number: Array, trial_seed: Array, role: int) -> Array:
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(number), trial_seed), role)


def _pool_keys(first: Array, trial_seed: Array, count: int, role: int) -> Array:
    numbers = first + jnp.arange(count, dtype=jnp.uint32)
    return jax.vmap(lambda number: _key(number, trial_seed, role))(numbers)


def first_keys(seed: Array, num_envs: int) -> FirstKeys:
    """The keys of a trial, all from its seed, a uint32 scalar."""
    weights, act = jax.random.split(_key(seed, seed, BACKEND_ROLE))
    streams = Streams(
        act=act,
        env=_pool_keys(seed, seed, num_envs, POOL_ROLE),
        shuffle=_key(seed ^ jnp.uint32(SHUFFLE), seed, SHUFFLE_ROLE),
    )
    resets = _pool_keys(seed + FIRST_RESET, seed, num_envs, RESET_ROLE)
    return FirstKeys(weights, resets, streams)


def split_streams(key: Streams) -> tuple[Streams, Streams]:
    """The streams to go on with, and keys to use now."""
    act, use_act = jax.random.split(key.act)
    shuffle, use_shuffle = jax.random.split(key.shuffle)
    env = jax.vmap(jax.random.split)(key.env)
    return Streams(act, env[:, 0], shuffle), Streams(use_act, env[:, 1], use_shuffle)


def evaluation_keys(experiment_seed: Array, episodes: int) -> Array:
    """One key per evaluation episode: the same for every evaluation, trial and algorithm."""
    return _pool_keys(experiment_seed + EVALUATION, experiment_seed, episodes, EVALUATION_ROLE)


def host_seed(first: int, trial_seed: int, generation: int) -> int:
    """The reset seed of a host environment whose contract seed is `first`, 31 bits.

    `generation` counts how often the pool was re-seeded, so that each time brings new episodes.
    """
    return int(np.random.SeedSequence((first, trial_seed, generation)).generate_state(1)[0] >> 1)


def trial_seeds(experiment_seed: int, trials: int) -> list[int]:
    """Trial k of an experiment has the experiment's seed + k."""
    return [experiment_seed + k for k in range(trials)]
