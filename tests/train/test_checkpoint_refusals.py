"""What is no whole checkpoint of this state and version is refused in words."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest
from checkpoints import common_step, edit_manifest, save, small_state

from proxima.core.errors import ProximaError
from proxima.core.types import TrainState
from proxima.train import checkpoint


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
    assert common_step([tmp_path]) == 4  # there, and for `load` to refuse
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


def test_a_manifest_that_was_changed_is_not_believed(tmp_path):
    saved = save(tmp_path, 8)
    file = saved / "manifest.json"
    file.write_text(file.read_text().replace('"chunks": 8', '"chunks": 7'))
    assert "manifest.json was changed: its SHA-256 is another one" in refused(saved)
    assert common_step([tmp_path]) is None


def test_a_manifest_of_before_has_no_digest_and_is_read(tmp_path):
    saved = save(tmp_path, 8)
    edit_manifest(saved)
    assert checkpoint.DIGEST not in json.loads((saved / "manifest.json").read_text())
    assert checkpoint.load_manifest(saved)["step"] == 8


def test_a_manifest_of_another_step_is_refused(tmp_path):
    saved = save(tmp_path, 8)
    edit_manifest(saved, step=9)
    assert "manifest.json is of step 9" in refused(saved)
