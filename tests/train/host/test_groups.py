"""Two groups of host environments, structured observations, and rows that were lost with their process."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from host_envs import COUNTER, NUM_ENVS, STEPS, assert_same, differ, make, without_times

from proxima.core.errors import ProximaError
from proxima.core.returns import gae
from proxima.core.types import Transition
from proxima.domains.control import gymnasium as adapter
from proxima.domains.control.config import EnvConfig
from proxima.train.checkpoint import split_trials, stack_trials
from proxima.train.compiled.episodes import finished_episodes
from proxima.train.host import program as host

MASKED = EnvConfig(name="TestMasked-v0")


@pytest.mark.parametrize("autoreset", ["same_step", "next_step"])
def test_two_groups_repeat_to_the_bit_and_meet_the_episodes_of_one(autoreset):
    on, programs = np.ones(2, bool), {}
    for groups in (1, 2):
        program, _, spies = make(trials=2, groups=groups, autoreset=autoreset)
        states, sums = program.chunk(program.init([3, 4]), on, 3)
        again, _, _ = make(trials=2, groups=groups, autoreset=autoreset)
        states_again, sums_again = again.chunk(again.init([3, 4]), on, 3)
        assert_same(states, states_again)
        assert_same(without_times(sums), without_times(sums_again))
        programs[groups] = states, sums, spies
    (one, one_sums, (whole, *_)), (two, two_sums, (first, second, *_)) = programs.values()
    # Rows are trial by trial: the first group has each trial's environment 0, the second its 1.
    seeds, firsts = np.array(whole.seeds[0]), np.array(whole.resets[0])
    assert first.seeds[0] == seeds[::NUM_ENVS].tolist()
    assert second.seeds[0] == seeds[1::NUM_ENVS].tolist()
    np.testing.assert_array_equal(first.resets[0], firsts[::NUM_ENVS])
    # The sums of a matrix product may round otherwise over fewer rows; nothing else may differ.
    for name in ("episode/count", "episode/return_sum", "episode/length_sum"):
        np.testing.assert_array_equal(one_sums[name], two_sums[name])
    for a, b in zip(jax.tree.leaves(one.learner), jax.tree.leaves(two.learner), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)
    assert_same(one.key, two.key)


def test_fields_and_masks_reach_the_learner_and_invalid_actions_are_never_taken():
    program, _, spies = make(MASKED, trials=2, groups=2, normalize_observations=True)
    on = np.ones(2, bool)
    states = program.prepare(program.init([0, 1]), 4)
    states, sums = program.chunk(states, on, 4)  # an action that is not valid raises
    assert all(np.isfinite(value).all() for value in sums.values())
    assert min(sums["episode/count"]) > 5
    for policy in ("greedy", "sampled", "random"):
        played = program.evaluate(states.learner, policy, 5)
        again = program.evaluate(states.learner, policy, 5)
        np.testing.assert_array_equal(played.returns, again.returns)
        assert played.lengths.min() >= 1
    recording = program.record(jax.tree.map(lambda leaf: leaf[0], states.learner))
    assert recording.obs["place.numbers"].shape == (len(recording.rewards), 2)
    assert recording.obs["action_mask"][np.arange(len(recording.actions)), recording.actions].all()
    assert all(set(step.obs) == set(step.next_obs) for step in spies[0].steps)


def test_a_structured_run_restored_goes_on_as_the_one_that_was_not_stopped():
    on = np.ones(1, bool)
    program, _, _ = make(MASKED, groups=2, normalize_observations=True)
    states, _ = program.chunk(program.init([3]), on, 2)
    states = program.reseed(states)
    saved = split_trials(states)
    states, sums = program.chunk(states, on, 2)
    restored, _, _ = make(MASKED, groups=2, normalize_observations=True)
    resumed, resumed_sums = restored.chunk(restored.lay_out(stack_trials(saved)), on, 2)
    assert_same(states, resumed)
    assert_same(without_times(sums), without_times(resumed_sums))
    assert differ(states.learner, stack_trials(saved).learner)


class Losing:
    """A pool whose every environment loses its row in some steps, as if its process had died."""

    def __init__(self, pool, lost_steps):
        self.pool, self.lost_steps, self.steps = pool, lost_steps, 0
        self.observation_space, self.action_space = pool.observation_space, pool.action_space
        self.num_envs, self.close, self.render = pool.num_envs, pool.close, pool.render
        self.send = pool.send

    def reset(self, seeds):
        self.seeds = seeds
        return self.pool.reset(seeds)

    def receive(self):
        self.steps += 1
        step = self.pool.receive()
        if self.steps not in self.lost_steps:
            return step
        none = np.zeros(self.num_envs, bool)
        obs = self.pool.reset([seed + 1 for seed in self.seeds])
        return step._replace(
            obs=obs, next_obs=obs, reward=np.zeros_like(step.reward), terminated=none,
            truncated=~none, mask=none,
        )  # fmt: skip

    def step(self, actions):
        self.send(actions)
        return self.receive()


def losing_program(train: tuple[int, ...] = (), evaluate: tuple[int, ...] = ()):
    """A program on Counter's environments that loses rows in these steps."""
    _, agent, _ = make(COUNTER)

    def pool(num_envs, lost):
        return Losing(adapter.make_pool(COUNTER, num_envs), lost)

    pools = host.Pools(lambda n: [pool(n, train)], lambda n, render: pool(n, evaluate))
    return host.host_program(agent, pools, 1, NUM_ENVS, STEPS, 0)


def test_training_goes_on_over_lost_rows():
    program = losing_program(train=(5, STEPS + 1))
    states, sums = program.chunk(program.init([0]), np.ones(1, bool), 3)
    assert all(np.isfinite(value).all() for value in sums.values())
    assert int(states.learner.updates[0]) == 3


def test_an_evaluation_with_a_lost_episode_is_played_again():
    whole = losing_program()
    learners = whole.init([0]).learner
    expected = whole.evaluate(learners, "greedy", 4)
    broken = losing_program(evaluate=(1, 3))  # in the first try, and in the second
    played = broken.evaluate(learners, "greedy", 4)
    np.testing.assert_array_equal(played.returns, expected.returns)
    never = losing_program(evaluate=tuple(range(1, 100)))
    with pytest.raises(ProximaError, match="begun 3 times"):
        never.evaluate(learners, "greedy", 4)


def test_an_episode_is_truncated_at_the_last_step_before_it_was_lost():
    rng = np.random.default_rng(0)
    steps, envs = 12, 3
    lost = np.zeros((steps, envs), bool)
    lost[4, 0] = lost[0, 1] = lost[7, 2] = lost[8, 2] = True
    ended = np.zeros_like(lost)
    ended[3, 1] = ended[6, 2] = True
    terminated = ended & (np.arange(envs) == 2)
    rollout = Transition(
        obs=None,
        action=None,
        reward=jnp.asarray(np.where(lost, 0.0, rng.normal(size=lost.shape)), jnp.float32),
        next_obs=None,
        terminated=jnp.asarray(terminated),
        truncated=jnp.asarray((ended & ~terminated) | lost),
        mask=jnp.asarray(~lost),
        aux=None,
    )
    gathered = jnp.asarray([1.0, 2.0, 3.0])
    count = jnp.zeros((), jnp.int32)
    actors = host.HostActors(count, count, count, gathered, gathered)
    cut, after = host._cut_at_losses(rollout, actors)
    assert np.argwhere(np.asarray(cut.truncated) & np.asarray(cut.mask)).tolist() == [
        [3, 0],
        [3, 1],
    ]
    assert after.episode_return.tolist() == [
        1.0,
        0.0,
        3.0,
    ]  # environment 1 was lost in its first row
    _, episodes = finished_episodes(cut, after)
    reward = np.asarray(rollout.reward)
    returns = [1 + reward[:4, 0].sum(), reward[1:4, 1].sum(), 3 + reward[:7, 2].sum()]
    assert float(episodes["episode/count"]) == 3
    np.testing.assert_allclose(episodes["episode/return_sum"], sum(returns), rtol=1e-6)
    # Nothing of a lost row reaches an advantage: whatever its value, those of real rows stay.
    value, next_value = (jnp.asarray(rng.normal(size=lost.shape), jnp.float32) for _ in range(2))
    numbers = (cut.terminated, cut.truncated, jnp.float32(0.9), jnp.float32(0.8))
    plain = gae(cut.reward, value, next_value, *numbers)
    wild = gae(cut.reward, jnp.where(lost, 1e6, value), jnp.where(lost, -1e6, next_value), *numbers)
    np.testing.assert_array_equal(plain[~lost], wild[~lost])
