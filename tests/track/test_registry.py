"""Exported and registered policies act as the functions they were made from."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from tracking import ABOUT, BOTH, THEIR_WARNINGS, client_of, only, track, write

from proxima.core.errors import ProximaError
from proxima.track.messages import Failed, Registration
from proxima.track.registry import (
    PACKAGES,
    export_program,
    load_exported,
    write_policy,
)
from proxima.track.served_policy import as_batch
from proxima.track.tracker import Candidate, RegisteredModel

pytestmark = THEIR_WARNINGS
WEIGHTS = {
    "hidden.weight": jnp.asarray(np.random.default_rng(0).normal(size=(4, 8)), jnp.float32),
    "out.weight": jnp.asarray(np.random.default_rng(1).normal(size=(8, 3)), jnp.float32),
    "scale": jnp.float32(2.0),
}
OBSERVATIONS = np.random.default_rng(2).normal(size=(64, 4)).astype(np.float32)


KINDS = {
    "observation": {"shape": [4], "dtype": "float32"},
    "action": {"shape": [], "dtype": "int64", "n": 3, "start": 5},
}
INPUTS = {"observation": KINDS["observation"]}


def greedy(weights, observations):
    hidden = jnp.tanh(observations @ weights["hidden.weight"])
    return 5 + jnp.argmax(hidden @ weights["out.weight"] * weights["scale"], axis=-1)


def program(weights, inputs):
    return {"action": greedy(weights, inputs["observation"])}


@pytest.fixture(scope="module")
def exported():
    return export_program(program, WEIGHTS, INPUTS)


@pytest.fixture
def policy(tmp_path: Path, exported) -> Path:
    directory = tmp_path / "trial_0" / "policy"
    write_policy(exported, WEIGHTS, ABOUT | KINDS, directory)
    return directory


def candidate(directory: Path, score: float | None = None, **tags: str) -> Candidate:
    return Candidate(str(directory), "the best of its run", tags, score)


def test_a_policy_that_is_no_policy_is_an_error(default_store, tmp_path):
    answers = write(default_store, Registration(0, candidate(tmp_path)))
    assert "not an exported policy" in only(Failed, answers).error


LOAD_WITHOUT_PROXIMA = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "proxima":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Refuse())
import mlflow
import numpy as np
import pandas as pd
mlflow.set_tracking_uri(sys.argv[1])
policy = mlflow.pyfunc.load_model(sys.argv[2])
observations = np.load(sys.argv[3])
actions = policy.predict(observations)
assert "proxima" not in sys.modules
assert (policy.predict(pd.DataFrame(observations)) == actions).all()
assert policy.predict(policy.input_example).shape == (1,)
try:
    policy.predict(observations[:, :3])
except mlflow.MlflowException as error:
    assert "shape" in str(error)
else:
    raise AssertionError("the signature was not heeded")
act = policy.unwrap_python_model().act
assert (act(observations.astype(np.float64)) == actions).all()
assert (act(observations.tolist()) == actions).all()
assert act(observations[0]).tolist() == actions[:1].tolist()
np.save(sys.argv[4], actions)
"""


def test_a_registered_policy_acts_where_there_is_no_proxima(
    new_store, tmp_path, policy, monkeypatch
):
    (tmp_path / "refuse").mkdir()
    (tmp_path / "refuse" / "jax.py").write_text("raise ImportError('not in this process')")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "refuse"), *sys.path])
    shutil.copy(new_store, tmp_path / "other.db")  # models are looked for there, not in the default
    tracker = track([], uri="sqlite:///other.db")
    tracker.register(0, candidate(policy, 199.5))
    tracker.register(1, candidate(policy, 200.0, trial="1"))
    outcome = tracker.finish(BOTH, "finished")
    assert outcome.error is None
    assert outcome.registered[1] == ("cartpole", "2", "models:/cartpole/2")
    version = client_of(outcome).get_model_version("cartpole", "2")
    assert (version.status, version.run_id) == ("READY", outcome.child_run_ids[1])
    assert (version.tags["proxima.score"], version.tags["trial"]) == ("200.0", "1")
    assert version.description == "the best of its run"
    assert "alias champion" in client_of(outcome).get_registered_model("cartpole").description

    np.save("observations.npy", OBSERVATIONS)
    script = [outcome.uri, outcome.registered[1].uri, "observations.npy", "actions.npy"]
    result = subprocess.run(
        [sys.executable, "-I", "-c", LOAD_WITHOUT_PROXIMA, *script],
        capture_output=True,
        text=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )
    assert result.returncode == 0, result.stderr
    assert np.array_equal(np.load("actions.npy"), greedy(WEIGHTS, OBSERVATIONS))

    files = [path for path in (tmp_path / "mlruns").rglob("*") if path.is_file()]
    assert {"served_policy.py", "policy.stablehlo"} <= {path.name for path in files}
    assert not [path for path in files if path.suffix in {".pkl", ".pickle", ".cloudpickle"}]
    (description, _) = [path.read_text() for path in files if path.name == "MLmodel"]
    assert "python_model:" not in description  # where MLflow would name a pickled model


def test_an_exported_policy_gives_the_functions_actions_for_any_batch(policy):
    act, about, _ = load_exported(policy)
    for size in (1, 3, 64):
        batch = OBSERVATIONS[:size]
        assert np.array_equal(act(batch), greedy(WEIGHTS, batch)) and act(batch).dtype == np.int64
    assert about == json.loads((policy / "policy.json").read_text())
    assert about | ABOUT == about and about["format"] == 1
    assert list(about["weights"]) == sorted(WEIGHTS)
    assert about["weights"]["scale"] == {"shape": [], "dtype": "float32"}
    assert sorted(path.name for path in policy.parent.iterdir()) == ["policy"]
    (policy / "policy.json").unlink()
    with pytest.raises(ProximaError, match=r"policy\.json missing"):
        load_exported(policy)


def test_policies_of_the_same_shapes_share_a_program(policy, exported):
    others = {name: -values for name, values in WEIGHTS.items()}
    write_policy(
        exported, others, ABOUT | KINDS | {"trial": 7}, policy
    )  # takes the place of the one before
    assert np.array_equal(load_exported(policy).act(OBSERVATIONS), greedy(others, OBSERVATIONS))
    assert not np.array_equal(greedy(others, OBSERVATIONS), greedy(WEIGHTS, OBSERVATIONS))
    assert json.loads((policy / "policy.json").read_text())["trial"] == 7
    assert sorted(path.name for path in policy.parent.iterdir()) == ["policy"]


def test_observations_become_a_batch_or_are_refused_in_words():
    def batch(values, shape, dtype="float32"):
        return as_batch(values, {"shape": shape, "dtype": dtype})

    assert batch([[1, 2], [3, 4], [5, 6]], [2]).shape == (3, 2)
    assert batch(3, [], "int32").tolist() == [3]
    assert batch([3, 4], [], "int32").tolist() == [3, 4]
    assert batch(np.zeros((5, 12)), [2, 6]).shape == (5, 2, 6)
    for shape in ((5, 3), (5, 6, 2), ()):  # also where as many numbers would only be mixed up
        with pytest.raises(ValueError, match=re.escape(f"shape {shape}")):
            batch(np.zeros(shape), [2, 6])
    with pytest.raises(ValueError, match="there are no observations"):
        batch(np.zeros((0, 2)), [2])
    with pytest.raises(ValueError, match="is no uint8"):
        batch(np.full((1, 2), 0.5), [2], "uint8")


def change(path: Path, **changes) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


DAMAGES = {
    "cut program": (
        lambda policy: (policy / "policy.stablehlo").write_bytes(b"StableHLO"),
        "policy.stablehlo: is damaged: its SHA-256 is not the program.sha256 of policy.json",
    ),
    "no program": (
        lambda policy: rewrite(policy, b"StableHLO"),
        "policy.stablehlo: is damaged: JAX",
    ),
    "cut weights": (
        lambda policy: (policy / "policy.safetensors").write_bytes(b""),
        "policy.safetensors: is damaged: its SHA-256 is not the weights_sha256",
    ),
    "cut description": (
        lambda policy: (policy / "policy.json").write_text('{"format": 1'),
        "policy.json: is damaged: it is not valid JSON",
    ),
    "no number of JSON": (
        lambda policy: (policy / "policy.json").write_text('{"format": 1, "low": -Infinity}'),
        "policy.json: is damaged: it is not valid JSON: -Infinity",
    ),
    "a list": (
        lambda policy: (policy / "policy.json").write_text("[]"),
        "policy.json: is damaged: it holds no fields",
    ),
    "of before": (lambda policy: (policy / "policy.json").write_text("{}"), "format is missing"),
    "of later": (lambda policy: change(policy / "policy.json", format=9), "format is 9"),
    "no weights": (
        lambda policy: change(policy / "policy.json", weights=3),
        "policy.json: is damaged: weights is missing or no dict",
    ),
    "no checksum": (
        lambda policy: change(policy / "policy.json", program={}),
        "policy.json: is damaged: program.sha256 is missing or no str",
    ),
    "no algorithm": (
        lambda policy: change(policy / "policy.json", algorithm=None),
        "policy.json: is damaged: algorithm is missing or no str",
    ),
    "no step": (
        lambda policy: change(policy / "policy.json", checkpoint={"kind": "last"}),
        "policy.json: is damaged: checkpoint.step is missing or no int",
    ),
    "no shape": (
        lambda policy: change(policy / "policy.json", observation={"dtype": "float32"}),
        "policy.json: is damaged: observation.shape is no list",
    ),
    "no type": (
        lambda policy: change(policy / "policy.json", action={"shape": [], "dtype": "float33"}),
        "policy.json: is damaged: action.dtype is 'float33'",
    ),
    "a record's type": (
        lambda policy: change(policy / "policy.json", action={"shape": [], "dtype": {"x": []}}),
        "policy.json: is damaged: action.dtype is {'x': []}",
    ),
    "other observations": (
        lambda policy: change(
            policy / "policy.json", observation={"shape": [5], "dtype": "float32"}
        ),
        "observation is float32 ('n', 5), and in policy.stablehlo float32 ('n', 4)",
    ),
    "other actions": (
        lambda policy: change(policy / "policy.json", action={"shape": [], "dtype": "int32"}),
        "action is int32 ('n',), and in policy.stablehlo int64 ('n',)",
    ),
    "other weights": (
        lambda policy: change(policy / "policy.json", weights={}),
        "weights.hidden.weight is missing, and in policy.stablehlo float32 (4, 8)",
    ),
    "no first number": (
        lambda policy: change(policy / "policy.json", action=KINDS["action"] | {"start": "5"}),
        "policy.json: is damaged: action.start is no whole number",
    ),
    "other fields": (
        lambda policy: change(
            policy / "policy.json", observation={"fields": {"a": KINDS["observation"]}}
        ),
        "observation is missing, and in policy.stablehlo float32 ('n', 4)",
    ),
}


def rewrite(policy: Path, content: bytes) -> None:
    """Bytes that are no program, with the checksum of these."""
    (policy / "policy.stablehlo").write_bytes(content)
    about = json.loads((policy / "policy.json").read_text())
    checked = about["program"] | {"sha256": hashlib.sha256(content).hexdigest()}
    change(policy / "policy.json", program=checked)


@pytest.mark.parametrize(("damage", "words"), DAMAGES.values(), ids=DAMAGES)
def test_what_is_damaged_or_does_not_belong_together_is_told_by_file_and_field(
    damage, words, policy
):
    damage(policy)
    with pytest.raises(ProximaError, match=re.escape(words)) as told:
        load_exported(policy)
    assert str(told.value).startswith(str(policy)) and "again" in str(told.value)


def test_a_program_does_not_say_where_it_was_written():
    """Lines and directories would make the bytes of one policy differ from checkout to checkout."""

    def from_file(name: str):
        names: dict = {"jnp": jnp}
        lines = "def f(weights, inputs): return {'action': jnp.tanh(inputs['observation'])}"
        exec(compile("\n" * len(name) + lines, name, "exec"), names)
        return export_program(names["f"], {}, INPUTS).program

    first, second = from_file("/home/one/net.py"), from_file("/srv/checkout/of/another/net.py")
    assert first == second and b"net.py" not in first and b"/home" not in first


def test_the_alias_champion_is_on_the_version_with_the_highest_score(default_store, policy):
    from mlflow import MlflowClient

    def champion(*scores: float | None) -> int:
        answers = write(
            default_store, *(Registration(0, candidate(policy, score)) for score in scores)
        )
        assert not [answer for answer in answers if isinstance(answer, Failed)]
        client = MlflowClient(default_store)
        return int(client.get_model_version_by_alias("cartpole", "champion").version)

    assert champion(None) == 1
    assert champion(2.0, 1.0) == 2  # versions 2 and 3
    assert champion(None, 2.0) == 5  # as good, and newer


@pytest.fixture
def policy_of_fields(tmp_path: Path) -> Path:
    """A policy that sees a number of a few and a mask."""
    fields = {"action_mask": {"shape": [2], "dtype": "bool"}, "kind": KINDS["action"]}
    observation = {"fields": fields}

    def only_valid(weights, inputs):
        return {"action": jnp.argmax(inputs["observation"]["action_mask"], axis=-1)}

    exported = export_program(only_valid, {}, {"observation": observation})
    action = {"shape": [], "dtype": "int64", "n": 2, "start": 0}
    description = ABOUT | {"observation": observation, "action": action}
    write_policy(exported, {}, description, tmp_path / "fields")
    return tmp_path / "fields"


def test_a_models_signature_and_example_are_its_observations(
    default_store, policy_of_fields, monkeypatch
):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", default_store)
    import mlflow

    answers = write(default_store, Registration(0, candidate(policy_of_fields)))
    loaded = mlflow.pyfunc.load_model(only(RegisteredModel, answers).uri)
    inputs = loaded.metadata.signature.inputs
    assert [(spec.name, spec.type, spec.shape) for spec in inputs] == [
        ("action_mask", np.dtype(bool), (-1, 2)),
        ("kind", np.dtype("int64"), (-1,)),
    ]
    (action,) = loaded.metadata.signature.outputs
    assert (action.type, action.shape) == (np.dtype("int64"), (-1,))
    assert loaded.predict(loaded.input_example).tolist() == [0], "all are valid in the example"
    masks = {"action_mask": np.array([[False, True]]), "kind": np.array([6])}
    assert loaded.predict(masks).tolist() == [1]
    # the policy whole, under its directory's name, as docs/export.md says
    directory = Path(mlflow.artifacts.download_artifacts(only(RegisteredModel, answers).uri))
    assert load_exported(directory / "artifacts" / policy_of_fields.name).act(masks).tolist() == [1]


def test_a_plain_install_has_what_a_registered_policy_pins():
    """Registering reads the versions of these packages, so none may come with an extra only."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    installed = {re.split(r"[<>=]", each)[0] for each in project["dependencies"]}
    assert set(PACKAGES) - installed == {"jaxlib"}  # which jax brings
