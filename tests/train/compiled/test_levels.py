"""Environments with levels: what an episode's level is, and programs whose trials have a curriculum each."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from own_compiled import Corridor
from problems import problem_of

from proxima.algorithms.ppo import PPOConfig, ppo
from proxima.domains.curriculum import course, leveled
from proxima.domains.environments import strongly_typed
from proxima.train.compiled.collect import Collector
from proxima.train.compiled.levels import only
from proxima.train.compiled.program import _init, chunk
from proxima.train.curriculum import CurriculumConfig
from proxima.train.devices import DATA, Layout, lay_out

ENVS, STEPS = 4, 16
BY = {
    "steps": {"at": (0, 2 * ENVS * STEPS, 4 * ENVS * STEPS)},
    "success": {"threshold": 0.5, "window": 5},
    "progress": {"fast": 0.5, "slow": 0.1},
}
OWN = 3  # after two levels and one beyond


def config_of(by: str, **more) -> CurriculumConfig:
    count = 3 if by == "steps" else 2
    sizes = (2.0, 3.0, 4.0)[:count]
    beyond = {"size": (6.0,)}
    return CurriculumConfig(by=by, parameters={"size": sizes}, beyond=beyond, **BY[by] | more)


def corridor() -> Corridor:
    return strongly_typed(Corridor())


def program(config: CurriculumConfig, axis: str | None = None):
    env = leveled(config, corridor(), "corridor")
    settings = PPOConfig(batch_size=ENVS * STEPS, minibatch_size=ENVS * STEPS, epochs_per_update=1)
    agent = ppo(settings, problem_of((env.observation_space, env.action_space), ENVS, axis=axis))
    followed = course(config, 6 * ENVS * STEPS, ENVS * STEPS)
    return agent, Collector(env, ENVS, STEPS, axis, followed)


def train(config, seeds, updates, layout=Layout(1, 1), states=None, axis=None):  # noqa: B008
    agent, collector = program(config, axis)
    if states is None:
        states = lay_out(_init(agent, collector, np.asarray(seeds, np.uint32)), layout)
    active = jnp.ones(len(seeds), bool)
    return chunk(layout, agent, collector, states, active, jnp.int32(updates))


def values(tree):
    def plain(leaf):
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return np.asarray(jax.random.key_data(leaf) if is_key else leaf)

    return [plain(leaf) for leaf in jax.tree.leaves(tree)]


def test_levels_are_drawn_by_their_chances_and_kept_until_the_episode_ends():
    config = config_of("progress")
    env = leveled(config, corridor(), "corridor")
    chances = jnp.array([0.25, 0.0, 0.5, 0.25])
    drawn = replace(env, chances=chances)
    keys = jax.random.split(jax.random.key(0), 4000)
    levels = np.asarray(jax.jit(jax.vmap(lambda key: drawn.reset(key)[0].level))(keys))
    share = np.bincount(levels, minlength=4) / len(levels)
    assert share[1] == 0.0
    np.testing.assert_allclose(share, chances, atol=0.03)
    for level, size in enumerate((2.0, 3.0, 6.0, 4.0)):
        state, _ = only(env, level).reset(jax.random.key(1))
        other = only(env, (level + 1) % 4)  # the curriculum has gone on meanwhile
        for step in range(1, 7):
            state, result = other.step(state, jnp.int32(1), jax.random.key(step))
            assert bool(result.terminated) == (step >= size)
            assert float(result.obs[0]) == pytest.approx(step / size)
            if result.terminated:
                break


def test_episodes_of_the_task_itself_are_those_without_levels():
    plain, env = corridor(), leveled(config_of("success"), corridor(), "corridor")
    for seed in range(3):
        key = jax.random.key(seed)
        (own, seen), (attempt, observed) = plain.reset(key), env.reset(key)
        assert int(attempt.level) == OWN
        jax.tree.map(np.testing.assert_array_equal, (own, seen), (attempt.inner, observed))


def level_at(config, updates, seeds=(0,)):
    """The mean level of every update so far, (updates, trials)."""
    states, rows = None, []
    for _ in range(updates):
        states, sums = train(config, seeds, 1, states=states)
        rows.append(np.asarray(sums["curriculum/level"]))
    return states, np.array(rows)


def test_by_steps_levels_begin_where_the_scenario_says():
    _, levels = level_at(config_of("steps"), 6)
    assert levels[:, 0].tolist() == [1, 1, 2, 2, 3, 3]
    evenly = config_of("steps", at=None)  # three levels over six updates
    assert level_at(evenly, 6)[1][:, 0].tolist() == [1, 1, 2, 2, 3, 3]


def test_trials_come_from_level_to_level_by_themselves_and_a_number_compiles_nothing():
    config = config_of("success", threshold=0.9)
    _, levels = level_at(config, 8, seeds=(0, 1, 2))
    assert levels[0].tolist() == [1, 1, 1] and levels[-1].max() == 2
    compiled = chunk._cache_size()
    never, _ = level_at(config_of("success", threshold=2.0, window=7), 8, seeds=(0, 1, 2))
    assert chunk._cache_size() == compiled
    assert never.curriculum.level.tolist() == [0, 0, 0]
    # one trial's standing changes nothing of another's
    start, _ = level_at(config, 2, seeds=(0, 1, 2))
    level = start.curriculum.level
    pushed = start.curriculum._replace(level=level.at[1].set(1 - level[1]))
    copies = [jax.tree.map(jnp.copy, start) for _ in range(2)]
    usual, _ = train(config, (0, 1, 2), 3, states=copies[0])
    other, _ = train(config, (0, 1, 2), 3, states=copies[1]._replace(curriculum=pushed))
    of_trial = [
        [np.array_equal(a[k], b[k]) for a, b in zip(values(usual), values(other), strict=True)]
        for k in range(3)
    ]
    assert all(of_trial[0]) and all(of_trial[2]) and not all(of_trial[1])


def test_devices_that_share_a_trial_agree_on_its_level():
    config = config_of("progress")
    states, sums = train(config, (5,), 4, Layout(1, 2), axis=DATA)
    for leaf in jax.tree.leaves(states.curriculum):
        shards = [np.asarray(shard.data) for shard in leaf.addressable_shards]
        assert len(shards) == 2 and np.array_equal(*shards)
    assert bool(states.curriculum.seen.all())
    assert np.isfinite(sums["curriculum/level"]).all()


def test_without_a_curriculum_a_state_has_no_leaves_of_one():
    agent, collector = program(config_of("success"))
    plain = replace(collector, env=corridor(), course=None)
    states = _init(agent, plain, np.zeros(1, np.uint32))
    assert states.curriculum is None
    _, sums = chunk(Layout(1, 1), agent, plain, states, jnp.ones(1, bool), jnp.int32(1))
    assert not [name for name in sums if name.startswith("curriculum")]
