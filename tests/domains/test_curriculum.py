"""A curriculum's settings: what they become, and what is said where they are wrong."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from own_compiled import Corridor, Plain

from proxima.build import domain_of
from proxima.core.errors import ProximaError
from proxima.domains.control.compiled import ready
from proxima.domains.control.config import EnvConfig
from proxima.domains.control.gymnax import make as make_gymnax
from proxima.domains.curriculum import leveled
from proxima.domains.packing.jumanji import make as make_packing
from proxima.domains.packing.scenario import PackingEnvConfig
from proxima.scenario import load
from proxima.train.compiled.levels import only
from proxima.train.curriculum import CurriculumConfig, first_updates


def levels_of(parameters, beyond=None):
    return CurriculumConfig(by="success", parameters=parameters, beyond=beyond or {}, threshold=1.0)


def test_numbers_are_found_by_name_in_whichever_environment():
    lengths = {"length": (0.25, 1.0), "max_steps_in_episode": (100, 200)}
    pole = leveled(levels_of(lengths), make_gymnax(EnvConfig()), "CartPole-v1")
    assert pole.paths == ("params.length", "params.max_steps_in_episode")
    np.testing.assert_allclose(pole.values[0], [0.25, 1.0, 0.5])
    assert pole.values[1].tolist() == [100, 200, 500] and pole.values[1].dtype == jnp.int32
    config = EnvConfig(backend="own:Corridor", max_steps_per_episode=9)
    own = leveled(levels_of({"size": (2,)}, {"size": (5,)}), ready(Corridor(), config), "Corridor")
    assert own.paths == ("env.size",)
    assert own.values[0].tolist() == [2, 5, 4]
    limits = leveled(levels_of({"limit": (3,)}), ready(Corridor(), config), "Corridor")
    assert limits.paths == ("limit",) and limits.values[0].tolist() == [3, 9]


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        (
            {"lenght": (1.0,)},
            "parameters.lenght: CartPole-v1 has no such number; did you mean length",
        ),
        ({"zeal": (1.0,)}, "has no such number; it has: max_steps_in_episode, gravity"),
        ({"max_steps_in_episode": (1.5,)}, "max_steps_in_episode: expected whole numbers, got 1.5"),
        ({"observation_space": (1.0,)}, "shapes CartPole-v1's program"),
    ],
)
def test_numbers_that_there_are_not(parameters, words):
    with pytest.raises(ProximaError) as failure:
        leveled(levels_of(parameters), make_gymnax(EnvConfig()), "CartPole-v1")
    assert str(failure.value).startswith("curriculum.parameters.") and words in str(failure.value)


def test_a_size_of_jumanjis_shapes_the_program_and_a_plain_class_has_no_numbers():
    grid = make_packing(PackingEnvConfig(name="Maze-v0"), 0)
    with pytest.raises(ProximaError, match=r"num_rows: shapes Maze-v0's program.*it has: limit"):
        leveled(levels_of({"num_rows": (5,)}), grid, "Maze-v0")
    fixed = ready(Plain(), EnvConfig(backend="own:Plain"))
    with pytest.raises(ProximaError, match="Plain has no numbers that could change"):
        leveled(levels_of({"size": (5,)}), fixed, "Plain")


def test_the_levels_of_steps_begin_with_an_update():
    config = CurriculumConfig(by="steps", parameters={"length": (1, 2, 3)}, at=(0, 100, 257))
    assert first_updates(config, None, 64) == [0, 2, 5]
    evenly = CurriculumConfig(by="steps", parameters={"length": (1, 2, 3)})
    assert first_updates(evenly, 960, 64) == [0, 5, 10]


STEPS = "curriculum={by: steps, parameters: {length: [1, 2]}}"
FAULTS = {
    "curriculum={by: success, parameters: {length: [1, 2], masspole: [1]}, threshold: 1}": (
        "curriculum.parameters: as many values for each, a level each; here length 2, masspole 1"
    ),
    "curriculum={by: success, parameters: {length: [1]}, beyond: {gravity: [1]}, threshold: 1}": (
        "curriculum.beyond: has gravity, and parameters length"
    ),
    "curriculum={by: success, parameters: {length: [1]}}": "curriculum.threshold: null, and by is",
    "curriculum={by: progress, parameters: {length: [1]}, at: [0]}": (
        "curriculum.at: is for by: steps, and by is progress"
    ),
    "curriculum={by: progress, parameters: {length: [1]}, slow: 0.5}": (
        "curriculum.slow: 0.5 is not slower than fast (0.1)"
    ),
    "curriculum={by: steps, parameters: {length: [1, 2]}, at: [0]}": "1 steps for 2 levels",
    "curriculum={by: steps, parameters: {length: [1, 2]}, at: [5, 2]}": "does not rise from 0",
    "curriculum={by: luck, parameters: {length: [1]}}": "must be steps, success or progress",
    "curriculum={by: steps, parameters: {}}": "curriculum.parameters: {} is not allowed",
    "curriculum={by: steps, parameters: {length: [x]}}": "expected a number",
    "curriculum={by: steps, parameter: {length: [1]}}": "did you mean",
}


@pytest.mark.parametrize("setting", FAULTS)
def test_settings_that_contradict_each_other_are_told_in_words(setting):
    with pytest.raises(ProximaError) as failure:
        load("cartpole", [setting])
    assert FAULTS[setting] in str(failure.value), str(failure.value)


def test_what_a_curriculum_needs_of_other_sections():
    endless = [STEPS, "training.max_steps=null", "training.max_episodes=10"]
    with pytest.raises(ProximaError, match=r"curriculum\.at: null, and training\.max_steps is"):
        load("cartpole", endless)
    with pytest.raises(ProximaError, match=r"convergence\.source: training, and with a curriculum"):
        load("cartpole", [STEPS, "convergence.source=training"])


def test_host_environments_are_refused():
    scenario = load("cartpole_host", [STEPS])
    with pytest.raises(
        ProximaError, match="curriculum: is for compiled environments, and CartPole"
    ):
        domain_of(scenario).prepare(scenario)


def maze(side, trained=(), instances=0):
    params = {"num_rows": 7, "num_cols": 6, "side": side}
    config = PackingEnvConfig(name="Maze-v0", params=params, instances=instances)
    return make_packing(config, 0, trained)


def test_a_maze_that_fills_its_grid_is_jumanjis_and_a_smaller_one_lies_in_the_corner():
    square = {"num_rows": 5, "num_cols": 5}
    theirs = make_packing(PackingEnvConfig(name="Maze-v0", params=square), 0)
    ours = make_packing(PackingEnvConfig(name="Maze-v0", params=square | {"side": 5}), 0)
    keys = jax.random.split(jax.random.key(0), 32)
    jax.tree.map(
        np.testing.assert_array_equal,
        jax.vmap(theirs.problem.generate)(keys),
        jax.vmap(ours.problem.generate)(keys),
    )
    walls = np.asarray(jax.vmap(maze(3).reset)(keys)[1]["walls"])
    assert walls.shape == (32, 7, 6)
    assert walls[:, 3:].all() and walls[:, :, 3:].all()
    assert not walls[:, :3, :3].all(axis=(1, 2)).any()


def test_a_pool_has_mazes_of_every_side_that_is_trained_on():
    env = leveled(levels_of({"side": (2, 4)}), maze(5, (2, 4), instances=6), "Maze-v0")
    for level, side in enumerate((2, 4, 5)):
        keys = jax.random.split(jax.random.key(level), 64)
        seen = jax.jit(jax.vmap(only(env, level).reset))(keys)[1]
        walls = np.asarray(seen["walls"])
        assert walls[:, side:].all() and walls[:, :, side:].all()
        assert not walls[:, :side, :side].all(axis=(1, 2)).any()
        assert (~walls[:, side - 2 : side]).any(), "mazes of that side, not of smaller ones"
        assert 1 < len(np.unique(walls, axis=0)) <= 6 or side == 2


@pytest.mark.parametrize(("side", "trained"), [(7, ()), (1, ()), (3.5, ()), (4, (2, 9))])
def test_a_side_that_does_not_fit_is_refused(side, trained):
    with pytest.raises(ProximaError, match=r"side: .* is not allowed: a whole number from 2 to 6"):
        maze(side, trained)
