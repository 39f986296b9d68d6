"""Search by particles: each formula against a slow loop, and what resampling must carry along."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proxima.core import smc
from proxima.core.distributions import categorical
from proxima.core.types import Step


def softmax(x):
    x = np.exp(np.asarray(x, np.float64) - np.max(x))
    return x / x.sum()


def test_effective_sample_size_and_entropy_are_those_of_a_slow_loop():
    weight = np.stack([softmax(row) for row in np.random.default_rng(0).normal(size=(5, 8))])
    sizes = [1.0 / sum(w * w for w in row) for row in weight]
    disorder = [-sum(w * np.log(w) for w in row) for row in weight]
    np.testing.assert_allclose(smc.effective_sample_size(jnp.asarray(weight)), sizes, rtol=1e-5)
    np.testing.assert_allclose(smc.entropy(jnp.asarray(weight)), disorder, rtol=1e-5)
    one = jnp.asarray([0.0, 1.0, 0.0])
    assert smc.effective_sample_size(one) == 1.0 and smc.entropy(one) == 0.0


def test_pick_is_where_the_cumulative_sum_exceeds_the_number():
    draw = np.random.default_rng(1)
    probability = np.stack([softmax(row) for row in draw.normal(size=(200, 7))]).astype("f4")
    uniform = draw.uniform(size=200).astype("f4")
    expected = [
        next(i for i, total in enumerate(np.cumsum(row)) if total > u)
        for row, u in zip(probability, uniform, strict=True)
    ]
    np.testing.assert_array_equal(
        smc.pick(jnp.asarray(probability), jnp.asarray(uniform)), expected
    )


def test_pick_has_the_right_frequencies():
    probability = jnp.asarray([0.1, 0.0, 0.6, 0.3])
    uniform = jax.random.uniform(jax.random.key(0), (100_000,))
    drawn = smc.pick(jnp.broadcast_to(probability, (100_000, 4)), uniform)
    shares = np.bincount(np.asarray(drawn), minlength=4) / 100_000
    np.testing.assert_allclose(shares, probability, atol=0.006)
    assert shares[1] == 0.0


def test_no_impossible_action_in_a_million_picks():
    """Also where rounding could lead beyond the last valid action, or onto one that has no probability."""
    key = jax.random.key(2)

    @jax.jit
    def batch(key):
        logit_key, mask_key, uniform_key = jax.random.split(key, 3)
        logits = 30.0 * jax.random.normal(logit_key, (10_000, 50))
        mask = jax.random.bernoulli(mask_key, 0.3, (10_000, 50)).at[:, 7].set(True)
        probability = jnp.exp(categorical(logits, mask).logits)
        uniform = jax.random.uniform(uniform_key, (10_000, 2))
        edge = jnp.asarray([0.0, 1.0 - 2.0**-23])  # the least and the greatest there are
        uniform = jnp.concatenate([uniform, jnp.broadcast_to(edge, (10_000, 2))], axis=1)
        drawn = smc.pick(probability[:, None], uniform)
        return jnp.all(jnp.take_along_axis(mask, drawn, axis=1))

    assert all(bool(batch(jax.random.fold_in(key, i))) for i in range(25))


def test_a_single_action_left_is_picked():
    probability = jnp.zeros(9).at[8].set(1e-30)
    for uniform in (0.0, 0.5, 1.0 - 2.0**-23):
        assert smc.pick(probability, jnp.float32(uniform)) == 8


def test_stratified_resampling_draws_each_as_often_as_its_weight_says():
    draw = np.random.default_rng(3)
    counts = np.zeros(6)
    weight = softmax(draw.normal(size=6)).astype("f4")
    uniforms = draw.uniform(size=(2_000, 6)).astype("f4")
    index = smc.ancestors(jnp.broadcast_to(weight, (2_000, 6)), jnp.asarray(uniforms))
    for row in np.asarray(index):
        count = np.bincount(row, minlength=6)
        assert np.all(np.abs(count - 6 * weight) < 2.0)
        counts += count
    np.testing.assert_allclose(counts / counts.sum(), weight, atol=0.005)


def test_take_gathers_within_each_environment():
    leaf = jnp.arange(24).reshape(2, 3, 4)
    index = jnp.asarray([[2, 0], [1, 1]])
    found = smc.take({"a": leaf}, index)["a"]
    expected = [[leaf[b, i] for i in row] for b, row in enumerate(index)]
    np.testing.assert_array_equal(found, expected)


def test_the_heaviest_action_counts_all_its_particles():
    action = jnp.asarray([[3, 1, 3, 0], [0, 1, 2, 3]])
    weight = jnp.asarray([[0.3, 0.4, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4]])
    chosen = smc.heaviest(action, weight)
    assert action[0, chosen[0]] == 3 and action[1, chosen[1]] == 3
    pair = jnp.asarray([[[0.5, 1.0], [0.5, 2.0], [0.5, 1.0]]])  # an action of two numbers
    assert smc.heaviest(pair, jnp.asarray([[0.3, 0.4, 0.3]]))[0] in (0, 2)


def test_credit_is_the_mean_over_descendants():
    amount = jnp.asarray([[1.0, 2.0, 4.0, 8.0]])
    origin = jnp.asarray([[2, 2, 0, 2]])
    np.testing.assert_allclose(smc.credit(amount, origin), [[4.0, 0.0, 11.0 / 3.0, 0.0]])


def test_dirichlet_noise_is_on_valid_actions_only():
    logits = jnp.log(jnp.asarray([0.0, 0.7, 0.0, 0.3]))
    log_gamma = jax.random.loggamma(jax.random.key(0), 0.3, (1_000, 4))
    mixed = smc.mix_dirichlet(jnp.broadcast_to(logits, (1_000, 4)), log_gamma, jnp.float32(0.25))
    assert np.all(mixed[:, [0, 2]] == 0.0)
    np.testing.assert_allclose(np.sum(mixed, axis=1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(np.mean(mixed, axis=0)[1], 0.75 * 0.7 + 0.25 * 0.5, atol=0.01)
    assert np.std(mixed[:, 1]) > 0.05
    with_one = smc.mix_dirichlet(jnp.asarray([-jnp.inf, 0.0]), log_gamma[0, :2], jnp.float32(0.5))
    np.testing.assert_allclose(with_one, [0.0, 1.0])


# A tree as a world: a state is a node, and a step to it pays its reward.


class Tree(NamedTuple):
    """Nodes numbered along each level: the children of n are n · actions + 1 .. n · actions + actions."""

    actions: int
    reward: np.ndarray  # of entering a node
    terminated: np.ndarray
    truncated: np.ndarray
    value: np.ndarray  # what the critic says of a node

    def model(self, prior):
        """Steps of the tree, and a critic and an actor that know what `value` and the prior say."""
        reward, terminated, truncated, value = self[1:]

        def step(state, action, key):
            after = state * self.actions + 1 + action
            return after, Step(after, reward[after], terminated[after], truncated[after], {})

        def predict(obs, noise):
            return smc.pick(prior[obs], noise), value[obs]

        return smc.Model(step, predict)


def nodes(actions, depth):
    return sum(actions**level for level in range(depth + 2))


def blank(actions=2, depth=3):
    count = nodes(actions, depth)
    zeros = np.zeros(count, np.float32)
    return Tree(actions, zeros, zeros.astype(bool), zeros.astype(bool), zeros.copy())


def rules(**changes):
    numbers = {"gamma": 1.0, "lam": 1.0, "temperature": 1.0, "ess_threshold": 0.5}
    numbers = {key: jnp.float32(value) for key, value in (numbers | changes).items()}
    period = jnp.int32(changes.get("resample_period", 1))
    return smc.Rules(**numbers | {"resample_period": period})


def noise(depth, envs, particles, seed=0):
    action, resample = jax.random.split(jax.random.key(seed))
    return smc.Noise(
        action=jax.random.uniform(action, (depth, envs, particles)),
        step=jnp.broadcast_to(jax.random.key(0), (depth, envs, particles)),
        resample=jax.random.uniform(resample, (depth, envs, particles)),
    )


def roots(tree, envs, particles):
    action = jnp.broadcast_to(jnp.arange(particles) % tree.actions, (envs, particles))
    value = jnp.broadcast_to(jnp.asarray(tree.value)[0], (envs,))
    return smc.first_particles(jnp.zeros(envs, jnp.int32), action, action, value)


run = jax.jit(
    lambda actions, arrays, prior, start, drawn, given, by_ess: smc.search(
        Tree(actions, *arrays).model(prior), start, drawn, given, by_ess
    ),
    static_argnums=(0, 6),
)


def search(tree, start, drawn, given, by_ess=False, prior=None):
    """The search, compiled once for all trees of one size."""
    uniform = np.full((len(tree.value), tree.actions), 1.0 / tree.actions, np.float32)
    prior = uniform if prior is None else prior.astype(np.float32)
    return run(tree.actions, tuple(tree[1:]), prior, start, drawn, given, by_ess)


def weight_of(found, action):
    return np.sum(np.where(np.asarray(found.root_action) == action, found.weight, 0.0), axis=1)


def misleading():
    """Action 0 pays at once and then nothing; action 1 pays more, two steps later."""
    tree = blank(2, 3)
    tree.reward[1] = 1.0
    tree.reward[11:15] = 6.0  # below node 2, which root action 1 leads to
    return tree


@pytest.mark.parametrize("by_ess", [False, True], ids=["period", "ess"])
def test_a_tree_is_searched_to_its_best_root_action(by_ess):
    tree, envs = misleading(), 64
    found = search(
        tree, roots(tree, envs, 16), noise(3, envs, 16), rules(ess_threshold=0.95), by_ess
    )
    assert np.all(found.metrics["resamples"] >= 1.0)
    greedy = jax.vmap(lambda row, at: row[at])(
        found.root_action, smc.heaviest(found.root_action, found.weight)
    )
    shallow = search(tree, roots(tree, envs, 16), noise(1, envs, 16), rules(), by_ess)
    assert np.all(weight_of(shallow, 0) > 0.7), "one step ahead the other one looks better"
    assert np.mean(np.asarray(greedy) == 1) > 0.95
    assert np.mean(weight_of(found, 1)) > 0.8


@pytest.mark.parametrize("by_ess", [False, True], ids=["period", "ess"])
def test_resampling_takes_the_root_action_along(by_ess):
    """All weight is on one particle of eight after a step: after resampling all have its root action."""
    tree = blank(8, 2)
    tree.reward[5] = 100.0  # of root action 4
    found = search(tree, roots(tree, 3, 8), noise(2, 3, 8), rules(), by_ess)
    np.testing.assert_array_equal(found.metrics["resamples"], 1.0)
    np.testing.assert_array_equal(found.root_action, 4)
    np.testing.assert_allclose(found.weight, 1.0 / 8.0, rtol=1e-5)  # they went the same way since
    np.testing.assert_allclose(found.advantage[:, 4], 100.0)
    np.testing.assert_allclose(np.delete(np.asarray(found.advantage), 4, axis=1), 0.0)


def test_resampling_takes_the_next_action_along():
    """At node 5 only action 2 has probability: a particle that came there may take no other."""
    tree = blank(8, 2)
    tree.reward[5] = 100.0
    prior = np.full((len(tree.value), 8), 0.0)
    prior[:, 0], prior[5] = 1.0, np.eye(8)[2]
    tree.reward[5 * 8 + 1 + 2] = 7.0
    found = search(tree, roots(tree, 3, 8), noise(2, 3, 8), rules(), prior=prior)
    np.testing.assert_allclose(found.advantage[:, 4], 107.0)


def test_resampling_takes_the_value_and_the_ending_along():
    """The heavy particle has ended with a value that the others' next difference must not meet."""
    tree = blank(4, 3)
    tree.value[:] = 3.0
    tree.reward[2], tree.terminated[2] = 50.0, True  # root action 1
    tree.reward[2 * 4 + 1 :] = 1_000.0  # what a clone would get if it were stepped on after the end
    found = search(tree, roots(tree, 2, 4), noise(3, 2, 4), rules(), False)
    np.testing.assert_array_equal(found.root_action, 1)
    np.testing.assert_allclose(found.advantage[:, 1], 50.0 - 3.0)  # V(s') is 0 at the end
    np.testing.assert_allclose(found.metrics["alive"], 1.0 / 3.0)


def test_an_ended_particle_stays_as_it_is():
    tree = blank(2, 4)
    tree.terminated[1], tree.truncated[2] = True, True
    tree.reward[3:] = 1_000.0
    before = roots(tree, 1, 2)
    drawn = noise(2, 1, 2)
    rows = [jax.tree.map(lambda leaf, at=at: leaf[at], drawn) for at in range(2)]
    model = Tree(2, *map(jnp.asarray, tree[1:])).model(jnp.full((len(tree.value), 2), 0.5))
    ended, _ = smc.advance(model, before, rows[0], rules())
    after, td = smc.advance(model, ended, rows[1], rules())
    np.testing.assert_array_equal(td, 0.0)
    for first, second in zip(jax.tree.leaves(ended), jax.tree.leaves(after), strict=True):
        np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(after.state, [[1, 2]])


def test_the_value_ends_with_a_termination_and_not_with_a_truncation():
    tree = blank(2, 3)
    tree.value[:] = 10.0
    tree.value[0] = 4.0
    tree.terminated[1], tree.truncated[2] = True, True
    given = rules(gamma=0.5, resample_period=9)
    found = search(tree, roots(tree, 1, 2), noise(3, 1, 2), given, False)
    np.testing.assert_allclose(found.advantage, [[0.0 - 4.0, 0.5 * 10.0 - 4.0]])
    np.testing.assert_allclose(found.weight, [softmax([-4.0, 1.0])], rtol=1e-5)


def slow_search(tree, state, actions, gamma, lam):
    """Weight and advantage of one particle without resampling, in words of the definition."""
    weight, advantage, trace, ended = 0.0, 0.0, 1.0, False
    for action in actions:
        if ended:
            break
        after = state * tree.actions + 1 + action
        bootstrap = 0.0 if tree.terminated[after] else gamma * tree.value[after]
        td = tree.reward[after] + bootstrap - tree.value[state]
        weight, advantage = weight + td, advantage + trace * td
        trace *= gamma * lam
        ended = tree.terminated[after] or tree.truncated[after]
        state = after
    return weight, advantage


def test_weights_and_advantages_are_those_of_a_slow_loop():
    draw = np.random.default_rng(5)
    tree = blank(2, 4)
    for array in (tree.reward, tree.value):
        array[:] = draw.normal(size=len(array))
    tree.terminated[:] = draw.uniform(size=len(tree.value)) < 0.2
    tree.truncated[:] = ~tree.terminated & (draw.uniform(size=len(tree.value)) < 0.2)
    drawn, given = noise(4, 3, 6), rules(gamma=0.9, lam=0.8, resample_period=99, temperature=0.7)
    found = search(tree, roots(tree, 3, 6), drawn, given, False)
    for env in range(3):
        rows = []
        for particle in range(6):
            later = [int(u >= 0.5) for u in drawn.action[:3, env, particle]]
            rows.append(slow_search(tree, 0, [particle % 2, *later], 0.9, 0.8))
        weight, advantage = np.asarray(rows).T
        np.testing.assert_allclose(found.advantage[env], advantage, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found.weight[env], softmax(weight / 0.7), rtol=1e-4)


def test_weights_of_any_size_stay_finite():
    tree = blank(2, 2)
    tree.reward[1:3] = [3e30, -3e30]
    given = rules(temperature=1e-8, ess_threshold=0.6)
    for by_ess in (False, True):
        found = search(tree, roots(tree, 1, 4), noise(2, 1, 4), given, by_ess)
        np.testing.assert_array_equal(found.root_action, 0)
        np.testing.assert_allclose(np.sum(found.weight), 1.0, rtol=1e-6)


def test_environments_do_not_meddle_with_each_other():
    """Only the first has a reason to resample, and the others' particles stay where they are."""
    tree = blank(2, 3)
    tree.reward[1 * 2 + 1] = 20.0
    start = roots(tree, 3, 4)._replace(state=jnp.asarray([[1] * 4, [2] * 4, [2] * 4]))
    drawn = noise(2, 3, 4)
    found = search(tree, start, drawn, rules(ess_threshold=0.6), True)
    np.testing.assert_array_equal(found.metrics["resamples"], [1.0, 0.0, 0.0])
    alone = search(
        tree,
        jax.tree.map(lambda leaf: leaf[1:2], start),
        jax.tree.map(lambda leaf: leaf[:, 1:2], drawn),
        rules(ess_threshold=0.6),
        True,
    )
    np.testing.assert_array_equal(found.root_action[1:2], alone.root_action)
    np.testing.assert_array_equal(found.weight[1:2], alone.weight)
