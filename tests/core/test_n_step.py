"""n-step samples against brute force: random endings and rows that are no steps, over several rollouts."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proxima.core.n_step import empty_window, n_step_samples
from proxima.core.types import Transition

GAMMA = 0.9
ENVS = 3


def random_steps(seed, length):
    """A stream of steps; an observation is (environment, time), so that it names itself."""
    draw = np.random.default_rng(seed)
    shape = (length, ENVS)
    time, env = np.meshgrid(np.arange(length), np.arange(ENVS), indexing="ij")
    terminated, truncated = draw.random(shape) < 0.15, draw.random(shape) < 0.15
    mask = draw.random(shape) > 0.1  # rows that are no steps, in the middle of an episode too
    return Transition(
        obs=np.stack([env, time], -1).astype(np.float32),
        action=draw.integers(0, 3, shape).astype(np.int32),
        reward=np.where(mask, draw.normal(size=shape), np.nan).astype(np.float32),
        next_obs=np.stack([env, time + 0.5], -1).astype(np.float32),
        terminated=terminated & mask,
        truncated=truncated,
        mask=mask,
        aux=None,
    )


def slow_samples(steps, n):
    """Every sample that is complete, by its environment and first time, written out."""
    length, found = len(steps.reward), {}
    for env in range(ENVS):
        for start in range(length):
            if not steps.mask[start, env]:
                continue
            total, taken, complete = 0.0, 0, False
            for t in range(start, min(start + n, length)):
                if not steps.mask[t, env]:
                    complete = True  # cut off by what is no step
                    break
                total += GAMMA**taken * float(steps.reward[t, env])
                taken += 1
                if steps.terminated[t, env] or steps.truncated[t, env]:
                    complete = True
                    break
            end = start + taken  # the row after the last step; a row that is no step ends it too
            cut = end < length and not steps.mask[end, env]
            if complete or taken == n or cut:
                last = end - 1
                found[env, start] = SimpleNamespace(
                    reward=total,
                    next_obs=(env, last + 0.5),
                    terminated=bool(steps.terminated[last, env]),
                    steps=taken,
                )
    return found


@pytest.mark.parametrize("rollout", [1, 2, 5])
@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_samples_of_several_rollouts_are_those_of_brute_force(n, rollout):
    length = 30
    steps = random_steps(10 * n + rollout, length)
    window = None
    if n > 1:
        obs = jnp.zeros((n - 1, ENVS, 2))
        window = empty_window(n, obs, jnp.zeros((n - 1, ENVS), jnp.int32))
    assemble = jax.jit(lambda window, part: n_step_samples(window, part, n, jnp.float32(GAMMA)))
    expected, seen = slow_samples(steps, n), set()
    for begin in range(0, length, rollout):
        part = jax.tree.map(lambda leaf, at=begin: leaf[at : at + rollout], steps)
        samples, complete, window = assemble(window, part)
        for row, env in np.argwhere(np.asarray(complete)):
            one = jax.tree.map(lambda leaf, at=(row, env): np.asarray(leaf)[at], samples)
            name = (int(one.obs[0]), int(one.obs[1]))
            assert name not in seen, "each sample comes out once"
            seen.add(name)
            wanted = expected[name]
            assert name[0] == env and one.action == steps.action[name[1], env]
            assert one.reward == pytest.approx(wanted.reward, rel=1e-5, abs=1e-6)
            assert tuple(one.next_obs) == wanted.next_obs
            assert (bool(one.terminated), one.steps) == (wanted.terminated, wanted.steps)
    assert seen == expected.keys()
    assert {sample.steps for sample in expected.values()} == set(range(1, n + 1))


def test_nothing_waits_in_vain_after_an_episode():
    """The step that ends an episode sends all that waited, each with the discount of its own steps."""
    n, envs = 4, 1
    obs = jnp.zeros((n - 1, envs, 1))
    window = empty_window(n, obs, jnp.zeros((n - 1, envs), jnp.int32))
    times = jnp.arange(3.0)
    for t in range(3):
        step = Transition(
            obs=times[t].reshape(1, 1, 1),
            action=jnp.zeros((1, 1), jnp.int32),
            reward=jnp.ones((1, 1)),
            next_obs=(times[t] + 1).reshape(1, 1, 1),
            terminated=jnp.zeros((1, 1), bool),
            truncated=jnp.full((1, 1), t == 2),
            mask=jnp.ones((1, 1), bool),
            aux=None,
        )
        samples, complete, window = n_step_samples(window, step, n, jnp.float32(0.5))
        assert int(complete.sum()) == (3 if t == 2 else 0)
    assert not window.waits.any()
    kept = np.asarray(complete)
    np.testing.assert_array_equal(samples.steps[kept], [3, 2, 1])
    np.testing.assert_allclose(samples.reward[kept], [1.75, 1.5, 1.0])
    np.testing.assert_array_equal(samples.next_obs[kept], [[3.0]] * 3)
    assert not samples.terminated[kept].any()
