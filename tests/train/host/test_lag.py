"""A policy lag of one rollout: who collects which rollout, and that chunks and restarts change nothing."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from host_envs import (
    CARTPOLE,
    NUM_ENVS,
    STEPS,
    Spy,
    assert_same,
    differ,
    make,
    make_pool,
    without_times,
)
from scenario_files import file_message

from proxima import load
from proxima.build import ALGORITHMS, algorithm
from proxima.core.errors import ProximaError
from proxima.domains.control.domain import build
from proxima.train.checkpoint import split_trials, stack_trials
from proxima.train.devices import copied
from proxima.train.host import program as host
from proxima.train.host.act import chooser
from proxima.train.host.collect import HostCollector

ON = np.ones(1, bool)
OBSERVED = {"normalize_observations": True, "normalize_rewards": True}
HOST = {"env.backend": "gymnasium", "env.num_envs": 2, "training.policy_lag": 1}


def in_plain_order(agent, states, seeds, updates):
    """One thing after the other: collect by the policy before the last update, then learn."""
    learner, actors, key, _ = copied(states)
    pool = Spy(make_pool(CARTPOLE, NUM_ENVS, "same_step"))
    collector = HostCollector(agent, [pool], 1, STEPS)
    collector.reset(np.asarray(seeds))
    acting, actors, going = actors.policy, actors._replace(policy=None), jnp.asarray(ON)
    sums = []
    for _ in range(updates):
        key, shuffle, noise = host._begin(agent, learner, key, ON, (STEPS, NUM_ENVS))
        explore = chooser(agent, acting, greedy=False)
        rollout, _ = collector.collect(explore, jax.device_get(noise))
        acting = copied(agent.policy(learner))  # of before this update: it collects the next one
        learner, _, actors, metrics, going = host._update(
            agent, learner, acting, actors, rollout, shuffle, going
        )
        sums.append(metrics)
    totals = {name: sum(np.asarray(row[name]) for row in sums) for name in sums[0]}
    return host.TrainState(learner, actors._replace(policy=acting), key), totals, pool


def test_each_rollout_is_collected_by_the_policy_before_the_last_update():
    program, agent, spies = make(policy_lag=1, **OBSERVED)
    first = program.init([3])
    kept = copied(first)
    states, sums = program.chunk(first, ON, 5)
    expected, totals, pool = in_plain_order(agent, kept, [spies[0].seeds[0]], 5)
    assert_same(states, expected)
    assert_same(without_times(sums), totals)
    for step, plain in zip(spies[0].steps, pool.steps, strict=True):
        assert_same(step, plain)
    other, _, _ = make(**OBSERVED)
    assert differ(states.learner, other.chunk(other.init([3]), ON, 5)[0].learner)


def test_the_first_two_rollouts_are_of_the_first_policy():
    program, agent, _ = make(policy_lag=1)
    states = program.init([3])
    first = copied(agent.policy(states.learner))
    assert_same(states.actors.policy, first)
    states, _ = program.chunk(states, ON, 1)
    assert_same(states.actors.policy, first)
    second = copied(agent.policy(states.learner))
    states, _ = program.chunk(states, ON, 1)
    assert_same(states.actors.policy, second)
    assert differ(first, second)


def test_runs_repeat_and_chunks_may_be_cut_anywhere():
    program, _, spies = make(trials=2, policy_lag=1, groups=2)
    on = np.ones(2, bool)
    one, sums = program.chunk(program.init([3, 4]), on, 4)
    again, sums_again = program.chunk(program.init([3, 4]), on, 4)
    assert_same(one, again)
    assert_same(without_times(sums), without_times(sums_again))
    other, _, spies = make(trials=2, policy_lag=1, groups=2)
    states = other.init([3, 4])
    for updates in (1, 2, 1):
        states, _ = other.chunk(states, on, updates)
    assert_same(one, states)
    assert len(spies[0].resets) == 1


def test_a_restored_run_goes_on_as_the_one_that_was_not_stopped():
    program, _, _ = make(trials=2, policy_lag=1, **OBSERVED)
    on = np.ones(2, bool)
    states, _ = program.chunk(program.init([3, 4]), on, 3)
    states = program.reseed(states)
    saved = split_trials(states)
    states, sums = program.chunk(states, on, 3)
    restored, _, _ = make(trials=2, policy_lag=1, **OBSERVED)
    resumed, resumed_sums = restored.chunk(restored.lay_out(stack_trials(saved)), on, 3)
    assert_same(states, resumed)
    assert_same(without_times(sums), without_times(resumed_sums))


def test_the_environments_step_while_the_learner_learns(monkeypatch):
    program, _, _ = make(policy_lag=1)
    states = program.init([3])
    in_second_rollout, steps, waited = threading.Event(), [], []
    receive, update = Spy.receive, host._update

    def counted(self):
        steps.append(1)
        if len(steps) > STEPS:
            in_second_rollout.set()
        return receive(self)

    def waits(*parts):
        waited.append(in_second_rollout.wait(60))  # taking turns, the rollout would come after it
        return update(*parts)

    monkeypatch.setattr(Spy, "receive", counted)
    monkeypatch.setattr(host, "_update", waits)
    program.chunk(states, ON, 2)
    assert waited == [True, True] and len(steps) == 2 * STEPS


def test_a_trial_whose_loss_is_not_finite_comes_back_as_it_went_in():
    program, _, _ = make(trials=2, policy_lag=1)
    states = program.init([5, 6])
    rates = states.learner.hyper.learning_rate.at[1].set(jnp.nan)
    hyper = states.learner.hyper._replace(learning_rate=rates)
    states = states._replace(learner=states.learner._replace(hyper=hyper))
    before = split_trials(states)
    states, sums = program.chunk(states, np.ones(2, bool), 3)
    after = split_trials(states)
    assert np.isfinite(sums["loss/total"]).tolist() == [True, False]
    assert_same(before[1], after[1])
    assert int(after[0].learner.updates) == 3


def test_an_error_of_the_environments_is_heard_and_no_thread_is_left(monkeypatch):
    program, _, _ = make(policy_lag=1)
    states = program.init([3])
    receive, steps = Spy.receive, []

    def breaks(self):
        steps.append(1)
        if len(steps) > STEPS + 2:
            raise ProximaError("the wheel came off")
        return receive(self)

    monkeypatch.setattr(Spy, "receive", breaks)
    threads = threading.active_count()
    with pytest.raises(ProximaError, match="the wheel came off"):
        program.chunk(states, ON, 3)
    assert threading.active_count() == threads


@pytest.mark.parametrize("name", ["dqn", "pqn"])
def test_other_algorithms_repeat_and_resume_with_a_lag(name):
    settings = {"dqn": {"warmup_steps": 8, "batch_size": 8}, "pqn": {}}[name]
    scenario = load(
        "cartpole_host",
        HOST
        | {"trials": 1, "algorithm.name": name, "network.hidden": [8]}
        | {f"algorithm.{key}": value for key, value in settings.items()},
    )
    built = build(scenario)
    states, _ = built.program.chunk(built.program.init([3]), ON, 3)
    states = built.program.reseed(states)
    saved = split_trials(states)
    states, _ = built.program.chunk(states, ON, 3)
    other = build(scenario)
    resumed, _ = other.program.chunk(other.program.lay_out(stack_trials(saved)), ON, 3)
    assert_same(states, resumed)
    assert differ(states.learner, stack_trials(saved).learner)


def test_noise_of_algorithms_that_may_lag_does_not_depend_on_the_learner():
    """Otherwise where a chunk begins would change it: there the learner is one update further."""
    assert [name for name in ALGORITHMS if algorithm(name).lags] == ["ppo", "dqn", "pqn"]
    for name in ("ppo", "dqn", "pqn"):
        settings = {"algorithm.name": name, "trials": 1, "training.policy_lag": 0}
        agent = build(load("cartpole_host", HOST | settings)).agent
        key = jax.random.key(1)
        with_learner = agent.noise(agent.init(jax.random.key(0)), key, (3, 2))
        assert_same(with_learner, agent.noise(None, key, (3, 2)))


@pytest.mark.parametrize(
    ("scenario", "settings", "words"),
    [
        ("cartpole", {}, "training.policy_lag: 1, and CartPole-v1 on gymnax is compiled"),
        ("pendulum_ddpg", {"env.backend": "gymnasium"}, "and ddpg takes no rollouts of an earlier"),
        ("pendulum_sac", {"env.backend": "gymnasium"}, "algorithm.name to ppo, dqn or pqn"),
    ],
)
def test_where_a_lag_is_not_possible_words_say_so(scenario, settings, words):
    with pytest.raises(ProximaError, match=words):
        build(load(scenario, {"training.policy_lag": 1, **settings}))


def test_a_lag_of_two_is_refused(tmp_path):
    told = file_message(tmp_path, "training: {policy_lag: 2}\n")
    assert "training.policy_lag: 2 is not allowed: must be 0 or 1" in told
