"""Every kind of pool against a plain loop over an environment with named fields and masks; EnvPool."""

import gymnasium
import numpy as np
import pytest
from known_envs import Counter, Masked

from proxima.core.errors import ProximaError
from proxima.core.spaces import Box, Discrete, MultiDiscrete, box, fields
from proxima.domains.control import gymnasium as adapter
from proxima.domains.control import pools
from proxima.domains.control.config import EnvConfig
from proxima.domains.control.workers import worker_groups

MASKED = EnvConfig(name="TestMasked-v0", workers=2)
SEEDS = [0, 1, 2, 7]
LENGTH = 25


def choose(numbers, mask) -> int:
    """A valid action that depends on nothing but the observation."""
    valid = np.flatnonzero(mask)
    return int(valid[int(numbers[0] + numbers[1]) % len(valid)])


def plain_loop(seed: int) -> list[tuple]:
    """The transitions of one Masked, by hand: observation, reward, what it led to, both endings."""
    env, rows = Masked(), []
    obs, _ = env.reset(seed=seed)
    for _ in range(LENGTH):
        action = choose(obs["place"]["numbers"], obs["action_mask"])
        next_obs, reward, terminated, truncated, _ = env.step(action)
        rows.append((seen(obs), reward, seen(next_obs), terminated, truncated))
        obs = env.reset()[0] if terminated or truncated else next_obs
    return rows


def seen(obs: dict) -> tuple:
    """Gymnasium's observation of a Masked as an agent sees it, in the order of the fields' names."""
    place = obs["place"]
    kind = [place["kind"] == value for value in (1, 2, 3)]
    return tuple(map(tuple, (obs["action_mask"] != 0, obs["flags"] != 0, kind, place["numbers"])))


def row_of(obs: dict, i: int) -> tuple:
    """One row of a pool's observations."""
    return tuple(tuple(obs[name][i].tolist()) for name in sorted(obs))


def play(groups: list, seeds: list[int]) -> list[list[tuple]]:
    """The real transitions of every environment of the groups, which take turns as in training."""
    share = len(seeds) // len(groups)
    obs = [pool.reset(seeds[g * share : (g + 1) * share]) for g, pool in enumerate(groups)]
    rows: list[list[tuple]] = [[] for _ in seeds]

    def act(g):
        given = obs[g]
        pairs = zip(given["place.numbers"], given["action_mask"], strict=True)
        groups[g].send(np.array([choose(*pair) for pair in pairs], np.int32))

    for g in range(len(groups)):
        act(g)
    while min(map(len, rows)) < LENGTH:
        for g, pool in enumerate(groups):
            step = pool.receive()
            for i in np.flatnonzero(step.mask):
                endings = (bool(step.terminated[i]), bool(step.truncated[i]))
                before, after = row_of(obs[g], i), row_of(step.next_obs, i)
                rows[g * share + i].append((before, float(step.reward[i]), after, *endings))
            obs[g] = step.obs
            act(g)
    for pool in groups:
        pool.receive()
    return [row[:LENGTH] for row in rows]


def kinds():
    """Every way to step Masked environments, by name."""
    return {
        "in process": lambda: [adapter.make_pool(MASKED, len(SEEDS))],
        "in process, two groups": lambda: [adapter.make_pool(MASKED, 2) for _ in range(2)],
        "workers": lambda: worker_groups(MASKED, len(SEEDS), 1, print),
        "workers, two groups": lambda: worker_groups(MASKED, len(SEEDS), 2, print),
    }


@pytest.mark.parametrize("kind", kinds())
def test_fields_masks_and_endings_are_those_of_a_plain_loop(kind):
    expected = [plain_loop(seed) for seed in SEEDS]
    assert {row[3:] for rows in expected for row in rows} == {
        (False, False),
        (True, False),
        (False, True),
    }
    groups = kinds()[kind]()
    try:
        assert play(groups, SEEDS) == expected
        assert play(groups, SEEDS) == expected  # a reset forgets all that was
    finally:
        for pool in groups:
            pool.close()
            pool.close()


def test_a_dict_becomes_fields_with_its_mask():
    observation_space, action_space = adapter.spaces(MASKED)
    assert action_space == Discrete(3)
    assert observation_space == fields(
        {
            "place.numbers": box(-np.inf, np.inf, (2,)),
            "place.kind": box(0, 1, (3,), "bool"),
            "flags": box(0, 1, (2,), "bool"),
            "action_mask": box(0, 1, (3,), "bool"),
        }
    )


class Choices(Counter):
    """Shows the row of choices it was given."""

    observation_space = gymnasium.spaces.Dict(
        {
            "many": gymnasium.spaces.Discrete(5000, start=3),
            "action_mask": gymnasium.spaces.MultiBinary((2, 3)),
        }
    )
    action_space = gymnasium.spaces.MultiDiscrete([3, 3], start=[1, 1])

    def _observe(self, action):
        return {"many": 4000 + self.step_in_episode, "action_mask": np.ones((2, 3), np.int8)}

    def step(self, action):
        assert self.action_space.contains(action)
        self.step_in_episode += 1
        return self._observe(action), float(action @ [1, 10]), False, False, {}


class Contradiction(Choices):
    action_space = gymnasium.spaces.Discrete(4)


class Steered(Choices):
    action_space = gymnasium.spaces.Box(-1, 1, (1,))


for entry_point in (Choices, Contradiction, Steered):
    gymnasium.register(f"Test{entry_point.__name__}-v0", entry_point=entry_point)


def test_equal_choices_are_a_multidiscrete_and_large_numbers_stay_numbers():
    pool = adapter.make_pool(EnvConfig(name="TestChoices-v0"), 2)
    assert pool.action_space == MultiDiscrete(3, 2)
    assert pool.observation_space.get("many") == box(3, 5002, (), "int32")
    assert pool.reset([0, 1])["action_mask"].shape == (2, 2, 3)
    step = pool.step(np.array([[0, 2], [1, 0]], np.int32))
    assert step.reward.tolist() == [31.0, 12.0] and step.obs["many"].tolist() == [4001, 4001]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("TestContradiction-v0", r"'action_mask' has the shape \(2, 3\).*need \(4,\)"),
        ("TestSteered-v0", "actions are continuous"),
    ],
)
def test_a_mask_that_does_not_fit_is_refused(name, words):
    with pytest.raises(ProximaError, match=words):
        adapter.spaces(EnvConfig(name=name))


def moved(obs: np.ndarray, action: int) -> np.ndarray:
    """Where Gymnasium's CartPole goes from there."""
    env = gymnasium.make("CartPole-v1").unwrapped
    env.reset(seed=0)
    env.state = tuple(obs.astype(np.float64))
    return env.step(action)[0]


def test_envpool_rows_are_real_steps_or_masked_and_keep_the_final_observation():
    config = EnvConfig(name="CartPole-v1", backend="envpool", max_steps_per_episode=12, workers=2)
    pool = pools.make_pools(config, print).train(6)[0]
    obs, steps, before = pool.reset(range(6)), np.zeros(6, int), np.zeros(6, bool)
    rng, endings = np.random.default_rng(0), set()
    for _ in range(60):
        actions = rng.integers(0, 2, 6).astype(np.int32)
        step = pool.step(actions)
        np.testing.assert_array_equal(step.mask, ~before)  # a fake row after every ending, no other
        for i, real in enumerate(step.mask):
            if not real:
                assert step.reward[i] == 0 and not step.terminated[i] and not step.truncated[i]
                assert np.abs(step.obs[i]).max() <= 0.05  # CartPole starts within that
                steps[i] = 0
                continue
            steps[i] += 1
            np.testing.assert_allclose(step.next_obs[i], moved(obs[i], actions[i]), atol=1e-5)
            fallen = abs(step.next_obs[i][0]) > 2.4 or abs(step.next_obs[i][2]) > 0.2095
            assert step.reward[i] == 1
            assert step.terminated[i] == (fallen and steps[i] < 12)
            assert step.truncated[i] == (steps[i] == 12)
            endings.add((bool(step.terminated[i]), bool(step.truncated[i])))
        obs, before = step.obs, step.terminated | step.truncated
    assert endings == {(False, False), (True, False), (False, True)}
    pool.close()


def trace(groups: list, seeds: list[int]) -> np.ndarray:
    """The observations of 30 steps, of all groups side by side, (31, N, 4)."""
    share = len(seeds) // len(groups)
    obs = [[pool.reset(seeds[g * share : (g + 1) * share])] for g, pool in enumerate(groups)]
    for t in range(30):
        for pool in groups:
            pool.send(np.full(share, t % 2, np.int32))
        for g, pool in enumerate(groups):
            obs[g].append(pool.receive().obs)
    return np.concatenate([np.stack(rows) for rows in obs], axis=1)


@pytest.mark.parametrize(
    "settings", [{"backend": "envpool"}, {"backend": "gymnasium", "workers": 2}]
)
def test_an_environment_depends_on_its_own_seed_alone(settings):
    seeds = [5, 6, 7, 8]
    traces = []
    for groups in (1, 2):
        config = EnvConfig(name="CartPole-v1", groups=groups, **settings)
        made = pools.make_pools(config, print).train(4)
        traces += [trace(made, seeds), trace(made, seeds), trace(made, seeds[::-1])[:, ::-1]]
        for pool in made:
            pool.close()
    for other in traces[1:]:
        np.testing.assert_array_equal(traces[0], other)
    assert len(np.unique(traces[0][0], axis=0)) == 4


def test_envpool_gives_fields_and_masks_too():
    config = EnvConfig(name="Game2048-v1", backend="envpool")
    observation_space, action_space = pools.translation(config)[:2]
    assert action_space == Discrete(4)
    assert observation_space.get("action_mask") == box(0, 1, (4,), "bool")
    pool = pools.make_pools(config, print).evaluate(3, False)
    obs = pool.reset([1, 2, 3])
    for _ in range(20):
        step = pool.step(np.argmax(obs["action_mask"], axis=-1))
        obs = step.obs
        assert obs["action_mask"].dtype == bool and obs["board"].shape == (3, 4, 4)
    pool.close()


def test_numbers_of_a_few_that_envpool_shows_are_flags():
    lake = EnvConfig(name="FrozenLake-v1", backend="envpool")
    pool = pools.make_pools(lake, print).evaluate(2, False)
    assert pool.reset([0, 1]).tolist() == [[True] + [False] * 15] * 2
    pool.close()


def test_what_envpool_draws_by_opengl_is_not_drawn():
    config = EnvConfig(name="Hopper-v4", backend="envpool")
    pool = pools.make_pools(config, print).evaluate(1, True)
    pool.reset([0])
    assert pool.render() is None  # without a display it would end this process
    pool.close()


def test_envpool_draws_its_first_environment():
    config = EnvConfig(name="CartPole-v1", backend="envpool")
    pool = pools.make_pools(config, print).evaluate(1, True)
    pool.reset([0])
    assert pool.render().shape == (400, 600, 3)
    pool.close()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"name": "CartPol-v1"},
            r"EnvPool has no 'CartPol-v1'; did you mean CartPole-v1.*gymnasium",
        ),
        ({"name": "Nothing like it"}, "env.backend=gymnasium"),
        ({"params": {"gravity": 9.8}}, "env.params.gravity: EnvPool's CartPole-v1 has no such"),
        (
            {"name": "BinPack-v2"},
            r"'action_mask' has the shape \(40, 20\), and its actions need \(2,",
        ),
    ],
)
def test_what_envpool_lacks_is_told_in_words(settings, words):
    with pytest.raises(ProximaError, match=words):
        pools.translation(EnvConfig(**({"name": "CartPole-v1", "backend": "envpool"} | settings)))


def test_lunar_lander_steps_in_this_process_and_in_workers():
    for workers in (0, 1):
        config = EnvConfig(name="LunarLander-v3", backend="gymnasium", workers=workers)
        pool = pools.make_pools(config, print).evaluate(2, False)
        assert isinstance(pool.observation_space, Box) and pool.action_space == Discrete(4)
        first = pool.reset([0, 1])
        assert pool.step(np.array([0, 2])).obs.shape == first.shape == (2, 8)
        pool.close()
