"""GAE, λ-returns and discounted sums against slow loops, with both endings mixed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proxima.core.returns import cut_rows, discounted_sums, gae, lambda_returns, next_values


def random_rollout(seed, steps=50, envs=7):
    random = np.random.default_rng(seed)
    terminated = random.random((steps, envs)) < 0.1
    truncated = (random.random((steps, envs)) < 0.1) & ~terminated
    reward, value, next_value = random.normal(size=(3, steps, envs)).astype(np.float32)
    return reward, value, next_value, terminated, truncated


def brute_force_gae(reward, value, next_value, terminated, truncated, gamma, lam):
    """The defining sum, episode by episode: Σ (γλ)^l δ_{t+l} up to the episode's end."""
    steps, envs = reward.shape
    advantage = np.zeros((steps, envs))
    for env in range(envs):
        for start in range(steps):
            weight = 1.0
            for t in range(start, steps):
                bootstrap = 0.0 if terminated[t, env] else gamma * next_value[t, env]
                advantage[start, env] += weight * (reward[t, env] + bootstrap - value[t, env])
                if terminated[t, env] or truncated[t, env]:
                    break
                weight *= gamma * lam
    return advantage


@pytest.mark.parametrize("gamma, lam", [(0.99, 0.95), (0.9, 0.0), (1.0, 1.0), (0.0, 0.5)])
def test_gae_is_the_defining_sum(gamma, lam):
    rollout = random_rollout(0)
    found = gae(*map(jnp.asarray, rollout), gamma, lam)
    np.testing.assert_allclose(found, brute_force_gae(*rollout, gamma, lam), rtol=2e-4, atol=2e-4)


def test_truncation_bootstraps_and_termination_does_not():
    one = jnp.ones((1, 1))
    yes, no = jnp.ones((1, 1), bool), jnp.zeros((1, 1), bool)
    assert gae(one, 0 * one, 10 * one, no, yes, 0.9, 0.95)[0, 0] == pytest.approx(1 + 0.9 * 10)
    assert gae(one, 0 * one, 10 * one, yes, no, 0.9, 0.95)[0, 0] == pytest.approx(1)


def test_gae_at_lambda_one_is_the_discounted_return_minus_the_value():
    reward = jnp.asarray([[1.0], [2.0], [3.0]])
    value = jnp.asarray([[0.5], [0.1], [0.2]])
    ended = jnp.asarray([[False], [False], [True]])
    next_value = jnp.concatenate([value[1:], value[:1]])
    found = gae(reward, value, next_value, ended, jnp.zeros_like(ended), 0.5, 1.0)
    assert found[0, 0] == pytest.approx(1 + 0.5 * 2 + 0.25 * 3 - 0.5)


def test_gamma_changes_the_targets():
    rollout = tuple(map(jnp.asarray, random_rollout(1)))
    assert not np.allclose(gae(*rollout, 0.99, 0.95), gae(*rollout, 0.9, 0.95))


def test_no_advantage_leaks_over_an_episode_end():
    reward, value, next_value, terminated, truncated = random_rollout(2)
    truncated[20] = True
    before = gae(*map(jnp.asarray, (reward, value, next_value, terminated, truncated)), 0.99, 0.95)
    reward[21:] += 100.0
    after = gae(*map(jnp.asarray, (reward, value, next_value, terminated, truncated)), 0.99, 0.95)
    np.testing.assert_array_equal(before[:21], after[:21])
    assert not np.allclose(before[21:], after[21:])


def test_discounted_sums_are_a_slow_loop_and_carry_on():
    reward, _, _, terminated, truncated = random_rollout(3)
    ended = terminated | truncated
    total, expected = np.full(reward.shape[1], 2.0), []
    for row, over in zip(reward, ended, strict=True):
        total = 0.9 * total + row
        expected.append(total)
        total = np.where(over, 0.0, total)
    start = jnp.full(reward.shape[1], 2.0)
    carried, found = discounted_sums(start, jnp.asarray(reward), jnp.asarray(ended), 0.9)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(carried, total, rtol=1e-5, atol=1e-5)
    # in two halves, the second taking up what the first carried
    half = len(reward) // 2
    middle, first = jax.jit(discounted_sums)(start, reward[:half], ended[:half], 0.9)
    _, second = discounted_sums(middle, jnp.asarray(reward[half:]), jnp.asarray(ended[half:]), 0.9)
    np.testing.assert_allclose(jnp.concatenate([first, second]), expected, rtol=1e-5, atol=1e-5)


def test_lambda_returns_are_those_of_a_slow_loop_at_both_endings():
    draw = np.random.default_rng(3)
    shape = (12, 4)
    reward, next_value = draw.normal(size=(2, *shape)).astype(np.float32)
    terminated, truncated = draw.random((2, *shape)) < 0.2
    mask = draw.random(shape) > 0.2
    gamma, lam = 0.9, 0.7
    found = lambda_returns(reward, next_value, terminated, truncated, mask, gamma, lam)
    for b in range(4):
        for t in range(12):
            # forwards, from the definition: a sum over how far one goes before relying on the value
            total, discount, share, at = 0.0, 1.0, 1.0, t
            while True:
                total += share * discount * reward[at, b]
                if terminated[at, b]:
                    break
                discount *= gamma
                last = truncated[at, b] or at == 11 or not mask[at + 1, b]
                rely = 1.0 if last else 1.0 - lam
                total += share * rely * discount * next_value[at, b]
                if last:
                    break
                share, at = share * lam, at + 1
            assert float(found[t, b]) == pytest.approx(total, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("often", [0.0, 0.02, 0.3])
def test_next_values_are_those_of_the_next_observations(often):
    draw = np.random.default_rng(4)
    steps, envs, trials = 9, 5, 3
    shape = (trials, steps, envs)
    terminated = draw.random(shape) < 0.2
    truncated = (draw.random(shape) < often) & ~terminated
    mask = draw.random(shape) > often
    # A row's next observation is the next row's observation unless the episode ends or a row is no step.
    obs = draw.normal(size=(trials, steps + 1, envs, 2)).astype(np.float32)
    goes_on = ~(terminated | truncated) & np.concatenate([mask[:, 1:], mask[:, :1]], axis=1)
    goes_on[:, -1] = False
    other = draw.normal(size=(*shape, 2)).astype(np.float32)
    next_obs = np.where(goes_on[..., None], obs[:, 1:], other)
    weight = draw.normal(size=(trials, 2)).astype(np.float32)

    def values(weight, seen):
        return jnp.tanh(seen @ weight)

    def one(weight, obs, next_obs, *flags):
        return next_values(values, weight, (next_obs,), values(weight, obs), cut_rows(*flags))

    found = jax.vmap(one)(weight, obs[:, :-1], next_obs, terminated, truncated, mask)
    expected = jax.vmap(values)(weight, next_obs)
    np.testing.assert_allclose(found[~terminated], expected[~terminated], rtol=1e-5, atol=1e-6)
    alone = one(weight[0], obs[0, :-1], next_obs[0], terminated[0], truncated[0], mask[0])
    np.testing.assert_allclose(alone[~terminated[0]], expected[0][~terminated[0]], rtol=1e-5)


def test_next_values_evaluate_few_rows_where_an_environment_is_cut_once():
    rows = []

    def values(_, seen):
        rows.append(seen.shape[:2])
        return seen[..., 0]

    cut = jnp.zeros((50, 3), bool).at[10, 1].set(True)
    seen = jnp.zeros((50, 3, 1))
    next_values(values, None, (seen,), seen[..., 0], cut)
    assert rows[0] == (2, 3), "the last row and the cut one"
