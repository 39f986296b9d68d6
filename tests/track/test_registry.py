"""Exported and registered policies act as the functions they were made from."""

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
from tracking import BOTH, THEIR_WARNINGS, client_of, only, track, write

from proxima.core.errors import ProximaError
from proxima.track.messages import Failed, Registration
from proxima.track.registry import PACKAGES, export_program, load_exported, write_policy
from proxima.track.served_policy import as_batch

pytestmark = THEIR_WARNINGS
WEIGHTS = {
    "hidden.weight": jnp.asarray(np.random.default_rng(0).normal(size=(4, 8)), jnp.float32),
    "out.weight": jnp.asarray(np.random.default_rng(1).normal(size=(8, 3)), jnp.float32),
    "scale": jnp.float32(2.0),
}
OBSERVATIONS = np.random.default_rng(2).normal(size=(64, 4)).astype(np.float32)


def greedy(weights, observations):
    hidden = jnp.tanh(observations @ weights["hidden.weight"])
    return jnp.argmax(hidden @ weights["out.weight"] * weights["scale"], axis=-1)


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    directory = tmp_path / "trial_0" / "policy"
    exported = export_program(greedy, WEIGHTS, np.zeros(4, np.float32))
    write_policy(exported, WEIGHTS, {"environment": "CartPole-v1"}, directory)
    return directory


def test_a_policy_that_is_no_policy_is_an_error(default_store, tmp_path):
    answers = write(default_store, Registration(0, str(tmp_path), {}))
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
assert (policy.predict(observations.astype(np.float64)) == actions).all()
assert (policy.predict(observations.tolist()) == actions).all()
assert (policy.predict(pd.DataFrame(observations)) == actions).all()
assert policy.predict(observations[0]).tolist() == actions[:1].tolist()
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
    tracker.register(0, policy, {"eval/return_mean": 199.5})
    tracker.register(1, policy, {"eval/return_mean": 200.0})
    outcome = tracker.finish(BOTH, "finished")
    assert outcome.error is None
    assert outcome.registered[1] == ("cartpole", "2", "models:/cartpole/2")
    version = client_of(outcome).get_model_version("cartpole", "2")
    assert (version.status, version.run_id) == ("READY", outcome.child_run_ids[1])
    assert version.tags["eval/return_mean"] == "200.0"

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
    act = load_exported(policy)
    for size in (1, 3, 64):
        batch = OBSERVATIONS[:size]
        assert np.array_equal(act(batch), greedy(WEIGHTS, batch))
    described = json.loads((policy / "policy.json").read_text())
    assert described["environment"] == "CartPole-v1"
    assert described["observation"] == {"shape": [4], "dtype": "float32"}
    assert described["weights"] == sorted(WEIGHTS)
    assert sorted(path.name for path in policy.parent.iterdir()) == ["policy"]
    (policy / "policy.json").unlink()
    with pytest.raises(ProximaError, match=r"policy\.json missing"):
        load_exported(policy)


def test_policies_of_the_same_shapes_share_a_program(policy):
    others = {name: -values for name, values in WEIGHTS.items()}
    exported = export_program(greedy, WEIGHTS, np.zeros(4, np.float32))
    write_policy(exported, others, {}, policy)  # takes the place of the one before
    assert np.array_equal(load_exported(policy)(OBSERVATIONS), greedy(others, OBSERVATIONS))
    assert not np.array_equal(greedy(others, OBSERVATIONS), greedy(WEIGHTS, OBSERVATIONS))
    assert "environment" not in json.loads((policy / "policy.json").read_text())
    assert sorted(path.name for path in policy.parent.iterdir()) == ["policy"]


def test_observations_become_a_batch_or_are_refused_in_words():
    assert as_batch([[1, 2], [3, 4], [5, 6]], (2,), "float32").shape == (3, 2)
    assert as_batch(3, (), "int32").tolist() == [3]
    assert as_batch(np.zeros((5, 12)), (2, 6), "float32").shape == (5, 2, 6)
    with pytest.raises(ValueError, match=r"shape \(5, 3\)"):
        as_batch(np.zeros((5, 3)), (2,), "float32")


def test_a_plain_install_has_what_a_registered_policy_pins():
    """Registering reads the versions of these packages, so none may come with an extra only."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    installed = {re.split(r"[<>=]", each)[0] for each in project["dependencies"]}
    assert set(PACKAGES) - installed == {"jaxlib"}  # which jax brings
