"""Frame stacking against a slow loop, compiled and on the host, over both endings and both ways to reset."""

from collections import deque

import jax
import jax.numpy as jnp
import known_envs  # noqa: F401, registers environments
import numpy as np
import pytest
from host_envs import COUNTER, make_pool

from proxima.core.spaces import ACTION_MASK, Discrete, box, fields, mask_space
from proxima.core.types import HostStep, Step
from proxima.domains.control.stack import (
    StackedPool,
    first_stack,
    newest,
    next_stack,
    stacked_env,
    stacked_pool,
    stacked_space,
)

FRAMES = 3


def slow_stacks(first, rows):
    """What to act on and what followed, (T, ...) each, of one environment's frames by a queue."""
    queue, acted, followed = deque([first] * FRAMES, FRAMES), [], []
    for frame, next_frame, ended, mask in rows:
        queue.append(next_frame)
        followed.append(np.concatenate(queue))
        if ended or not mask:
            queue = deque([frame] * FRAMES, FRAMES)
        acted.append(np.concatenate(queue))
    return acted, followed


@pytest.mark.parametrize("autoreset", ["same_step", "next_step"])
def test_a_pool_stacks_as_the_slow_loop_does(autoreset):
    seeds, actions = [4, 5, 6], np.array([0, 1, 2])
    plain, stacked = (make_pool(COUNTER, 3, autoreset) for _ in range(2))
    stacked = StackedPool(stacked, FRAMES)
    firsts, begun = plain.reset(seeds), stacked.reset(seeds)
    np.testing.assert_array_equal(begun, np.tile(firsts, FRAMES))
    steps = [(plain.step(actions), stacked.step(actions)) for _ in range(14)]
    endings = np.array([[step.terminated, step.truncated] for step, _ in steps])
    assert endings.any((0, 2)).all()  # both kinds happened
    real = np.array([step.mask for step, _ in steps])
    for env in range(3):
        rows = [
            (s.obs[env], s.next_obs[env], s.terminated[env] or s.truncated[env], s.mask[env])
            for s, _ in steps
        ]
        acted, followed = slow_stacks(firsts[env], rows)
        ours = np.array([step.obs[env] for _, step in steps])
        after = np.array([step.next_obs[env] for _, step in steps])
        np.testing.assert_array_equal(after[real[:, env]], np.array(followed)[real[:, env]])
        np.testing.assert_array_equal(ours, acted)
    assert ours.dtype == plain.observation_space.dtype
    assert stacked.observation_space.shape == (3 * FRAMES,)
    plain.close()
    stacked.close()


def test_a_row_that_was_lost_begins_a_new_episode():
    class Losing:
        observation_space, action_space, num_envs = box(0, 9, (1,)), Discrete(2), 2

        def reset(self, seeds):
            return np.array([[1.0], [2.0]], np.float32)

        def send(self, actions): ...

        def receive(self):
            rows, no = np.array([[3.0], [4.0]], np.float32), np.zeros(2, bool)
            lost = np.array([True, False])
            return HostStep(rows, np.zeros(2, np.float32), no, lost, rows, ~lost)

    pool = stacked_pool(Losing(), 2)
    pool.reset([0, 1])
    np.testing.assert_array_equal(pool.step(np.zeros(2)).obs, [[3.0, 3.0], [2.0, 4.0]])


class Ticking:
    """Compiled: shows a picture of the time, whose episode k ends at step 3, terminated or truncated."""

    observation_space = fields(
        {
            "view": box(0, 255, (5, 6), "uint8"),
            "rgb": box(0, 255, (2, 8, 8), "uint8"),
            "time": box(0, 99, (), "int32"),
            ACTION_MASK: mask_space(Discrete(2)),
        }
    )
    action_space = Discrete(2)

    def reset(self, key):
        return jnp.int32(10), self._obs(jnp.int32(10))

    def step(self, state, action, key):
        state = state + 1
        ended, no = state == 13, jnp.asarray(False)
        terminated = ended & (action == 1)
        step = Step(self._obs(state), jnp.float32(0), terminated, ended & ~terminated | no, {})
        return state, step

    def _obs(self, time):
        return {
            "view": jnp.full((5, 6), time, jnp.uint8),
            "rgb": jnp.stack([jnp.full((8, 8), time, jnp.uint8)] * 2),
            "time": time,
            ACTION_MASK: jnp.stack([time % 2 == 0, jnp.asarray(True)]),
        }


def test_a_compiled_environment_stacks_each_field_along_its_channels():
    env = stacked_env(Ticking(), FRAMES)
    shapes = {name: part.shape for name, part in env.observation_space.items()}
    assert shapes == {ACTION_MASK: (2,), "rgb": (6, 8, 8), "time": (3,), "view": (5, 6, 3)}

    @jax.jit
    def play(key):
        state, obs = env.reset(key)
        seen = [obs]
        for action in (0, 1, 1):
            state, step = env.step(state, jnp.int32(action), key)
            seen.append(step.obs)
        return jax.tree.map(lambda *rows: jnp.stack(rows), *seen), step

    seen, last = play(jax.random.key(0))
    expected = np.array([[10, 10, 10], [10, 10, 11], [10, 11, 12], [11, 12, 13]])
    np.testing.assert_array_equal(seen["time"], expected)
    np.testing.assert_array_equal(seen["view"][:, 2, 4], expected)
    np.testing.assert_array_equal(seen["rgb"][:, :, 1, 7], np.repeat(expected, 2, axis=1))
    np.testing.assert_array_equal(seen[ACTION_MASK][:, 0], [True, False, True, False])
    assert bool(last.terminated) and seen["view"].dtype == jnp.uint8
    shown = newest(Ticking.observation_space, jax.tree.map(np.asarray, seen))
    np.testing.assert_array_equal(shown["time"], [10, 11, 12, 13])
    assert shown["view"].shape == (4, 5, 6) and shown["rgb"].shape == (4, 2, 8, 8)


def test_one_frame_is_the_environment_itself():
    env, pool = Ticking(), object()
    assert stacked_env(env, 1) is env and stacked_pool(pool, 1) is pool


@pytest.mark.parametrize("shape", [(7,), (4, 3), (84, 84, 3), (1, 84, 84)])
def test_numpy_and_jax_stack_alike(shape):
    space = box(0, 255, shape, "uint8")
    rng = np.random.default_rng(0)
    one, two = (rng.integers(0, 256, (2, *shape), np.uint8) for _ in range(2))
    stacks = []
    for numpy in (np, jnp):
        stack = first_stack(space, FRAMES, one, numpy)
        stacks.append(next_stack(space, stack, two, numpy))
    np.testing.assert_array_equal(*stacks)
    assert stacks[0].shape[1:] == stacked_space(space, FRAMES).shape
    np.testing.assert_array_equal(newest(space, stacks[0]), two)
