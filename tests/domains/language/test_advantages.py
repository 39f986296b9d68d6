"""Advantages of tokens against slow loops: GAE over ragged completions, groups, whitening."""

import jax.numpy as jnp
import numpy as np
import pytest

from proxima.domains.language.advantages import EPS, AdvantageComp

LENGTHS = [4, 2, 1, 3]
MASK = np.arange(4)[None] < np.array(LENGTHS)[:, None]


def numbers(seed: int) -> np.ndarray:
    return np.where(MASK, np.random.default_rng(seed).normal(size=MASK.shape), 0.0)


def compute(comp: AdvantageComp, rewards, values):
    found = comp.compute_advantages(jnp.asarray(rewards), jnp.asarray(values), jnp.asarray(MASK))
    return np.asarray(found.advantages), np.asarray(found.returns)


def slow_gae(rewards, values, gamma, lam):
    """Each completion is an episode that ends with its last token, cut or not."""
    advantages = np.zeros(MASK.shape)
    for row, length in enumerate(LENGTHS):
        carried = 0.0
        for step in reversed(range(length)):
            following = values[row, step + 1] if step + 1 < length else 0.0
            delta = rewards[row, step] + gamma * following - values[row, step]
            carried = delta + gamma * lam * carried
            advantages[row, step] = carried
    return advantages


@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 0.95), (0.9, 0.5), (1.0, 1.0)])
def test_gae_is_the_loop(gamma, lam):
    rewards, values = numbers(0), numbers(1)
    advantages, returns = compute(AdvantageComp(gamma, lam, whiten=False), rewards, values)
    expected = slow_gae(rewards, values, gamma, lam)
    np.testing.assert_allclose(advantages, expected, atol=1e-5)
    np.testing.assert_allclose(returns, np.where(MASK, expected + values, 0.0), atol=1e-5)


def test_with_gamma_and_lambda_one_returns_are_what_was_still_to_come():
    rewards, values = numbers(0), numbers(1)
    _, returns = compute(AdvantageComp(1.0, 1.0), rewards, values)
    to_come = np.cumsum(rewards[:, ::-1], axis=1)[:, ::-1]
    np.testing.assert_allclose(returns, np.where(MASK, to_come, 0.0), atol=1e-5)


def test_whitening_is_over_all_valid_tokens_and_leaves_returns_alone():
    rewards, values = numbers(0), numbers(1)
    plain, returns = compute(AdvantageComp(whiten=False), rewards, values)
    white, same = compute(AdvantageComp(whiten=True), rewards, values)
    valid = plain[MASK]
    np.testing.assert_allclose(white[MASK], (valid - valid.mean()) / valid.std(), rtol=1e-4)
    assert np.all(white[~MASK] == 0) and np.array_equal(returns, same)


def test_pads_change_nothing():
    rewards, values = numbers(0), numbers(1)
    wider = [np.pad(each, ((0, 0), (0, 3))) for each in (rewards, values, MASK)]
    comp = AdvantageComp()
    found = comp.compute_advantages(*map(jnp.asarray, wider))
    advantages, _ = compute(comp, rewards, values)
    np.testing.assert_allclose(found.advantages[:, :4], advantages, atol=1e-5)
    assert np.all(np.asarray(found.advantages)[:, 4:] == 0)


@pytest.mark.parametrize("kind", ["gae", "group", "leave_one_out"])
def test_what_stands_on_pads_does_not_matter(kind):
    comp = AdvantageComp(kind=kind, group_size=2)
    rewards, values = numbers(0), numbers(1)
    clean = compute(comp, rewards, values)
    dirty = compute(comp, np.where(MASK, rewards, 7.0), np.where(MASK, values, -3.0))
    np.testing.assert_array_equal(clean, dirty)


def test_groups_are_told_by_their_own_mean_and_deviation():
    rewards = numbers(0)
    comp = AdvantageComp(kind="group", group_size=2, whiten=False)
    advantages, _ = compute(comp, rewards, np.zeros(MASK.shape))
    totals = rewards.sum(axis=1)
    for start in (0, 2):
        group = totals[start : start + 2]
        expected = (group - group.mean()) / (group.std(ddof=1) + EPS)
        for row in (0, 1):
            valid = advantages[start + row][MASK[start + row]]
            np.testing.assert_allclose(valid, expected[row], rtol=1e-4)
    assert np.all(advantages[~MASK] == 0)


def test_leave_one_out_compares_with_the_others():
    rewards = numbers(0)
    comp = AdvantageComp(kind="leave_one_out", group_size=4, whiten=False)
    advantages, _ = compute(comp, rewards, np.zeros(MASK.shape))
    totals = rewards.sum(axis=1)
    for row in range(4):
        expected = totals[row] - np.mean(np.delete(totals, row))
        np.testing.assert_allclose(advantages[row][MASK[row]], expected, rtol=1e-4)


def test_a_group_of_equals_teaches_nothing():
    rewards = np.where(np.arange(4)[None] == 0, 1.0, np.zeros(MASK.shape))
    comp = AdvantageComp(kind="group", group_size=4, whiten=False)
    advantages, _ = compute(comp, rewards, np.zeros(MASK.shape))
    assert np.all(advantages == 0)
