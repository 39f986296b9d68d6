"""A policy taken out of its run: copied, or as an ONNX model; where there is none, in words why."""

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from tiny import run_main
from tracking import ABOUT

import proxima
from proxima.core.errors import ProximaError
from proxima.domains.judging import NET_ALONE
from proxima.run.files import find_policy
from proxima.track.registry import export_program, write_policy

OBSERVATION = {"shape": [2], "dtype": "float64", "low": -1.0, "high": 1.0}
ACTION = {"shape": [], "dtype": "int64", "n": 2, "start": 0}
SEEN = np.random.default_rng(0).uniform(-1, 1, (5, 2))


def act(weights, inputs):
    return {"action": jnp.argmax(inputs["observation"] @ weights["w"], axis=-1)}


@pytest.fixture
def run(workdir) -> Path:
    """The directory of a run of two trials, as far as policies are concerned."""
    root = workdir / "logs" / "probe" / "runs" / "20260101-000000-aaaa"
    root.mkdir(parents=True)
    for name in ("run.json", "summary.json"):
        (root / name).write_text("{}")
    (root.parent.parent / "latest").symlink_to("runs/20260101-000000-aaaa")
    exported = export_program(act, {"w": jnp.zeros((2, 2))}, {"observation": OBSERVATION})
    for trial, sign in enumerate((1.0, -1.0)):
        about = {
            "scenario": "probe",
            "trial": trial,
            "policy": NET_ALONE,
            "observation": OBSERVATION,
        }
        weights = {"w": sign * jnp.eye(2)}
        write_policy(
            exported, weights, ABOUT | about | {"action": ACTION}, root / f"trial_{trial}/policy"
        )
    return root


def test_an_onnx_model_is_written_and_explained(run, capsys, monkeypatch):
    printed = run_main(["export", "probe", "--onnx"], capsys, monkeypatch)
    assert printed.code == 0, printed.err
    assert "ONNX model: probe_onnx/policy.onnx  (ppo on CartPole-v1, last checkpoint" in printed.out
    assert "net alone, without the search" in printed.out
    assert "the same action at 64 of 64 random observations" in printed.out
    code = printed.out.split("Use it:")[1].replace("\n         ", "\n").strip()
    names = {"observation": SEEN}
    exec(code, names)  # what it says to do does it
    assert names["action"].tolist() == SEEN.argmax(axis=-1).tolist()


def test_a_trial_is_chosen_and_a_program_is_told_in_json(run, capsys, monkeypatch):
    words = ["export", "probe", "--onnx", "--trial", "1", "--out", "there/deep", "--json"]
    written = json.loads(run_main(words, capsys, monkeypatch).out)
    assert written["path"] == "there/deep/policy.onnx" and written["trial"] == 1
    assert written["inputs"] == [{"name": "observation", "dtype": "float64", "shape": ["batch", 2]}]
    assert written["checked"] == {"observations": 64, "same": 64}
    session = onnxruntime.InferenceSession(written["path"])
    (action,) = session.run(["action"], {"observation": SEEN})
    assert action.tolist() == SEEN.argmin(axis=-1).tolist()


def test_without_onnx_the_policy_is_copied(run, capsys, monkeypatch):
    assert run_main(["export", "probe"], capsys, monkeypatch).code == 0
    assert proxima.load_policy("probe_policy").predict(SEEN).tolist() == SEEN.argmax(-1).tolist()
    again = run_main(["export", "probe_policy", "--onnx", "--trial", "1"], capsys, monkeypatch)
    assert again.code == 1 and "is a policy already" in again.err
    (run / "other").mkdir()
    refused = run_main(["export", "probe", "--out", str(run / "other")], capsys, monkeypatch)
    assert refused.code == 1 and "exists and is no policy" in refused.err


def test_a_run_without_a_policy_says_why(run):
    policy = run / "trial_0" / "policy"
    (policy / "policy.safetensors").rename(run / "weights")
    for reference in ("probe", policy):
        with pytest.raises(
            ProximaError, match=r"not an exported policy, policy\.safetensors missing"
        ):
            proxima.load_policy(reference)
    policy.rename(run / "gone")
    with pytest.raises(ProximaError, match="has no exported policy: run its scenario again"):
        find_policy("probe")
    (run / "summary.json").unlink()
    with pytest.raises(ProximaError, match="finish it with  proxima resume 20260101-000000-aaaa"):
        find_policy("probe")
    (run / "trial_0" / "model").mkdir()
    (run / "trial_0" / "model" / "config.json").write_text("{}")
    with pytest.raises(
        ProximaError, match="no such policy; copy that one with  proxima model export"
    ):
        find_policy("probe")
