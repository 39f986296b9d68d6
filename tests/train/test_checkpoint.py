"""Checkpoints: what was saved comes back bit for bit, from where it is looked for."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from checkpoints import MANIFEST, assert_identical, common_step, save, small_state, step_names
from problems import problem_of
from programs import compilations

from proxima.algorithms.ppo import PPOConfig, ppo
from proxima.core.seeds import first_keys
from proxima.core.types import Streams, TrainState
from proxima.domains.control.config import EnvConfig
from proxima.domains.control.gymnax import make
from proxima.train import atomic, checkpoint
from proxima.train.compiled.collect import Collector
from proxima.train.compiled.program import update_step

TRIALS, ENVS = 2, 4
# Bits count here, not speed: little optimisation makes compiling three times as fast.
COMPILE_QUICKLY = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


@pytest.fixture(scope="module")
def trained():
    """PPO's states of two trials after an update, and the function that does one more."""
    config = PPOConfig(
        batch_size=32,
        minibatch_size=16,
        epochs_per_update=1,
        normalize_observations=True,
        normalize_rewards=True,
    )
    env = make(EnvConfig(name="CartPole-v1"))
    spaces = (env.observation_space, env.action_space)
    agent = ppo(config, problem_of(spaces, ENVS, total_updates=10))
    collector = Collector(env, ENVS, 8)

    def init(seed):
        keys = first_keys(seed, ENVS)
        return TrainState(agent.init(keys.weights), collector.init(keys.resets), keys.streams)

    def update(state):
        return update_step(agent, collector, state)[0]

    seeds = jnp.arange(TRIALS, dtype=jnp.uint32)
    states = jax.jit(jax.vmap(init), compiler_options=COMPILE_QUICKLY)(seeds)
    # There and back: a weak type, which no file keeps, would compile the update a second time.
    states = checkpoint.stack_trials(checkpoint.split_trials(states))
    run = jax.jit(jax.vmap(update), compiler_options=COMPILE_QUICKLY)
    return run(states), run


class Odd(NamedTuple):
    flags: object
    nothing: None
    empty: object
    table: dict
    module: eqx.Module


class Weights(eqx.Module):
    weight: object
    label: str = eqx.field(static=True)


def odd_state(seed: int = 0) -> TrainState:
    """One trial's state of everything a state may hold."""
    rng = np.random.default_rng(seed)
    learner = Odd(
        flags=rng.random(5) < 0.5,
        nothing=None,
        empty=np.zeros((0, 3), np.float32),
        table={
            "a.b": np.int32(rng.integers(99)),
            "a": {"b": rng.integers(9, size=2, dtype=np.int8)},
        },
        module=Weights(rng.normal(size=(3, 4)).astype(np.float32).T, "tanh"),
    )
    half = rng.normal(size=(2, 2)).astype(jnp.bfloat16)
    special = np.array([np.nan, -0.0, np.inf, 1e-45], np.float32)
    keys = jax.random.split(jax.random.key(seed), 4)
    raw = np.array([seed, 2**32 - 1], np.uint32)
    return TrainState(learner, (half, special, raw), Streams(keys[0], keys[1:3], keys[3]))


def test_a_ppo_run_goes_on_bit_for_bit_from_what_was_loaded(tmp_path, trained):
    states, update = trained
    for trial, state in enumerate(checkpoint.split_trials(states)):
        save(tmp_path / f"trial_{trial}", 64, state)
    templates = jax.eval_shape(lambda: jax.tree.map(lambda leaf: leaf[0], states))
    loaded = [checkpoint.load(tmp_path / f"trial_{k}", templates)[0] for k in range(TRIALS)]
    restored = checkpoint.stack_trials(loaded)
    assert_identical(restored, states)
    assert_identical(update(restored), update(states))


def test_trials_are_taken_apart_and_put_together_without_compiling(trained):
    states, _ = trained
    with compilations() as compiled:
        parts = checkpoint.split_trials(states)
        together = checkpoint.stack_trials(parts)
    assert compiled == []
    assert len(parts) == TRIALS
    assert isinstance(parts[0].learner.updates, np.ndarray)
    assert parts[1].key.env.shape == (ENVS,)
    assert_identical(together, states)
    differs = (
        parts[0].learner.net.actor.layers[0].weight != parts[1].learner.net.actor.layers[0].weight
    )
    assert differs.any()


def test_parts_keep_no_hold_on_the_states_they_came_from(trained):
    parts = checkpoint.split_trials(trained[0])
    arrays = [leaf for leaf in jax.tree.leaves(parts) if isinstance(leaf, np.ndarray)]
    assert len(arrays) > 50
    assert all(array.flags.owndata and array.flags.writeable for array in arrays)


def test_everything_a_state_may_hold_comes_back(tmp_path):
    state = odd_state()
    saved = save(tmp_path, 7, state)
    loaded, manifest = checkpoint.load(saved, odd_state(seed=1))
    assert_identical(loaded, state)
    assert loaded.learner.nothing is None
    assert manifest["leaves"]["learner.empty"] == [[0, 3], "float32"]
    assert manifest["leaves"]["key.env"] == [[2], "key<fry>"]
    assert {"learner.table['a.b']", "learner.table['a']['b']"} < set(manifest["leaves"])


def test_the_manifest_says_what_it_is(tmp_path):
    loop = {"best": np.float32(0.1), "count": np.int64(3), "low": -np.inf, "list": [1, None]}
    saved = checkpoint.save(
        tmp_path, 5, small_state(), MANIFEST | {"loop": loop, "trial": 4}, 2, True
    )
    manifest = checkpoint.load_manifest(tmp_path)
    assert (manifest["format"], manifest["step"], manifest["trial"]) == (checkpoint.FORMAT, 5, 4)
    assert manifest["scenario"] == {"name": "cartpole"}
    assert manifest["loop"] == loop  # 0.1 as float32 has it, exactly
    assert set(manifest["versions"]) == {"proxima", "jax", "numpy"}
    assert manifest["versions"]["jax"] == jax.__version__
    assert sorted(path.name for path in saved.iterdir()) == ["manifest.json", "state.safetensors"]


def test_the_files_are_safetensors_and_json_and_nothing_is_pickled(tmp_path):
    from safetensors.numpy import load_file

    saved = save(tmp_path, 5, odd_state())
    tensors = load_file(saved / "state.safetensors")
    assert set(tensors) == set(json.loads((saved / "manifest.json").read_text())["leaves"])
    assert tensors["key.env"].dtype == np.uint32
    used = set()
    source = "".join(Path(module.__file__).read_text() for module in (checkpoint, atomic))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            used |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            used |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Attribute):
            used.add(ast.unparse(node))
    assert "json.loads" in used
    forbidden = re.compile(
        r".*(pickle|marshal|shelve|joblib|dill).*|(np|numpy)\.(load|save|fromfile)"
    )
    assert [name for name in used if forbidden.fullmatch(name)] == []


def test_importing_the_module_imports_no_safetensors():
    program = "import sys, proxima.train.checkpoint; sys.exit('safetensors' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_one_saved_only_for_being_the_best_pushes_out_none_to_resume_from(tmp_path):
    for step in (10, 20):
        save(tmp_path, step)
    for step in (21, 22, 23):
        save(tmp_path, step, best=True, last=False)
    assert checkpoint.available_steps(tmp_path) == [10, 20, 23]
    assert checkpoint.load_manifest(tmp_path)["step"] == 20
    assert checkpoint.load_manifest(tmp_path / "checkpoints" / "best")["step"] == 23
    assert common_step([tmp_path]) == 20


def test_common_step_is_the_newest_that_all_have_whole(tmp_path):
    trials = [tmp_path / f"trial_{k}" for k in range(3)]
    assert common_step(trials) is None
    for step in (10, 20, 30, 40):
        for trial in trials[: 2 if step == 40 else 3]:
            save(trial, step, keep=9)
    assert common_step(trials) == 30
    state = checkpoint.at_step(trials[1], 30) / "state.safetensors"
    state.write_bytes(state.read_bytes()[:-1])
    assert common_step(trials) == 20
    (checkpoint.at_step(trials[2], 20) / "manifest.json").write_text("{")
    assert common_step(trials) == 10
    (checkpoint.at_step(trials[0], 10) / "state.safetensors").unlink()
    assert common_step(trials) is None
    assert common_step(trials[:1]) == 40


def test_a_trial_that_has_stopped_is_in_every_later_moment(tmp_path):
    going, stopped = tmp_path / "trial_0", tmp_path / "trial_1"
    for chunk in (10, 20, 30):
        save(going, chunk, keep=9)
    for chunk in (10, 15):
        save(stopped, chunk, keep=9)

    def steps(at_step_of_stop: int) -> list[str] | None:
        paths = checkpoint.common_moment(
            [going, stopped], lambda path, manifest: manifest["step"] == at_step_of_stop
        )
        return paths and [path.name for path in paths]

    assert steps(15) == step_names(30, 15)
    assert steps(-1) == step_names(10, 10), "not stopped: both were there only then"


def test_going_back_removes_what_came_after_and_says_whether_the_best_did(tmp_path):
    for step, best in ((10, False), (20, True), (30, False)):
        save(tmp_path, step, keep=9, best=best)
    assert not checkpoint.go_back(checkpoint.at_step(tmp_path, 20))
    assert checkpoint.available_steps(tmp_path) == [10, 20]
    assert checkpoint.load_manifest(tmp_path)["step"] == 20
    assert checkpoint.go_back(checkpoint.at_step(tmp_path, 10))
    assert checkpoint.available_steps(tmp_path) == [10]
    assert not (tmp_path / "checkpoints" / "best").is_symlink()


def test_paths_that_mean_a_checkpoint(tmp_path):
    first, second = save(tmp_path, 1, best=True), save(tmp_path, 2)
    root = tmp_path / "checkpoints"
    assert checkpoint.resolve(first) == first
    assert checkpoint.resolve(str(tmp_path)) == second
    assert checkpoint.resolve(root) == second
    assert checkpoint.resolve(root / "best") == first
    (tmp_path / "link").symlink_to(tmp_path)
    assert checkpoint.resolve(tmp_path / "link") == second
    for link in ("last", "best"):
        (root / link).unlink()
    assert checkpoint.resolve(tmp_path) == second
    renamed = first.rename(tmp_path / "favourite")
    assert checkpoint.resolve(renamed) == renamed


def test_numbers_json_cannot_hold_leave_nothing_behind(tmp_path):
    with pytest.raises(AttributeError):
        checkpoint.save(tmp_path, 1, small_state(), MANIFEST | {"loop": {"a": object()}}, 2, True)
    assert list(tmp_path.iterdir()) == []
