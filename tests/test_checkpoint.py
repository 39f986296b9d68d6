"""Checkpoints: what was saved comes back bit for bit or is refused in words; kills do no harm."""

import ast
import errno
import json
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proxima.algorithms.ppo import PPOConfig, ppo
from proxima.core.errors import ProximaError
from proxima.core.seeds import first_keys
from proxima.core.types import Streams, TrainState
from proxima.domains.control.config import EnvConfig
from proxima.domains.control.gymnax import make
from proxima.nets.actor_critic import NetworkConfig
from proxima.train import checkpoint
from proxima.train.chunk import update_step
from proxima.train.collect import Collector

TRIALS, ENVS = 2, 4
MANIFEST = {"scenario": {"name": "cartpole"}, "loop": {"chunks": 3, "best": 0.1}}


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
    agent = ppo(config, NetworkConfig(hidden=(8,)), spaces, ENVS, 10)
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


def small_state(value: float = 0.0, width: int = 3) -> TrainState:
    return TrainState({"weight": np.full(width, value, np.float32)}, None, np.arange(2))


def assert_identical(one, other) -> None:
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def save(directory: Path, step: int, state=None, keep=2, best=False, **more) -> Path:
    state = small_state(step) if state is None else state
    return checkpoint.save(directory, step, state, MANIFEST, keep, best, **more)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "checkpoints").iterdir())


def step_names(*steps: int) -> list[str]:
    return [f"step_{step:012d}" for step in steps]


def edit_manifest(saved: Path, **changes) -> None:
    manifest = json.loads((saved / "manifest.json").read_text())
    (saved / "manifest.json").write_text(json.dumps(manifest | changes))


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
    compiled: list[str] = []

    def listen(event: str, seconds: float, **_) -> None:
        if "backend_compile" in event:
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        parts = checkpoint.split_trials(states)
        together = checkpoint.stack_trials(parts)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert compiled == []
    assert len(parts) == TRIALS
    assert isinstance(parts[0].learner.updates, np.ndarray)
    assert parts[1].key.env.shape == (ENVS,)
    assert_identical(parts[1], checkpoint.unstack(states, 1))
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
    for node in ast.walk(ast.parse(Path(checkpoint.__file__).read_text())):
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


def test_links_are_relative_and_move(tmp_path):
    save(tmp_path, 1, best=True)
    save(tmp_path, 2)
    root = tmp_path / "checkpoints"
    assert [os.readlink(root / name) for name in ("best", "last")] == step_names(1, 2)
    moved = tmp_path.with_name(tmp_path.name + "_moved")
    tmp_path.rename(moved)
    assert checkpoint.load(moved / "checkpoints" / "best", small_state())[1]["step"] == 1


def test_a_step_saved_again_replaces_the_first(tmp_path):
    save(tmp_path, 3, small_state(1.0), best=True)
    save(tmp_path, 3, small_state(2.0))
    assert names(tmp_path) == ["best", "last", *step_names(3)]
    assert checkpoint.load(tmp_path, small_state())[0].learner["weight"][0] == 2.0


def test_a_step_is_replaced_where_names_cannot_be_exchanged(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "_exchange", lambda one, other: False)
    test_a_step_saved_again_replaces_the_first(tmp_path)


def test_retention_keeps_the_newest_and_the_linked_and_nothing_foreign_is_touched(tmp_path):
    trial, other = tmp_path / "trial_0", tmp_path / "trial_1"
    save(other, 1)
    root = trial / "checkpoints"
    root.mkdir(parents=True)
    (root / "step_000000000000").symlink_to(other / "checkpoints" / "step_000000000001")
    foreign = ["step_1", "step_0000000000001", ".tmp-mine", ".tmp-1-notes", "step_000000000002.bak"]
    for name in foreign:
        (root / name).mkdir()
    (root / "step_000000000005").write_text("a file")
    running = f".tmp-{os.getppid()}-new-step_000000000009"
    (root / running).mkdir()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for name in (f"{ended.pid}-new-step_000000000009", f"{os.getpid()}-old-step_000000000008"):
        (root / f".tmp-{name}").mkdir()
        (root / f".tmp-{name}" / "state.safetensors").write_text("half")
    (root / f".tmp-{ended.pid}-last").symlink_to("nowhere")
    for step in (10, 20, 30, 40, 50):
        save(trial, step, best=step == 20)
    kept = ["best", "last", *step_names(0, 5, 20, 40, 50)]
    assert names(trial) == sorted([*kept, *foreign, running])
    assert checkpoint.available_steps(trial) == [20, 40, 50]
    assert names(other) == ["last", *step_names(1)]


def test_one_saved_only_for_being_the_best_pushes_out_none_to_resume_from(tmp_path):
    for step in (10, 20):
        save(tmp_path, step)
    for step in (21, 22, 23):
        save(tmp_path, step, best=True, last=False)
    assert checkpoint.available_steps(tmp_path) == [10, 20, 23]
    assert checkpoint.load_manifest(tmp_path)["step"] == 20
    assert checkpoint.load_manifest(tmp_path / "checkpoints" / "best")["step"] == 23
    assert checkpoint.common_step([tmp_path]) == 20


def test_common_step_is_the_newest_that_all_have_whole(tmp_path):
    trials = [tmp_path / f"trial_{k}" for k in range(3)]
    assert checkpoint.common_step(trials) is None
    for step in (10, 20, 30, 40):
        for trial in trials[: 2 if step == 40 else 3]:
            save(trial, step, keep=9)
    assert checkpoint.common_step(trials) == 30
    state = checkpoint.at_step(trials[1], 30) / "state.safetensors"
    state.write_bytes(state.read_bytes()[:-1])
    assert checkpoint.common_step(trials) == 20
    (checkpoint.at_step(trials[2], 20) / "manifest.json").write_text("{")
    assert checkpoint.common_step(trials) == 10
    (checkpoint.at_step(trials[0], 10) / "state.safetensors").unlink()
    assert checkpoint.common_step(trials) is None
    assert checkpoint.common_step(trials[:1]) == 40


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


def refused(path: Path, template=None) -> str:
    with pytest.raises(ProximaError) as refusal:
        checkpoint.load(path, small_state() if template is None else template)
    assert str(path) in str(refusal.value)
    return str(refusal.value)


def test_paths_without_a_checkpoint_are_refused(tmp_path):
    assert "has no checkpoint; name a trial's directory" in refused(tmp_path)
    assert "no such directory; name a trial's directory" in refused(tmp_path / "absent")
    save(tmp_path, 4)
    absent = checkpoint.at_step(tmp_path, 5)
    told = refused(absent)
    assert told == f"{absent}: no such checkpoint; beside it there is step_000000000004"


def test_a_state_of_another_shape_is_refused_leaf_by_leaf(tmp_path):
    saved = save(tmp_path, 4, TrainState({"a": np.zeros((4, 64), np.float32)}, None, np.zeros(2)))
    template = TrainState({"a": np.zeros((4, 32), np.float32)}, None, np.zeros(2))
    assert refused(saved, template) == (
        f"{saved}: is of another shape: learner['a'] is float32 [4, 64] in the checkpoint and "
        "float32 [4, 32] here; take the scenario in its manifest.json, or start a new run"
    )
    template = TrainState({"a": np.zeros((4, 64), np.float16)}, None, np.zeros(2))
    assert "float32 [4, 64] in the checkpoint and float16 [4, 64] here" in refused(saved, template)
    template = TrainState({}, np.zeros(3), np.zeros(2))
    told = refused(saved, template)
    assert "actors is missing in the checkpoint; learner['a'] is only in the checkpoint" in told
    template = TrainState({str(k): np.zeros(1) for k in range(9)}, None, np.zeros(2))
    assert "; and 6 more; " in refused(saved, template)


def test_keys_of_another_kind_are_refused(tmp_path):
    saved = save(tmp_path, 4, TrainState({}, None, jax.random.key(0, impl="rbg")))
    other = TrainState({}, None, jax.random.key(0, impl="unsafe_rbg"))
    assert "key is key<rbg> [] in the checkpoint and key<urbg> [] here" in refused(saved, other)
    plain = TrainState({}, None, np.zeros(4, np.uint32))
    assert "and uint32 [4] here" in refused(saved, plain)


def test_a_checkpoint_of_another_version_is_refused(tmp_path):
    saved = save(tmp_path, 4)
    edit_manifest(saved, versions={"proxima": "0.9.9", "jax": "0.1.0", "numpy": "1.0"})
    checkpoint.load(saved, small_state())
    edit_manifest(saved, versions={"proxima": "7.2.0"})
    told = (
        "was made by proxima 7.2.0, and this is 0.1.0: another major version; install proxima 7.2.0"
    )
    assert told.replace("0.1.0", checkpoint._versions()["proxima"]) in refused(saved)
    (saved / "manifest.json").write_text('{"format": 99, "versions": {"proxima": "7.2.0"}}')
    told = "is a checkpoint of format 99, and this version reads 1; install proxima 7.2.0 to go on"
    assert told in refused(saved)
    assert checkpoint.common_step([tmp_path]) == 4  # there, and for `load` to refuse
    (saved / "manifest.json").write_text('{"format": 99}')
    assert "install the version that made it" in refused(saved)


def flip_a_bit(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


@pytest.mark.parametrize(
    ("name", "change", "told"),
    [
        ("state.safetensors", lambda content: content[:-5], "state.safetensors was cut or changed"),
        ("state.safetensors", flip_a_bit, "state.safetensors was cut or changed"),
        ("state.safetensors", lambda content: b"", "state.safetensors was cut or changed"),
        ("state.safetensors", lambda content: None, "state.safetensors is missing"),
        ("manifest.json", lambda content: None, "manifest.json is missing"),
        ("manifest.json", lambda content: content[:-9], "manifest.json is not valid JSON"),
        ("manifest.json", lambda content: b"\xff\x00", "manifest.json is not valid JSON"),
        ("manifest.json", lambda content: b"[" * 100_000, "manifest.json is not valid JSON"),
        ("manifest.json", lambda content: b"[]", "manifest.json does not say its format"),
        ("manifest.json", lambda content: b'{"format": 1}', "manifest.json has no proper versions"),
    ],
)
def test_a_damaged_checkpoint_is_refused(tmp_path, name, change, told):
    save(tmp_path, 3)
    saved = save(tmp_path, 4)
    content = change((saved / name).read_bytes())
    if content is None:
        (saved / name).unlink()
    else:
        (saved / name).write_bytes(content)
    assert f"is damaged: {told}" in refused(saved)
    assert refused(saved).endswith("; beside it there is step_000000000003")


def test_a_state_that_is_not_what_its_manifest_says_is_refused(tmp_path):
    import hashlib

    from safetensors.numpy import save as tensor_bytes

    saved = save(tmp_path, 4)
    good = {"learner['weight']": np.zeros(3, np.float32), "key": np.arange(2)}
    for bad in (
        tensor_bytes(good | {"learner['weight']": np.zeros(2, np.float32)}),
        tensor_bytes({"key": np.arange(2)}),
        b"no tensors",
    ):
        (saved / "state.safetensors").write_bytes(bad)
        edit_manifest(saved, sha256=hashlib.sha256(bad).hexdigest())
        assert "is damaged: state.safetensors" in refused(saved)
    edit_manifest(saved, leaves={"key": 3})
    assert "manifest.json has no proper leaves" in refused(saved)


@pytest.mark.parametrize("broken", ["fsync", "replace", "mkdir"])
def test_a_full_disk_leaves_the_previous_checkpoint_and_no_rubbish(tmp_path, monkeypatch, broken):
    save(tmp_path, 3)

    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(ProximaError) as failure:
        patch.setattr(os, broken, full)
        save(tmp_path, 4)
    assert str(failure.value) == (
        f"{tmp_path / 'checkpoints'}: the checkpoint of step 4 could not be written: No space left "
        "on device; the previous one, step_000000000003, is intact; free some space, or set "
        "output_directory to another place"
    )
    assert [name for name in names(tmp_path) if name.startswith(".tmp")] == []
    assert checkpoint.load(tmp_path, small_state())[1]["step"] == 3
    save(tmp_path, 4)
    assert checkpoint.load(tmp_path, small_state())[1]["step"] == 4


def test_a_place_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "checkpoints").write_text("a file")
    for place in (tmp_path, Path("/proc/nowhere")):
        with pytest.raises(
            ProximaError, match="there is no earlier one; make it a writable"
        ) as failure:
            save(place, 4)
        assert str(place / "checkpoints") in str(failure.value)
    assert (tmp_path / "checkpoints").read_text() == "a file"


def test_numbers_json_cannot_hold_leave_nothing_behind(tmp_path):
    with pytest.raises(AttributeError):
        checkpoint.save(tmp_path, 1, small_state(), MANIFEST | {"loop": {"a": object()}}, 2, True)
    assert list(tmp_path.iterdir()) == []


def test_every_moment_of_a_save_is_a_good_one_to_be_killed_at(tmp_path):
    moments = 0

    def check() -> None:
        for link in ("last", "best"):
            state, manifest = checkpoint.load(tmp_path / "checkpoints" / link, small_state())
            assert state.learner["weight"][0] == manifest["loop"]["value"]
        for name in filter(re.compile("step_").match, names(tmp_path)):
            assert len(list((tmp_path / "checkpoints" / name).iterdir())) == 2
        assert checkpoint.common_step([tmp_path]) is not None

    def trace(frame, event, argument):
        nonlocal moments
        if frame.f_code.co_filename in (checkpoint.__file__, shutil.__file__):
            moments += 1
            check()
            return trace
        return None

    def save_value(step: int, value: float, best: bool) -> None:
        manifest = {"scenario": {}, "loop": {"value": value}}
        checkpoint.save(tmp_path, step, small_state(value), manifest, 2, best)

    save_value(1, 1.0, True)
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        for step, value, best in ((1, 2.0, True), (2, 3.0, False), (3, 4.0, True), (4, 5.0, False)):
            save_value(step, value, best)
    finally:
        sys.settrace(before)
    assert moments > 500


# Told some seconds, it lets a child save in a tight loop, every other step twice with another
# state, kills it that long after its first save and says so. Forked: interpreters start slowly.
SAVER = """
import os, signal, sys, time
from pathlib import Path
import numpy as np
from proxima.core.types import TrainState
from proxima.train import checkpoint

def save_forever(directory, saved):
    count = checkpoint.load_manifest(directory)["loop"]["count"]
    while True:
        count += 1
        state = TrainState(np.full(20_000, count, np.int32), None, np.full(3, count, np.int32))
        manifest = {"scenario": {}, "loop": {"count": count}}
        step = count // 3 * 2 + count % 3 // 2
        checkpoint.save(directory, step, state, manifest, keep=2, best=count % 5 == 0)
        os.write(saved, b".")

for line in sys.stdin:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        save_forever(Path(sys.argv[1]), writer)
    os.read(reader, 1)
    time.sleep(float(line))
    os.kill(child, signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    print("killed", flush=True)
"""


def test_a_process_killed_at_any_moment_leaves_a_loadable_trial(tmp_path):
    def state(count: int) -> TrainState:
        return TrainState(np.full(20_000, count, np.int32), None, np.full(3, count, np.int32))

    manifest = {"scenario": {}, "loop": {"count": 0}}
    checkpoint.save(tmp_path, 0, state(0), manifest, 2, True)
    saver = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", SAVER, str(tmp_path)],
        **{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True},
    )
    counts = []
    with saver:
        for _ in range(15):
            print(random.uniform(0.0, 0.05), file=saver.stdin, flush=True)
            assert saver.stdout.readline() == "killed\n"
            for link in ("last", "best"):
                path = tmp_path / "checkpoints" / link
                loaded, manifest = checkpoint.load(path, state(0))
                assert_identical(loaded, state(manifest["loop"]["count"]))
            assert checkpoint.common_step([tmp_path]) in checkpoint.available_steps(tmp_path)[-1:]
            counts.append(checkpoint.load_manifest(tmp_path)["loop"]["count"])
        saver.stdin.close()
    assert saver.returncode == 0
    assert counts == sorted(set(counts))
    save(tmp_path, 10**6)
    assert [name for name in names(tmp_path) if name.startswith(".tmp")] == []
