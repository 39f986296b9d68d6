"""Jumanji's environments as Envs: its own rollouts step by step, masks, endings, pools, refusals."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proxima.core.errors import ProximaError
from proxima.core.spaces import ACTION_MASK, Discrete, MultiDiscrete
from proxima.domains.packing.jumanji import Jumanji, interface, make, make_pool, named_arrays
from proxima.domains.packing.scenario import PackingEnvConfig

SMALL = {
    "BinPack-v2": {"max_num_items": 4, "max_num_ems": 8},
    "Maze-v0": {"num_rows": 5, "num_cols": 6},
    "Knapsack-v1": {"num_items": 6},
    "Snake-v1": {"num_rows": 5, "num_cols": 5},
    "Game2048-v1": {"board_size": 3},
    "JobShop-v0": {"num_jobs": 3, "num_machines": 2, "max_num_ops": 2, "max_op_duration": 2},
    "TSP-v1": {"num_cities": 5},
    "Minesweeper-v0": {"num_rows": 4, "num_cols": 4, "num_mines": 3},
}


def small(name: str, **settings):
    return make(PackingEnvConfig(name=name, params=SMALL[name], **settings), 0)


@pytest.mark.parametrize("name", ["Maze-v0", "Snake-v1", "JobShop-v0", "Minesweeper-v0"])
def test_every_step_is_jumanjis(name):
    """The same instance, key and action give the same observation, reward and ending."""
    env = small(name)
    inner = env.problem.inner
    state, obs = env.reset(jax.random.key(1))
    theirs, timestep = inner.reset(jax.random.key(1))
    step, step_theirs = jax.jit(lambda env, *rest: env.step(*rest)), jax.jit(inner.step)
    for turn in range(12):
        expected = named_arrays(timestep.observation)
        expected["action_mask"] = expected["action_mask"].reshape(obs["action_mask"].shape)
        assert obs.keys() == expected.keys()
        jax.tree.map(np.testing.assert_array_equal, obs, expected)
        key = jax.random.key(turn)
        action = jnp.argmax(obs["action_mask"], axis=-1)
        inner_action = action
        if isinstance(env.action_space, Discrete) and env.problem.parts:
            inner_action = jnp.stack(jnp.unravel_index(action, env.problem.parts))
        state, result = step(env, state, action, key)
        theirs, timestep = step_theirs(dataclasses.replace(theirs, key=key), inner_action)
        obs = result.obs
        assert float(result.reward) == float(timestep.reward)
        assert bool(result.terminated) == bool(timestep.last())
        if result.terminated:
            break


@pytest.mark.parametrize("name", SMALL)
def test_outside_a_policy_meets_jumanjis_own_masks_and_actions(name):
    env = small(name)
    found = interface(env)
    obs = jax.tree.map(lambda leaf: leaf[None], env.reset(jax.random.key(1))[1])
    kinds = found.observation["fields"]
    own = {key: rows.reshape(1, *kinds[key]["shape"]) for key, rows in obs.items()}
    jax.tree.map(np.testing.assert_array_equal, found.encode(own, jnp), obs)
    action = jnp.argmax(obs["action_mask"], axis=-1).astype(jnp.int32)
    (told,) = found.decode(action, jnp)
    assert (list(told.shape), str(told.dtype)) == (found.action["shape"], found.action["dtype"])
    if isinstance(env.problem, Jumanji):
        env.problem.inner.action_spec.validate(told)
    if ACTION_MASK in own and env.problem.parts and isinstance(env.action_space, Discrete):
        assert own[ACTION_MASK][0][tuple(told)]


@pytest.mark.parametrize("name", SMALL)
def test_spaces_say_what_comes(name):
    env = small(name)
    state, obs = jax.eval_shape(env.reset, jax.random.key(0))
    action = jnp.zeros(env.action_space.shape, jnp.int32)
    after, result = jax.eval_shape(env.step, state, action, jax.random.key(0))
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), state) == jax.tree.map(
        lambda leaf: (leaf.shape, leaf.dtype), after
    )
    for each in (obs, result.obs):
        told = {name: (leaf.shape, str(leaf.dtype)) for name, leaf in each.items()}
        assert told == {
            name: (space.shape, space.dtype) for name, space in env.observation_space.items()
        }
    assert not any(leaf.weak_type for leaf in jax.tree.leaves((state, after, obs)))


def test_actions_are_joint_where_one_mask_spans_their_parts():
    assert small("BinPack-v2").action_space == Discrete(8 * 4)
    assert small("Minesweeper-v0").action_space == Discrete(16)
    assert small("JobShop-v0").action_space == MultiDiscrete(4, 2)
    assert small("Maze-v0").action_space == Discrete(4)


def test_a_time_limit_truncates_and_arriving_terminates():
    env = small("Maze-v0", max_steps_per_episode=3)
    state, obs = env.reset(jax.random.key(0))
    walls, target = obs["walls"], obs["target_position"]
    assert not np.array_equal(obs["agent_position"], target)
    for step in range(1, 4):  # into a wall or the edge if it can, else to and fro: never arriving
        away = jnp.argmin(obs["action_mask"])
        state, result = env.step(state, away, jax.random.key(0))
        assert not result.terminated
        assert bool(result.truncated) == (step == 3)
    # beside the target, at the last step allowed: arriving counts, not the limit
    beside = [
        (target + jnp.array(move), (index + 2) % 4)
        for index, move in enumerate(((-1, 0), (0, 1), (1, 0), (0, -1)))
    ]
    place, back = next(
        (at, action)
        for at, action in beside
        if 0 <= at[0] < 5 and 0 <= at[1] < 6 and not walls[at[0], at[1]]
    )
    inner = state.inner
    here = type(inner.agent_position)(*place)
    mask = jnp.ones(4, bool)
    inner = dataclasses.replace(inner, agent_position=here, action_mask=mask)
    state = state._replace(inner=inner, steps=jnp.int32(2))
    _, result = env.step(state, jnp.int32(back), jax.random.key(0))
    assert result.terminated
    assert not result.truncated
    assert result.reward == 1


def test_a_step_is_random_by_its_own_key_only():
    """Copies of a state stepped with different keys differ: a search cannot look into the future."""
    env = small("Game2048-v1")
    state, obs = env.reset(jax.random.key(0))
    action = jnp.argmax(obs["action_mask"])
    keys = jax.random.split(jax.random.key(1), 20)
    _, results = jax.vmap(env.step, (None, None, 0))(state, action, keys)
    assert len(np.unique(np.asarray(results.obs["board"]).reshape(20, -1), axis=0)) > 1
    again, _ = jax.vmap(env.step, (None, None, 0))(state, action, keys)
    assert not any(
        jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) for leaf in jax.tree.leaves(again)
    )


def test_a_pool_is_made_by_the_seed_and_training_draws_from_it():
    env = small("Maze-v0", instances=300)
    first, again, other = (make_pool(env.problem, 300, seed)[1]["walls"] for seed in (0, 0, 1))
    assert first.shape == (300, 5, 6)
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(first, env.pool[1]["walls"])
    assert not np.array_equal(first, other)
    keys = jax.random.split(jax.random.key(0), 100)
    _, obs = jax.vmap(env.reset)(keys)

    def rows(obs) -> set[bytes]:
        parts = [np.asarray(obs[name]).reshape(len(obs["walls"]), -1) for name in sorted(obs)]
        return {row.astype(np.int32).tobytes() for row in np.concatenate(parts, axis=1)}

    pool = rows(env.pool[1])
    assert rows(obs) <= pool
    _, fresh = jax.vmap(dataclasses.replace(env, pool=None).reset)(keys)
    assert len(rows(fresh) & pool) <= 5  # a small maze may come twice


def test_evaluation_packs_no_instance_of_the_pool():
    from proxima.core.seeds import evaluation_keys

    sizes = {"max_num_items": 10, "max_num_ems": 12}  # of fewer items, some instances come twice
    env = make(PackingEnvConfig(instances=200, params=sizes), 0)
    pool = {row.tobytes() for row in np.asarray(env.pool[1]["items"])}
    keys = evaluation_keys(jnp.uint32(0), 100)
    _, obs = jax.vmap(dataclasses.replace(env, pool=None).reset)(keys)
    assert len(pool) > 150
    assert not pool & {row.tobytes() for row in np.asarray(obs["items"])}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"name": "Binpack-v2"}, "did you mean BinPack-v2"),
        ({"name": "Connector-v3"}, "each agent a reward of its own"),
        ({"name": "MultiCVRP-v0"}, "no choices among a few"),
        (
            {"name": "Maze-v0", "params": {"num_row": 5}},
            "env.params.num_row: .*did you mean num_rows",
        ),
        ({"name": "Maze-v0", "params": {"generator": "Toy"}}, "RandomGenerator, ToyGenerator"),
        (
            {"name": "Game2048-v1", "params": {"size": 5}},
            "env.params.size: Game2048-v1 has no such",
        ),
    ],
)
def test_what_does_not_fit_is_told_in_words(settings, told):
    with pytest.raises(ProximaError, match=told):
        make(PackingEnvConfig(**settings), 0)


def test_another_generator_by_name():
    env = make(PackingEnvConfig(name="Maze-v0", params={"generator": "ToyGenerator"}), 0)
    assert env.observation_space.get("walls").shape == (5, 5)
    _, first = env.reset(jax.random.key(0))
    _, second = env.reset(jax.random.key(1))
    jax.tree.map(np.testing.assert_array_equal, first, second)
