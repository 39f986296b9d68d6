"""Host environments: autoreset modes against a plain loop, and programs that repeat to the bit."""

from typing import ClassVar

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from proxima.algorithms.ppo import PPOConfig, ppo
from proxima.core.errors import ProximaError
from proxima.core.seeds import host_seed
from proxima.core.spaces import Box, Discrete
from proxima.core.types import View
from proxima.domains.control import gymnasium as adapter
from proxima.domains.control.config import EnvConfig
from proxima.nets.actor_critic import NetworkConfig
from proxima.train import host
from proxima.train.checkpoint import split_trials, stack_trials

MODES = ("same_step", "next_step", "disabled")
VECTOR_MODES = {
    "same_step": AutoresetMode.SAME_STEP,
    "next_step": AutoresetMode.NEXT_STEP,
    "disabled": AutoresetMode.DISABLED,
}


class Counter(gymnasium.Env):
    """Known endings: episode k of seed s lasts (s + k) % 3 + 1 steps; even ones are truncated."""

    metadata: ClassVar = {"render_modes": ["rgb_array"]}
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = gymnasium.spaces.Discrete(3, start=-1)

    def __init__(self, raises_at: int = 0, render_mode: str | None = None):
        self.raises_at, self.render_mode = raises_at, render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.seed, self.episode = seed, -1
        self.episode += 1
        self.step_in_episode = 0
        return self._observe(0), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.step_in_episode += 1
        if self.step_in_episode == self.raises_at:
            raise ValueError("the wheel came off")
        ended = self.step_in_episode == (self.seed + self.episode) % 3 + 1
        truncated = ended and self.episode % 2 == 0
        reward = 100 * self.episode + 10 * self.step_in_episode + action
        return self._observe(action), reward, ended and not truncated, truncated, {}

    def _observe(self, action):
        return np.array([self.episode, self.step_in_episode, action], np.float64)

    def render(self):
        return np.full((4, 4, 3), self.step_in_episode, np.uint8)


class Recycler(Counter):
    """Gives out one array for all its observations and overwrites it."""

    memory = None

    def _observe(self, action):
        if self.memory is None:
            self.memory = np.zeros(3)
        self.memory[:] = self.episode, self.step_in_episode, action
        return self.memory


class Bounded(gymnasium.Env):
    """Shows the action it was given."""

    observation_space = gymnasium.spaces.Box(0, 255, (2, 1), np.uint8)
    action_space = gymnasium.spaces.Box(
        np.array([-1.0, -2.0]), np.array([1.0, 2.0]), dtype=np.float64
    )

    def reset(self, *, seed=None, options=None):
        return np.zeros((2, 1), np.uint8), {}

    def step(self, action):
        assert action.dtype == np.float64 and action.shape == (2,)
        return np.full((2, 1), 200, np.uint8), float(action @ [1.0, 10.0]), False, False, {}


class Structured(Counter):
    observation_space = gymnasium.spaces.Dict({"a": gymnasium.spaces.Discrete(2)})


class ManyActions(Counter):
    action_space = gymnasium.spaces.MultiDiscrete([2, 3])


def needs_a_package():
    raise gymnasium.error.DependencyNotInstalled('run `pip install "gymnasium[box2d]"`')


for entry_point in (Counter, Recycler, Bounded, Structured, ManyActions, needs_a_package):
    gymnasium.register(f"Test{entry_point.__name__}-v0", entry_point=entry_point)
COUNTER = EnvConfig(name="TestCounter-v0")
CARTPOLE = EnvConfig(name="CartPole-v1")


def plain_loop(seed: int, actions: np.ndarray) -> list[tuple]:
    """The transitions of one Counter, by hand; actions count from 0 as the agent's do."""
    env, rows = Counter(), []
    obs, _ = env.reset(seed=seed)
    for action in actions:
        next_obs, reward, terminated, truncated, _ = env.step(int(action) - 1)
        rows.append((tuple(obs), reward, tuple(next_obs), terminated, truncated))
        obs = env.reset()[0] if terminated or truncated else next_obs
    return rows


def masked_transitions(pool, seeds: list[int], actions: np.ndarray) -> list[list[tuple]]:
    """The real transitions of a pool, environment i taking actions[i]; checks the fake ones."""
    obs = pool.reset(seeds)
    rows: list[list[tuple]] = [[] for _ in seeds]
    ended_before = np.zeros(len(seeds), bool)
    while min(map(len, rows)) < actions.shape[1]:
        taken = [min(len(row), actions.shape[1] - 1) for row in rows]
        step = pool.step(actions[np.arange(len(seeds)), taken])
        assert step.obs.dtype == step.next_obs.dtype == step.reward.dtype == np.float32
        ended = step.terminated | step.truncated
        for i, real in enumerate(step.mask):
            if real:
                endings = (bool(step.terminated[i]), bool(step.truncated[i]))
                rows[i].append((tuple(obs[i]), step.reward[i], tuple(step.next_obs[i]), *endings))
            else:
                assert ended_before[i] and step.reward[i] == 0 and not ended[i]
        obs, ended_before = step.obs, ended
    return [row[: actions.shape[1]] for row in rows]


def pools(num_envs: int):
    """Every way to make a pool of Counters."""
    made = [adapter.make_pool(COUNTER, num_envs, autoreset=mode) for mode in MODES]
    made += [
        adapter.wrap_pool(SyncVectorEnv([Counter] * num_envs, copy=copy, autoreset_mode=mode))
        for mode in VECTOR_MODES.values()
        for copy in (False, True)
    ]
    return made


def test_every_autoreset_mode_gives_the_transitions_of_a_plain_loop():
    seeds = [0, 1, 2, 7]
    actions = np.random.default_rng(0).integers(0, 3, (len(seeds), 30))
    expected = [plain_loop(seed, row) for seed, row in zip(seeds, actions, strict=True)]
    endings = {row[3:] for rows in expected for row in rows}
    assert endings == {(False, False), (True, False), (False, True)}
    for pool in pools(len(seeds)):
        assert masked_transitions(pool, seeds, actions) == expected
        assert masked_transitions(pool, seeds, actions) == expected  # a reset forgets old endings
        pool.close()


@pytest.mark.parametrize(("mode", "fakes"), [("same_step", 0), ("next_step", 1), ("disabled", 0)])
def test_only_next_step_mode_has_fake_rows(mode, fakes):
    pool = adapter.make_pool(COUNTER, 1, autoreset=mode)
    pool.reset([0])  # the first episode is one step long
    first, second = pool.step(np.array([0])), pool.step(np.array([0]))
    assert first.mask.all() and first.truncated.all()
    assert (~second.mask).sum() == fakes
    assert first.next_obs[0].tolist() == [0, 1, -1]
    assert first.obs[0].tolist() == ([0, 1, -1] if fakes else [1, 0, 0])
    assert second.obs[0].tolist() == ([1, 0, 0] if fakes else [1, 1, -1])


def test_an_environment_may_reuse_the_memory_of_its_observations():
    actions = np.random.default_rng(1).integers(0, 3, (2, 20))
    expected = [plain_loop(seed, row) for seed, row in zip((4, 5), actions, strict=True)]
    pool = adapter.make_pool(EnvConfig(name="TestRecycler-v0"), 2)
    assert masked_transitions(pool, [4, 5], actions) == expected


def test_the_mode_of_a_vector_env_is_its_own_although_metadata_are_shared():
    same = SyncVectorEnv([Counter], autoreset_mode=AutoresetMode.SAME_STEP)
    SyncVectorEnv([Counter], autoreset_mode=AutoresetMode.NEXT_STEP)
    assert same.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP  # what Gymnasium claims
    pool = adapter.wrap_pool(same)
    pool.reset([0])
    step = pool.step(np.array([0]))
    assert (step.next_obs[0].tolist(), step.obs[0].tolist()) == ([0, 1, -1], [1, 0, 0])
    assert pool.step(np.array([0])).mask.all()


def test_a_native_vector_env_is_taken_as_its_metadata_say():
    vector_env = gymnasium.make_vec("CartPole-v1", 3, vectorization_mode="vector_entry_point")
    pool = adapter.wrap_pool(vector_env)
    first = pool.reset([1, 2, 3])
    np.testing.assert_array_equal(first, pool.reset([1, 2, 3]))
    fakes = [~pool.step(np.zeros(3, int)).mask for _ in range(30)]
    assert np.sum(fakes, axis=0).min() >= 1  # always left ends within 11 steps


def test_a_vector_env_that_does_not_tell_its_mode_is_refused():
    class Silent(VectorEnv):
        metadata: ClassVar = {}
        num_envs = 1

    with pytest.raises(ProximaError, match="autoreset_mode"):
        adapter.wrap_pool(Silent())


def test_spaces_and_actions_are_translated():
    observation_space, action_space = adapter.spaces(COUNTER)
    assert observation_space == Box((3,), (-np.inf,) * 3, (np.inf,) * 3, "float32")
    assert action_space == Discrete(3)
    pool = adapter.make_pool(EnvConfig(name="TestBounded-v0"), 2)
    assert pool.observation_space == Box((2, 1), (0.0, 0.0), (255.0, 255.0), "uint8")
    assert pool.action_space == Box((2,), (-1.0, -2.0), (1.0, 2.0), "float32")
    assert pool.reset([0, 0]).dtype == np.uint8
    step = pool.step(np.array([[9.0, 0.5], [-0.5, -9.0]], np.float32))
    assert step.reward.tolist() == [6.0, -20.5] and step.next_obs.dtype == np.uint8
    frozen_lake = adapter.make_pool(EnvConfig(name="FrozenLake-v1"), 2)
    assert frozen_lake.observation_space == Discrete(16)
    assert frozen_lake.reset([0, 1]).dtype == np.int32


def test_an_episode_is_cut_at_the_limit_of_the_scenario():
    pool = adapter.make_pool(EnvConfig(name="CartPole-v1", max_steps_per_episode=3), 2)
    pool.reset([0, 1])
    steps = [pool.step(np.zeros(2, int)) for _ in range(6)]
    assert [step.truncated.all() for step in steps] == [False, False, True] * 2
    assert not any(step.terminated.any() for step in steps)


def test_an_environment_that_raises_is_named_with_its_step_and_message():
    config = EnvConfig(name="TestCounter-v0", params={"raises_at": 3})
    pool = adapter.make_pool(config, 3)
    pool.reset([0, 1, 0])  # episodes last 1, 2, 3 or 2, 3, 1 steps; only a third step raises
    with pytest.raises(ProximaError, match=r"environment 1 of 3.*step 5.*wheel came off") as caught:
        for _ in range(9):
            pool.step(np.zeros(3, int))
    assert isinstance(caught.value.__cause__, ValueError)
    wrapped = adapter.make_pool(config, 1, autoreset="next_step")
    wrapped.reset([2])
    with pytest.raises(ProximaError, match=r"step 3.*wheel came off"):
        for _ in range(9):
            wrapped.step(np.zeros(1, int))


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (EnvConfig(name="CartPol-v1"), "did you mean CartPole-v1"),
        (EnvConfig(name="CartPole-v99"), "CartPole-v1"),
        (EnvConfig(name="ALE/Pong-v5"), "pip install ale-py"),
        (EnvConfig(name="no_such_module:Thing-v0"), "pip install no_such_module"),
        (EnvConfig(name="what is this?"), "could not make"),
        (EnvConfig(name="Testneeds_a_package-v0"), r'pip install "gymnasium\[box2d\]"'),
        (EnvConfig(name="CartPole-v1", params={"suton_barto": True}), "sutton_barto_reward"),
        (EnvConfig(name="TestStructured-v0"), "observation space is Dict.*FlattenObservation"),
        (EnvConfig(name="TestManyActions-v0"), "action space is MultiDiscrete"),
    ],
)
def test_what_cannot_be_made_is_refused_in_words(config, words):
    with pytest.raises(ProximaError, match=words):
        adapter.make_pool(config, 2)
    with pytest.raises(ProximaError, match=words):
        adapter.spaces(config)


class Spy:
    """A pool that remembers what went through it."""

    def __init__(self, pool):
        self.pool = pool
        self.observation_space, self.action_space = pool.observation_space, pool.action_space
        self.num_envs = pool.num_envs
        self.resets, self.steps, self.seeds = [], [], []

    def reset(self, seeds):
        self.seeds.append(list(seeds))
        self.resets.append(self.pool.reset(seeds))
        return self.resets[-1]

    def step(self, actions):
        self.steps.append(self.pool.step(actions))
        return self.steps[-1]

    def render(self):
        return self.pool.render()

    def close(self):
        self.pool.close()


NUM_ENVS, STEPS = 2, 16


def make(config: EnvConfig = CARTPOLE, trials: int = 1, autoreset="same_step", **settings):
    """A small program, its agent and the pools it has made so far."""
    algorithm = PPOConfig(
        batch_size=NUM_ENVS * STEPS, minibatch_size=16, epochs_per_update=2, **settings
    )
    agent = ppo(algorithm, NetworkConfig(hidden=(8,)), adapter.spaces(config), NUM_ENVS, None, None)
    spies = []

    def make_pool(num_envs, render):
        spies.append(Spy(adapter.make_pool(config, num_envs, autoreset, render)))
        return spies[-1]

    return host.host_program(agent, make_pool, trials, NUM_ENVS, STEPS, 0), agent, spies


def leaves(tree):
    """NumPy leaves, keys as numbers."""
    keys = jax.dtypes.prng_key
    return [
        np.array(jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, keys) else leaf)
        for leaf in jax.tree.leaves(tree)
    ]


def assert_same(a, b):
    for left, right in zip(leaves(a), leaves(b), strict=True):
        np.testing.assert_array_equal(left, right)


def differ(a, b) -> bool:
    return any(not np.array_equal(x, y) for x, y in zip(leaves(a), leaves(b), strict=True))


ON = np.ones(1, bool)


def without_times(sums):
    return {name: value for name, value in sums.items() if not name.startswith("time/")}


def test_a_run_repeats_to_the_bit_and_chunks_may_be_cut_anywhere():
    program, _, spies = make()
    one, sums = program.chunk(program.init([3]), ON, 4)
    assert len(spies[0].resets) == 1
    again, sums_again = program.chunk(program.init([3]), ON, 4)  # the same pool, used before
    assert_same(one, again)
    assert_same(without_times(sums), without_times(sums_again))
    other, _, other_spies = make()
    halves, _ = other.chunk(other.init([3]), ON, 2)
    halves, _ = other.chunk(halves, ON, 2)
    assert_same(one, halves)
    assert len(other_spies[0].resets) == 1  # the second chunk took up the pool as it stood
    assert differ(one, other.chunk(other.init([4]), ON, 4)[0])


@pytest.mark.parametrize("autoreset", ["same_step", "next_step"])
def test_a_restored_run_goes_on_as_the_one_that_was_not_stopped(autoreset):
    program, _, spies = make(trials=2, autoreset=autoreset)
    on = np.ones(2, bool)
    states, _ = program.chunk(program.init([3, 4]), on, 2)
    states = program.reseed(states)
    saved = split_trials(states)
    states, sums = program.chunk(states, on, 2)
    assert len(spies[0].resets) == 2 and not set(spies[0].seeds[0]) & set(spies[0].seeds[1])

    restored, _, _ = make(trials=2, autoreset=autoreset)
    resumed, resumed_sums = restored.chunk(restored.place(stack_trials(saved)), on, 2)
    assert_same(states, resumed)
    assert_same(without_times(sums), without_times(resumed_sums))
    assert not program.exact_anywhere


def test_seeds_are_those_of_the_contract():
    program, _, spies = make(trials=2)
    states, on = program.init([3, 4]), np.ones(2, bool)
    states, _ = program.chunk(states, on, 1)
    program.chunk(program.reseed(states), on, 1)
    pairs = [(3, 0), (3, 1), (4, 0), (4, 1)]  # trial seed and environment
    assert spies[0].seeds == [
        [host_seed(trial + 10_000 + i, trial, 0) for trial, i in pairs],
        [host_seed(trial + i, trial, 1) for trial, i in pairs],
    ]
    program.evaluate(program.init([3, 4]).learner, "random", 4)
    assert spies[1].seeds == [[host_seed(0 + 999 + j, 0, 0) for j in range(4)]]


def test_a_reseed_drops_open_episodes():
    program, _, _ = make()
    states, _ = program.chunk(program.init([0]), ON, 1)
    assert np.any(states.actors.episode_length > 0)
    states = program.reseed(states)
    assert int(states.actors.generation[0]) == 1
    assert not np.any(states.actors.episode_length) and not np.any(states.actors.episode_return)


@pytest.mark.parametrize("autoreset", MODES)
def test_episode_sums_are_those_of_a_plain_count(autoreset):
    program, _, spies = make(trials=2, autoreset=autoreset)
    states, active = program.init([0, 1]), np.ones(2, bool)
    totals = np.zeros((2, 3))
    names = ("episode/count", "episode/return_sum", "episode/length_sum")
    for _ in range(3):
        states, sums = program.chunk(states, active, 2)
        totals += np.stack([sums[name] for name in names], axis=1)
    expected, lengths = np.zeros((2, 3)), np.zeros(2 * NUM_ENVS)
    for step in spies[0].steps:
        lengths += step.mask
        for i in np.flatnonzero(step.terminated | step.truncated):
            expected[i // NUM_ENVS] += 1, lengths[i], lengths[i]
            lengths[i] = 0
    assert expected[:, 0].min() >= 2
    np.testing.assert_array_equal(totals, expected)
    np.testing.assert_array_equal(states.actors.episode_length.ravel(), lengths)


def test_trials_have_their_own_seeds_and_a_stopped_one_stays_as_it_was():
    program, _, spies = make(trials=2)
    states = program.init([5, 6])
    before = split_trials(states)
    states, _ = program.chunk(states, np.array([True, False]), 2)
    assert len(set(spies[0].seeds[0])) == 2 * NUM_ENVS
    after = split_trials(states)
    assert_same(before[1], after[1])
    assert differ(before[0].learner, after[0].learner) and differ(before[0].key, after[0].key)
    program.chunk(states, np.array([True, False]), 1)
    assert len(spies[0].resets) == 1  # the stopped trial's count does not make the pool start over


def test_a_trial_whose_loss_is_not_finite_comes_back_as_it_went_in():
    program, _, _ = make(trials=2)
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
    assert all(np.isfinite(leaf).all() for leaf in leaves(after[0].learner.net))


def test_preparing_compiles_everything_and_changes_nothing():
    program, _, spies = make(EnvConfig(name="Acrobot-v1"))
    states = program.init([1])
    before = split_trials(states)
    states = program.prepare(states, 10)
    assert_same(before, split_trials(states))
    assert not spies[0].resets
    compiled = host._update._cache_size(), host._begin._cache_size()
    states, _ = program.chunk(states, ON, 1)
    assert (host._update._cache_size(), host._begin._cache_size()) == compiled
    fresh, _, _ = make(EnvConfig(name="Acrobot-v1"))
    assert_same(states, fresh.chunk(fresh.init([1]), ON, 1)[0])


@pytest.mark.parametrize("autoreset", MODES)
def test_a_continuous_environment_trains(autoreset):
    config = EnvConfig(name="Pendulum-v1", max_steps_per_episode=10)
    program, _, _ = make(config, trials=2, autoreset=autoreset, normalize_observations=True)
    states = program.init([0, 1])
    first = np.array(states.learner.net.actor.layers[0].weight)
    states, sums = program.chunk(states, np.ones(2, bool), 3)
    assert all(np.isfinite(value).all() for value in sums.values())
    assert np.abs(np.array(states.learner.net.actor.layers[0].weight) - first).max() > 0
    evaluation = program.evaluate(states.learner, "sampled", 3)
    assert evaluation.lengths.tolist() == [[10.0] * 3] * 2
    program.close()


def test_evaluation_episodes_are_the_same_for_every_learner_trial_and_policy():
    program, _, spies = make(trials=2)
    states = program.init([0, 1])
    first = program.evaluate(states.learner, "greedy", 20)
    states, _ = program.chunk(states, np.ones(2, bool), 3)
    later = program.evaluate(states.learner, "greedy", 20)
    assert not np.array_equal(first.returns, later.returns)
    sampled = program.evaluate(states.learner, "sampled", 20)
    again = program.evaluate(states.learner, "sampled", 20)
    np.testing.assert_array_equal(sampled.returns, again.returns)
    assert not np.array_equal(sampled.returns, later.returns)
    assert len(spies) == 2  # training, and one pool for all four evaluations
    # 20 episodes are two rounds of 10 per trial; four evaluations begin with the same observations.
    starts = np.array(spies[1].resets).reshape(4, 2, 2, 10, 4)
    assert len(np.unique(starts[0, :, 0].reshape(20, 4), axis=0)) == 20
    for other in (starts[1:], starts[:, :, 1:]):
        np.testing.assert_array_equal(other, np.broadcast_to(starts[0, :, :1], other.shape))


def test_greedy_evaluation_is_that_of_a_plain_loop_over_single_episodes():
    program, agent, spies = make(trials=2)
    states, _ = program.chunk(program.init([0, 1]), np.ones(2, bool), 3)
    evaluation = program.evaluate(states.learner, "greedy", 18)
    assert evaluation.returns.shape == evaluation.lengths.shape == (2, 18)
    seeds = np.array(spies[1].seeds)[
        :, :9
    ].ravel()  # two rounds of nine; the second trial's are equal
    env = gymnasium.make("CartPole-v1")
    exploit = jax.jit(lambda learner, obs: agent.exploit(learner, View(obs[None]))[0])
    for trial, episode in [(0, 0), (0, 17), (1, 3), (1, 9)]:
        learner = jax.tree.map(lambda leaf, trial=trial: leaf[trial], states.learner)
        (obs, _), ended, total = env.reset(seed=int(seeds[episode])), False, 0
        while not ended:
            obs, reward, terminated, truncated, _ = env.step(int(exploit(learner, obs)))
            ended, total = terminated or truncated, total + reward
        assert evaluation.returns[trial, episode] == evaluation.lengths[trial, episode] == total


def test_random_episodes_do_not_depend_on_how_many_are_asked_for():
    program, _, _ = make(trials=2)
    learners = program.init([0, 1]).learner
    few, many = program.evaluate(learners, "random", 5), program.evaluate(learners, "random", 18)
    np.testing.assert_array_equal(few.returns, many.returns[:, :5])
    np.testing.assert_array_equal(many.returns[0], many.returns[1])
    assert len(set(many.returns[0])) > 5


def test_an_endless_evaluation_is_refused(monkeypatch):
    monkeypatch.setattr(host, "EVALUATION_STEPS", 20)
    program, _, _ = make()
    with pytest.raises(ProximaError, match="max_steps_per_episode"):
        program.evaluate(program.init([0]).learner, "random", 16)


def test_a_recording_is_one_whole_episode_with_pictures_where_there_are_any():
    program, _, _ = make(COUNTER)
    learner = jax.tree.map(lambda leaf: leaf[0], program.init([0]).learner)
    recording = program.record(learner)
    length = len(recording.rewards)
    assert recording.obs.tolist()[0] == [0, 0, 0] and len(recording.actions) == length
    assert [frame[0, 0, 0] for frame in recording.frames] == list(range(length))
    program, _, _ = make(
        EnvConfig(name="TestRecycler-v0", params={"raises_at": 9}), autoreset="next_step"
    )
    assert len(program.record(learner).frames) == length


def test_an_environment_that_cannot_draw_is_recorded_without_pictures():
    pool = adapter.make_pool(EnvConfig(name="TestBounded-v0"), 1, render=True)
    pool.reset([0])
    assert pool.render() is None
    program, _, _ = make(EnvConfig(name="TestBounded-v0", max_steps_per_episode=4))
    recording = program.record(jax.tree.map(lambda leaf: leaf[0], program.init([0]).learner))
    assert recording.frames is None and recording.obs.shape == (4, 2, 1)
