"""The rules of curricula and the tally of episodes by level, each against a slow loop."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proxima.core.curriculum import Begun, ByProgress, BySteps, BySuccess, Course, Tally, tally
from proxima.core.types import Transition

LEVELS = 3


def tallies(seed, updates=60):
    """Random episodes of random levels, none in some updates."""
    random = np.random.default_rng(seed)
    count = random.poisson(2.0, (updates, LEVELS)).astype(np.float32)
    score = (random.normal(0.5, 0.3, (updates, LEVELS)) * count).astype(np.float32)
    return [Tally(*map(jnp.asarray, row)) for row in zip(count, score, strict=True)]


def test_by_steps_the_last_level_that_has_begun_is_it():
    rule = BySteps(jnp.array([0, 2, 5], jnp.int32))
    standing, levels = rule.init(), []
    for row in tallies(0, 8):
        chances = np.asarray(rule.chances(standing))
        assert sorted(chances) == [0, 0, 1]
        levels.append(int(chances.argmax()))
        standing = rule.follow(standing, row)
    assert levels == [0, 0, 1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize("seed", range(3))
def test_by_success_a_level_ends_when_its_window_scores_enough(seed):
    threshold, window = 0.5, 8
    rule = BySuccess(jnp.float32(threshold), jnp.float32(window), LEVELS)
    standing, level, count, score = rule.init(), 0, 0, 0.0
    follow, rises = jax.jit(lambda standing, row: rule.follow(standing, row)), 0
    for row in tallies(seed):
        assert np.asarray(rule.chances(standing)).tolist() == [k == level for k in range(LEVELS)]
        standing = follow(standing, row)
        count, score = count + int(row.episodes[level]), score + float(row.score[level])
        if count >= window:
            if score / count >= threshold and level < LEVELS - 1:
                level, rises = level + 1, rises + 1
            count, score = 0, 0.0
        assert (int(standing.level), int(standing.episodes)) == (level, count)
        assert float(standing.score) == pytest.approx(score, abs=1e-5)
    assert rises == LEVELS - 1, "the test should see every level"


@pytest.mark.parametrize("seed", range(3))
def test_by_progress_levels_are_as_likely_as_their_scores_change(seed):
    fast, slow, uniform = 0.3, 0.05, 0.2
    rule = ByProgress(jnp.float32(fast), jnp.float32(slow), jnp.float32(uniform), LEVELS)
    standing, follow = rule.init(), jax.jit(lambda standing, row: rule.follow(standing, row))
    means: dict[int, list[float]] = {}
    np.testing.assert_allclose(rule.chances(standing), np.full(LEVELS, 1 / LEVELS), rtol=1e-6)
    for row in tallies(seed):
        standing = follow(standing, row)
        for level in range(LEVELS):
            for _ in range(int(row.episodes[level])):
                mean = float(row.score[level]) / float(row.episodes[level])
                pair = means.setdefault(level, [mean, mean])
                pair[0] += fast * (mean - pair[0])
                pair[1] += slow * (mean - pair[1])
        progress = [abs(means[k][0] - means[k][1]) if k in means else None for k in range(LEVELS)]
        most = max((value for value in progress if value is not None), default=0.0)
        filled = [most if value is None else value for value in progress]
        total = sum(filled)
        expected = [
            uniform / LEVELS + (1 - uniform) * (value / total if total > 1e-7 else 1 / LEVELS)
            for value in filled
        ]
        if total == 0.0 or total > 1e-3:  # between, rounding decides the shares
            np.testing.assert_allclose(rule.chances(standing), expected, rtol=1e-2)
    assert float(jnp.max(rule.chances(standing))) > 1.2 / LEVELS, "some progress was to be seen"


def test_a_level_that_was_never_played_is_as_likely_as_the_one_with_most_progress():
    rule = ByProgress(jnp.float32(0.5), jnp.float32(0.1), jnp.float32(0.0), LEVELS)
    standing = rule.init()
    for scores in ([1.0, 1.0, 0.0], [3.0, 1.0, 0.0]):
        standing = rule.follow(standing, Tally(jnp.array([1.0, 1.0, 0.0]), jnp.array(scores)))
    np.testing.assert_allclose(rule.chances(standing), [0.5, 0.0, 0.5], atol=1e-6)


@pytest.mark.parametrize("success", [math.nan, 1.0])
def test_episodes_are_counted_under_the_level_they_began_with(success):
    steps, envs = 40, 5
    random = np.random.default_rng(0)
    terminated = random.random((steps, envs)) < 0.1
    truncated = (random.random((steps, envs)) < 0.1) & ~terminated
    mask = random.random((steps, envs)) < 0.9
    reward = random.normal(size=(steps, envs)).astype(np.float32)
    next_level = random.integers(0, LEVELS + 1, (steps, envs))  # one is not of the curriculum
    earned, level = random.normal(size=envs).astype(np.float32), random.integers(0, LEVELS, envs)
    count, score = np.zeros(LEVELS), np.zeros(LEVELS)
    for env in range(envs):
        total, now = earned[env], level[env]
        for t in range(steps):
            total += reward[t, env] if mask[t, env] else 0.0
            if mask[t, env] and (terminated[t, env] or truncated[t, env]):
                if now < LEVELS:
                    count[now] += 1
                    score[now] += total if math.isnan(success) else float(total >= success)
                total, now = 0.0, next_level[t, env]
    rollout = Transition(
        None,
        None,
        *map(jnp.asarray, (reward,)),
        None,
        *map(jnp.asarray, (terminated, truncated, mask)),
        None,
    )
    course = Course(BySteps(jnp.zeros(1, jnp.int32)), jnp.float32(success), LEVELS)
    begun = Begun(jnp.asarray(earned), jnp.asarray(level, jnp.int32))
    found = jax.jit(tally)(course, rollout, begun, jnp.asarray(next_level, jnp.int32))
    np.testing.assert_array_equal(found.episodes, count)
    np.testing.assert_allclose(found.score, score, rtol=1e-4, atol=1e-4)
    assert count.min() > 0
