"""SPO: probe environments, masks, targets and duals, one pass per depth, the same bits twice."""

from dataclasses import replace
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probes import (
    ACTION,
    BOTH,
    CONSTANT,
    CONTINUOUS,
    DELAYED,
    FROM_OBS,
    TRUNCATED,
    AnswerProbe,
    continuous,
)
from problems import problem_of
from tiny import ROWS, SIZES, SMALL

from proxima.algorithms.spo import SPOConfig, make_batch, spo, stored_steps
from proxima.build import domain_of
from proxima.core import mpo
from proxima.core.errors import ProximaError
from proxima.core.replay import pack_sequences
from proxima.core.seeds import first_keys, split_streams
from proxima.core.spaces import (
    ACTION_MASK,
    Discrete,
    MultiDiscrete,
    Space,
    box,
    fields,
    mask_space,
    multi_discrete,
)
from proxima.core.trees import fingerprint
from proxima.core.types import Step, TrainState, View
from proxima.domains import reinforcement
from proxima.domains.control.compiled import ready
from proxima.domains.control.config import EnvConfig
from proxima.domains.control.domain import build
from proxima.nets.actor_critic import MLPConfig
from proxima.scenario import load
from proxima.train.compiled.collect import Collector
from proxima.train.compiled.program import run_updates

ENVS = 4
NETWORK = MLPConfig(hidden=(16, 16))
CONFIG = SPOConfig(
    name="spo",
    particles=8,
    depth=2,
    resampling="ess",
    gamma=0.9,
    learning_rate=5e-3,
    dual_learning_rate=1e-2,
    tau=0.05,
    policy_epsilon=0.02,
    initial_log_temperature=0.0,
    initial_log_alpha=0.0,
    buffer_size=512,
    sequence_length=4,
    batch_size=16,
    gradient_steps=8,
)

run = jax.jit(run_updates)
init = jax.jit(lambda agent, key: agent.init(key))
reset = jax.jit(lambda collector, keys: collector.init(keys))
explore = jax.jit(lambda agent, *arguments: agent.explore(*arguments)[:2])
exploit = jax.jit(lambda agent, *arguments: agent.exploit(*arguments).action)
update = jax.jit(lambda agent, *arguments: agent.update(*arguments))


def problem(env, envs=ENVS):
    return problem_of((env.observation_space, env.action_space), envs, NETWORK, env=env)


def make(env, config=CONFIG, envs=ENVS):
    return spo(config, problem(env, envs)), Collector(env, envs, config.sequence_length)


def start(agent, collector, seed=0):
    keys = first_keys(jnp.uint32(seed), collector.num_envs)
    return TrainState(init(agent, keys.weights), reset(collector, keys.resets), keys.streams)


@jax.jit
def collect(agent, collector, state):
    _, use = split_streams(state.key)
    return collector(agent, state.learner, state.actors, use)[1]


def learn(env, config=CONFIG, updates=100):
    agent, collector = make(env, config)
    state, sums = run(agent, collector, start(agent, collector), updates)
    return agent, state.learner, {name: float(total) / updates for name, total in sums.items()}


def values_at(learner, *obs):
    return [float(value) for value in learner.net.value(jnp.asarray(obs)[:, None])]


def prior_at(agent, learner, *obs):
    """The policy's own answer, without search."""
    return np.asarray(agent.exploit(learner, View(jnp.asarray(obs)[:, None])).action)


def test_probe_1_constant_reward():
    _, learner, _ = learn(CONSTANT)
    assert values_at(learner, 0.0) == pytest.approx([1.0], abs=0.05)


def test_probe_2_reward_from_the_observation():
    _, learner, _ = learn(FROM_OBS)
    assert values_at(learner, 1.0, -1.0) == pytest.approx([1.0, -1.0], abs=0.1)


def test_probe_3_delayed_reward_is_discounted():
    _, learner, _ = learn(DELAYED)
    assert values_at(learner, 0.0, 1.0) == pytest.approx([0.9, 1.0], abs=0.05)


def test_probe_4_action_choice():
    agent, learner, means = learn(ACTION)
    assert prior_at(agent, learner, 0.0) == 1
    assert np.exp(learner.net.policy(jnp.zeros((1, 1))).logits[0, 1]) > 0.8
    assert all(np.isfinite(value) for value in means.values())


def test_probe_5_action_by_observation():
    agent, learner, _ = learn(BOTH)
    np.testing.assert_array_equal(prior_at(agent, learner, 1.0, -1.0), [1, 0])


def test_continuous_actions():
    agent, learner, _ = learn(continuous(BOTH), updates=250)
    assert prior_at(agent, learner, 1.0, -1.0)[:, 0] == pytest.approx([0.5, -0.5], abs=0.2)


def test_truncation_does_not_end_the_value():
    _, learner, _ = learn(TRUNCATED, replace(CONFIG, tau=0.2), updates=250)
    assert values_at(learner, 0.0)[0] == pytest.approx(10.0, abs=0.5)  # 1 / (1 − 0.9), not 1


@pytest.mark.parametrize(
    "changes",
    [
        {"resampling": "period", "resample_period": 1, "temperature": 0.5},
        {"dirichlet_fraction": 0.25, "normalize_observations": True, "max_grad_norm": None},
        {"reward_scale": 5.0, "search_gamma": 0.9, "search_lambda": 0.9},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_every_switch_still_learns(changes):
    agent, learner, means = learn(BOTH, replace(CONFIG, **changes))
    np.testing.assert_array_equal(prior_at(agent, learner, 1.0, -1.0), [1, 0])
    assert all(np.isfinite(value) for value in means.values())


# Masks.


class MaskedState(NamedTuple):
    mask: jax.Array
    time: jax.Array


class Masked(eqx.Module):
    """Random valid actions at each step; the largest valid one is best, an invalid one pays nan."""

    action_space: Space = eqx.field(static=True, default=Discrete(5))
    left: float = eqx.field(static=True, default=0.5)  # share of actions that are valid
    length: int = eqx.field(static=True, default=5)

    @property
    def observation_space(self):
        shape = (*self.action_space.shape, self.action_space.n)
        return fields({"mask": box(0, 1, shape), ACTION_MASK: mask_space(self.action_space)})

    def _see(self, state):
        return {"mask": state.mask.astype(jnp.float32), ACTION_MASK: state.mask}

    def _mask(self, key):
        draw_key, one_key = jax.random.split(key)
        space = self.action_space
        mask = jax.random.bernoulli(draw_key, self.left, (*space.shape, space.n))
        one = jax.random.randint(one_key, space.shape, 0, space.n)
        return mask | (jax.nn.one_hot(one, space.n) > 0.0)

    def reset(self, key):
        state = MaskedState(self._mask(key), jnp.int32(0))
        return state, self._see(state)

    def step(self, state, action, key):
        chosen = jax.nn.one_hot(action, self.action_space.n) > 0
        valid = jnp.sum(chosen & state.mask) == max(1, int(np.prod(self.action_space.shape)))
        reward = jnp.where(valid, jnp.mean(action.astype(jnp.float32)), jnp.nan)
        state = MaskedState(self._mask(key), state.time + 1)
        ended = state.time >= self.length
        return state, Step(self._see(state), reward, ended, jnp.zeros_like(ended), {})


def searched(agent, collector, learner, seed):
    """Views of freshly reset environments, and a search in each."""
    keys = jax.random.split(jax.random.key(seed), collector.num_envs)
    actors = reset(collector, keys)
    view = View(actors.obs, actors.env_state)
    noise = jax.jit(lambda agent, key: agent.noise(None, key, (collector.num_envs,)))
    return view, explore(agent, learner, view, noise(agent, jax.random.key(seed + 1)))


def test_no_invalid_action_in_a_million_draws():
    """A draw is a root action or a next action of a particle; an invalid one would bring in a nan."""
    config = replace(CONFIG, particles=64, depth=4, dirichlet_fraction=0.3)
    agent, collector = make(Masked(length=3), config, envs=512)
    learner = init(agent, jax.random.key(0))
    # A prior far from uniform, so that rounding and masks meet.
    sharp = jax.tree.map(lambda leaf: 20.0 * leaf, learner.net)
    learner = learner._replace(net=sharp)
    for seed in range(8):
        view, (action, aux) = searched(agent, collector, learner, seed)
        mask = np.asarray(view.obs[ACTION_MASK])
        assert np.all(np.take_along_axis(mask, np.asarray(aux.root_action), axis=1))
        assert np.all(np.take_along_axis(mask, np.asarray(action)[:, None], axis=1))
        assert np.all(np.isfinite(aux.advantage)) and np.all(np.isfinite(aux.weight))
        greedy = exploit(agent, learner, view)
        assert np.all(np.take_along_axis(mask, np.asarray(greedy)[:, None], axis=1))


@pytest.mark.parametrize("space", [Discrete(5), MultiDiscrete(3, 2)], ids=["one", "several"])
def test_masked_choices_are_learnt(space):
    agent, learner, means = learn(Masked(space), updates=150)
    assert all(np.isfinite(value) for value in means.values()), "no invalid action was played"
    collector = Collector(agent.search.env, 64, 4)
    actors = reset(collector, jax.random.split(jax.random.key(1), 64))
    mask = np.asarray(actors.obs[ACTION_MASK])
    best = mask.shape[-1] - 1 - np.argmax(mask[..., ::-1], axis=-1)
    found = np.asarray(exploit(agent, learner, View(actors.obs)))
    assert np.mean(found == best) > 0.9
    with_search = np.asarray(exploit(agent, learner, View(actors.obs, actors.env_state)))
    assert np.mean(with_search == best) > 0.9


def test_unlike_choices_are_searched_among_those_there_are():
    sizes = (2, 5)
    env = ready(AnswerProbe(multi_discrete(sizes)), EnvConfig(backend="probes:AnswerProbe"))
    agent, collector = make(env, replace(CONFIG, dirichlet_fraction=0.5), envs=64)
    learner = init(agent, jax.random.key(0))
    view, (action, aux) = searched(agent, collector, learner, 0)
    assert np.all(np.asarray(action) < sizes) and np.all(np.asarray(aux.root_action) < sizes)
    assert np.max(aux.root_action) == 4 and np.all(np.isfinite(aux.weight))
    assert np.all(np.asarray(exploit(agent, learner, View(view.obs))) < sizes)


def test_a_single_action_left():
    agent, collector = make(Masked(left=0.0))
    learner = init(agent, jax.random.key(0))
    view, (action, aux) = searched(agent, collector, learner, 0)
    only = np.argmax(view.obs[ACTION_MASK], axis=1)
    np.testing.assert_array_equal(action, only)
    np.testing.assert_array_equal(aux.root_action, np.repeat(only[:, None], 8, axis=1))
    np.testing.assert_array_equal(exploit(agent, learner, view), only)
    _, sums = run(agent, collector, start(agent, collector), 8)
    assert all(np.isfinite(float(value)) for value in sums.values())


def test_what_is_never_valid_is_never_learnt():
    class Never(Masked):
        def _mask(self, key):
            return super()._mask(key).at[0].set(True).at[3].set(False)

    agent, collector = make(Never())
    before = start(agent, collector)
    after, _ = run(agent, collector, before, 10)
    first, last = (state.learner.net.actor.layers[-1] for state in (before, after))
    np.testing.assert_array_equal(first.weight[:, 3], last.weight[:, 3])
    np.testing.assert_array_equal(first.bias[3], last.bias[3])
    assert not np.any(np.isclose(first.bias[:3], last.bias[:3], atol=0.0))


# Targets, duals and the trust region.


def test_value_targets_are_those_of_a_slow_loop():
    agent, collector = make(BOTH)
    state = start(agent, collector)
    rollout = collect(agent, collector, state)
    rows, unpack = pack_sequences(stored_steps(rollout))
    batch = unpack(rows)
    draw = np.random.default_rng(0)
    batch = batch._replace(
        reward=draw.normal(size=(4, 4)).astype("f4"),
        obs=draw.normal(size=(4, 4, 1)).astype("f4"),
        next_obs=draw.normal(size=(4, 4, 1)).astype("f4"),
        terminated=np.eye(4, dtype=bool),
        truncated=np.roll(np.eye(4, dtype=bool), 1, axis=0),
    )
    hyper = agent.hyper._replace(reward_scale=jnp.float32(2.0))
    made = make_batch(batch, state.learner.target, hyper, None)
    value, next_value = (
        np.asarray(state.learner.target.value(jnp.asarray(obs)))
        for obs in (batch.obs, batch.next_obs)
    )
    for env in range(4):
        advantage = 0.0
        for time in reversed(range(4)):
            bootstrap = 0.0 if batch.terminated[time, env] else next_value[time, env]
            delta = 2.0 * batch.reward[time, env] + 0.9 * bootstrap - value[time, env]
            ended = batch.terminated[time, env] or batch.truncated[time, env]
            advantage = delta + (0.0 if ended else 0.9 * 0.95 * advantage)
            assert made.target[time, env] == pytest.approx(advantage + value[time, env], rel=1e-4)


def test_the_divergence_settles_at_its_bound_and_both_duals_move():
    """The search pulls one way for ever, the target stands still: α must rise until KL is ε_policy."""
    changes = {"learning_rate": 5e-4, "dual_learning_rate": 0.03, "initial_log_alpha": -5.0}
    config = replace(CONFIG, policy_epsilon=0.005, **changes)
    agent, collector = make(ACTION, config)
    state = start(agent, collector)
    learner = state.learner._replace(hyper=agent.hyper._replace(tau=jnp.float32(0.0)))
    rollout = collect(agent, collector, state)
    aux = rollout.aux._replace(
        root_action=jnp.ones_like(rollout.aux.root_action),
        advantage=rollout.aux.advantage.at[..., 0].add(3.0),
    )
    rollout = rollout._replace(aux=aux)
    divergences = []
    for step in range(500):
        learner, metrics = update(agent, learner, rollout, jax.random.key(step))
        divergences.append(float(metrics["train/kl"]))
    assert np.mean(divergences[-50:]) == pytest.approx(0.005, rel=0.05)
    log_temperature, log_alpha = learner.duals
    assert abs(log_temperature - config.initial_log_temperature) > 0.1
    assert log_alpha > -4.0
    assert max(divergences) < 1.0


def test_the_trust_region_is_around_the_target_and_not_around_the_search():
    agent, collector = make(ACTION)
    state = start(agent, collector)
    rollout = collect(agent, collector, state)
    rows, unpack = pack_sequences(stored_steps(rollout))
    batch = make_batch(unpack(rows), state.learner.target, agent.hyper, None)
    new, _ = state.learner.net(batch.obs)
    np.testing.assert_allclose(mpo.kl(batch.old, new), 0.0, atol=1e-7)  # target and net start equal
    moved = jax.tree.map(lambda leaf: leaf + 0.3, state.learner.net)
    _, parts = agent._loss(moved, state.learner.duals, agent.hyper, batch)
    expected = np.mean(mpo.kl(batch.old, moved.policy(batch.obs)))
    assert float(parts[5]) == pytest.approx(float(expected), rel=1e-4) and expected > 0.0


def test_the_target_follows_by_tau():
    agent, collector = make(BOTH, replace(CONFIG, gradient_steps=1))
    state = start(agent, collector)
    for _ in range(5):
        before = state.learner
        state, _ = run(agent, collector, state, 1)
        after = state.learner
    triples = zip(
        *(jax.tree.leaves(net) for net in (before.target, after.target, after.net)), strict=True
    )
    for old, new, net in triples:
        np.testing.assert_allclose(new, old + 0.05 * (net - old), rtol=1e-5, atol=1e-7)


# The program.


def count_products(jaxpr, times=1):
    """Matrix products that a program makes, those of loops as often as they turn."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            total += times
        turns = equation.params["length"] if equation.primitive.name == "scan" else 1
        for part in jax.tree.leaves(
            list(equation.params.values()),
            is_leaf=lambda leaf: hasattr(leaf, "eqns") or hasattr(leaf, "jaxpr"),
        ):
            inner = getattr(part, "jaxpr", part)
            if hasattr(inner, "eqns"):
                total += count_products(inner, times * turns)
    return total


@pytest.mark.parametrize("depth", [1, 3, 8])
def test_one_pass_of_actor_and_critic_per_depth(depth):
    agent, collector = make(BOTH, replace(CONFIG, depth=depth))
    state = start(agent, collector)
    view = View(state.actors.obs, state.actors.env_state)
    noise = agent.noise(None, jax.random.key(0), (ENVS,))
    program = jax.make_jaxpr(agent.explore)(state.learner, view, noise)
    of_a_pass = count_products(jax.make_jaxpr(state.learner.net)(view.obs).jaxpr)
    assert of_a_pass == 6  # three layers of the actor, three of the critic
    assert count_products(program.jaxpr) == of_a_pass * (1 + depth)


def test_a_greedy_search_does_not_depend_on_batch_mates():
    agent, learner, _ = learn(BOTH, updates=5)
    collector = Collector(agent.search.env, 16, 4)
    actors = reset(collector, jax.random.split(jax.random.key(3), 16))
    obs = actors.obs + 0.01 * jnp.arange(16.0)[:, None]
    together = exploit(agent, learner, View(obs, actors.env_state))
    for i in (0, 7, 15):
        alone = View(
            obs[i : i + 1], jax.tree.map(lambda leaf, i=i: leaf[i : i + 1], actors.env_state)
        )
        np.testing.assert_array_equal(exploit(agent, learner, alone), together[i : i + 1])
    np.testing.assert_array_equal(together, exploit(agent, learner, View(obs, actors.env_state)))


def test_fingerprints_differ():
    obs = {"a": jnp.arange(3000.0).reshape(1000, 3), "b": jnp.zeros((1000, 2), bool)}
    assert len(np.unique(fingerprint(obs))) == 1000
    swapped = jnp.asarray([[1.0, 2.0], [2.0, 1.0], [0.0, 3.0]])
    assert len(np.unique(fingerprint(swapped))) == 3


def test_the_same_seed_twice_is_the_same_bits_and_trials_go_side_by_side():
    agent, collector = make(BOTH)
    first, _ = run(agent, collector, start(agent, collector), 12)
    second, _ = run(agent, collector, start(agent, collector), 12)
    for one, other in zip(*map(jax.tree.leaves, (first.learner, second.learner)), strict=True):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
    states = jax.tree.map(
        lambda *leaves: jnp.stack(leaves), *(start(agent, collector, seed) for seed in (0, 1))
    )
    side_by_side = jax.jit(jax.vmap(run_updates, in_axes=(None, None, 0, None)))
    both, _ = side_by_side(agent, collector, states, 12)
    np.testing.assert_allclose(both.learner.duals[0], first.learner.duals, rtol=1e-3)
    assert not np.allclose(both.learner.duals[0], both.learner.duals[1], rtol=1e-6)


def test_changing_a_number_compiles_nothing():
    agent, collector = make(BOTH)
    state = start(agent, collector)
    run(agent, collector, state, 1)
    programs = run._cache_size()
    changed = {name: 0.5 * leaf for name, leaf in state.learner.hyper._asdict().items()}
    changed["resample_period"] = jnp.int32(2)
    learner = state.learner._replace(hyper=state.learner.hyper._replace(**changed))
    run(agent, collector, state._replace(learner=learner), 1)
    assert run._cache_size() == programs


def test_gradients_that_are_never_cut_take_the_same_program():
    agents = [make(BOTH, replace(CONFIG, max_grad_norm=norm))[0] for norm in (None, 0.1)]
    assert jax.tree.structure(agents[0]) == jax.tree.structure(agents[1])


def test_memory_is_constant_over_ten_thousand_searches():
    agent, collector = make(BOTH)
    state = start(agent, collector)
    learner = state.learner

    @jax.jit
    def search_steps(learner, actors, key, count):
        def one(i, carry):
            env_state, obs = carry
            noise = agent.noise(None, jax.random.fold_in(key, i), (ENVS,))
            action, *_ = agent.explore(learner, View(obs, env_state), noise)
            env_state, result = jax.vmap(agent.search.env.step)(
                env_state, action, jax.random.split(jax.random.fold_in(key, i), ENVS)
            )
            return env_state, result.obs

        return jax.lax.fori_loop(0, count, one, (actors.env_state, actors.obs))

    def resident():
        with open("/proc/self/statm") as numbers:
            return int(numbers.read().split()[1]) * 4096

    def go(count, seed):
        after = search_steps(learner, state.actors, jax.random.key(seed), count)
        jax.block_until_ready(after)
        return after

    for seed in range(3):
        go(100, seed)
    arrays, before = len(jax.live_arrays()), resident()
    for seed in range(10):
        go(1_000, seed)
    assert len(jax.live_arrays()) == arrays
    assert resident() - before < 8 * 2**20


def test_dirichlet_noise_on_continuous_actions_is_refused():
    with pytest.raises(ProximaError, match="dirichlet_fraction"):
        make(continuous(BOTH), replace(CONFIG, dirichlet_fraction=0.1))


def test_search_plays_squashed_actions_and_keeps_the_raw_ones():
    spaces = CONTINUOUS.observation_space, CONTINUOUS.action_space
    network = replace(NETWORK, distribution="tanh_normal")
    agent = spo(CONFIG, problem_of(spaces, ENVS, network, env=CONTINUOUS))
    collector = Collector(CONTINUOUS, ENVS, CONFIG.sequence_length)
    rollout = collect(agent, collector, start(agent, collector))
    raw = rollout.aux.root_action  # (T, B, particles, 1)
    assert jnp.abs(raw).max() > 1.0 >= jnp.abs(rollout.action).max()
    away = jnp.abs(jnp.tanh(raw) - rollout.action[:, :, None])
    np.testing.assert_allclose(jnp.min(away, axis=2), 0.0, atol=1e-6)


def test_environments_on_the_host_are_refused():
    with pytest.raises(ProximaError, match=r"algorithm\.name: spo .*Probe-v0 on probe has none"):
        spo(CONFIG, problem(BOTH)._replace(env=None))


def test_without_search_in_evaluation_only_the_policy_plays():
    agent = spo(replace(CONFIG, search_in_evaluation=False), problem(BOTH))
    learner = init(agent, jax.random.key(0))
    env_state, obs = jax.vmap(agent.search.env.reset)(jax.random.split(jax.random.key(1), 64))
    view = View(obs, env_state)
    mode = learner.net.policy(obs).mode()
    np.testing.assert_array_equal(exploit(agent, learner, view), mode)
    assert agent.noise(learner, jax.random.key(0), (2, 4)).search is not None, "it trains by search"
    noise = agent.noise(None, jax.random.key(2), (64,))
    assert noise.search is None
    drawn, aux, _ = agent.explore(learner, view, noise)
    assert aux is None and 0.2 < np.mean(drawn) < 0.8  # the first policy is near uniform


def test_trading_is_not_played_with_knowledge_of_the_prices_to_come(workdir, monkeypatch):
    settings = [*SMALL, *SIZES["spo"], "algorithm.name=spo"]
    trading, control = load("sine_wave", [*settings, ROWS]), load("cartpole", settings)
    assert isinstance(trading.algorithm, SPOConfig) and trading.algorithm.search_in_evaluation
    made, compiled = [], reinforcement.compiled

    def noted(*arguments, **options):
        made.append(compiled(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(reinforcement, "compiled", noted)
    domain_of(trading).data.generate(trading, workdir)
    domain_of(trading).prepare(trading)
    build(control)
    assert [built.agent.search_in_evaluation for built in made] == [False, True]
    assert not spo(CONFIG, problem(BOTH)._replace(foresees=True)).search_in_evaluation
