"""A policy with memory outside its run: exported, served, and forgetting when it is told to."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from tiny import BUDGET
from tracking import THEIR_WARNINGS

import proxima
from proxima.track.onnx.convert import onnx_model
from proxima.track.registry import _save_model

SETTINGS = (
    *BUDGET,
    "network.memory=gru",
    "network.memory_size=4",
    "network.hidden=[8]",
    "trials=1",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    directory = tmp_path_factory.mktemp("memory")
    scenario = proxima.load("cartpole_memory", [*SETTINGS, f"output_directory={directory}"])
    return Path(proxima.run_multiple_experiments(scenario)["paths"]["run"])


def observations(steps, rows):
    return np.random.default_rng(0).normal(size=(steps, rows, 4)).astype(np.float32)


def test_predict_remembers_from_call_to_call(run):
    policy = proxima.load_policy(run)
    assert policy.about["format"] == 2
    assert policy.about["memory"] == {"fields": {"output": {"shape": [4], "dtype": "float32"}}}
    shown = observations(6, 3)
    together = np.stack([policy.predict(rows) for rows in shown])
    policy.reset()
    again = np.stack([policy.predict(rows) for rows in shown])
    np.testing.assert_array_equal(together, again)
    for row in range(3):  # an episode is the same whoever plays beside it
        policy.reset()
        alone = [policy.predict(step[row]) for step in shown]
        np.testing.assert_array_equal(together[:, row], alone)
    with pytest.raises(proxima.ProximaError, match=r"remembers 1 episodes.*reset\(\)"):
        policy.predict(shown[0])


def test_rows_forget_where_an_episode_starts(run):
    policy, loaded = proxima.load_policy(run), proxima.load_policy(run)
    shown = observations(8, 2)
    for step in shown[:5]:
        policy.predict(step)
    loaded.predict(shown[0])
    policy._player.act(shown[5], [True, False])
    fresh = proxima.load_policy(run)
    fresh.predict(shown[5])
    memories = [each._player._memory["output"] for each in (policy, fresh)]
    np.testing.assert_array_equal(memories[0][0], memories[1][0])
    assert not np.array_equal(memories[0][1], memories[1][1])
    with pytest.raises(proxima.ProximaError, match="one flag a row"):
        policy.predict(shown[6], episode_start=[True])


def test_states_that_the_caller_keeps_are_streams_of_their_own(run):
    policy, alone = proxima.load_policy(run), proxima.load_policy(run)
    shown = {"one": observations(6, 3), "two": -observations(6, 3)[:, 0]}
    states, found = dict.fromkeys(shown), {name: [] for name in shown}
    for step in range(6):
        for name, rows in shown.items():
            given = states[name] and {part: array.tolist() for part, array in states[name].items()}
            action, states[name] = policy.step(rows[step], given)  # lists, as JSON would keep it
            found[name].append(action)
    for name, rows in shown.items():
        alone.reset()
        np.testing.assert_array_equal(found[name], [alone.predict(each) for each in rows])
        np.testing.assert_array_equal(states[name]["output"], alone._player._memory["output"])
    assert policy._player._memory == {}, "predict has seen none of it"
    kept = states["one"]["output"].copy()
    _, begun = policy.step(shown["one"][0], states["one"], episode_start=[True, False, False])
    np.testing.assert_array_equal(states["one"]["output"], kept)
    _, first = policy.step(shown["one"][0])
    np.testing.assert_array_equal(begun["output"][0], first["output"][0])
    assert not np.array_equal(begun["output"][1], first["output"][1])


def test_a_state_that_does_not_fit_is_refused_in_words(run):
    policy, shown = proxima.load_policy(run), observations(1, 3)[0]
    _, state = policy.step(shown)
    for rows, given, words in (
        (shown[:2], state, "step: there are 2 observations, and this policy remembers 3 episodes"),
        (shown, {"cell": state["output"]}, "the state has cell .* remembers output"),
        (shown, {"output": 1.0}, "the state has output"),
        (shown, 5, "step: the state is a int; give back what step gave"),
    ):
        with pytest.raises(proxima.ProximaError, match=words):
            policy.step(rows, given)
    with pytest.raises(proxima.ProximaError, match=r"predict: a state goes with raw.*step takes a"):
        policy.predict(shown, state)


def test_the_example_of_two_games_runs(run, tmp_path, monkeypatch):
    """docs/export.md's, where the run is found by its scenario's name."""
    page = (Path(__file__).parents[2] / "docs" / "export.md").read_text()
    (code,) = re.findall(r"```python\n(# two_games.py\n.*?)```", page, re.DOTALL)
    (tmp_path / "logs").symlink_to(run.parents[2])
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(code, names)
    left, right = names["states"]
    assert all(state is None or state["output"].shape == (1, 4) for state in (left, right))
    assert all(seen.shape == (4,) for seen in names["seen"])


def test_hidden_entries_are_hidden_by_the_exported_policy(run):
    policy = proxima.load_policy(run)
    shown = observations(5, 8)
    seen = [policy.predict(rows) for rows in shown]
    shown[..., [1, 3]] = 77.0
    policy.reset()
    np.testing.assert_array_equal(seen, [policy.predict(rows) for rows in shown])


@THEIR_WARNINGS
def test_mlflow_serves_it_with_its_memory(run, tmp_path):
    import mlflow

    directory = run / "trial_0" / "policy"
    about = json.loads((directory / "policy.json").read_text())

    class Logged:
        model_id, artifact_location = "m-1", str(tmp_path)

    _save_model(tmp_path / "model", directory, about, Logged, "run")
    served, policy = mlflow.pyfunc.load_model(str(tmp_path / "model")), proxima.load_policy(run)
    # where docs/export.md says it is
    whole = proxima.load_policy(tmp_path / "model" / "artifacts" / "policy")
    assert whole.about == about
    shown = observations(4, 2)
    for step in shown:
        np.testing.assert_array_equal(served.predict(step), policy.predict(step))
    flags = [True, False]
    found = served.predict(shown[0], params={"episode_start": flags})
    np.testing.assert_array_equal(found, policy.predict(shown[0], episode_start=flags))
    policy.reset()
    for step, params in zip(shown, ({"reset": True}, {}, {}, {}), strict=True):
        np.testing.assert_array_equal(served.predict(step, params=params), policy.predict(step))


def test_an_onnx_model_has_the_memory_as_an_input_and_an_output(run):
    import onnxruntime

    model = onnx_model(run / "trial_0" / "policy")
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    outputs = [output.name for output in session.get_outputs()]
    policy, memory = proxima.load_policy(run), np.zeros((3, 4), np.float32)
    for step in observations(6, 3):
        given = {"observation": step, "memory.output": memory}
        found = dict(zip(outputs, session.run(outputs, given), strict=True))
        np.testing.assert_array_equal(found.pop("action"), policy.predict(step))
        (memory,) = found.values()
        np.testing.assert_allclose(memory, policy._player._memory["output"], atol=1e-6)


def test_an_algorithm_without_memory_says_so(tmp_path):
    scenario = proxima.load("pendulum_td3", ["network.memory=gru", f"output_directory={tmp_path}"])
    with pytest.raises(proxima.ProximaError, match=r"network.memory: ddpg cannot.*ppo"):
        proxima.run_multiple_experiments(scenario)


def test_entries_that_there_are_not_cannot_be_hidden(tmp_path):
    for name, entry in (("cartpole", 4), ("breakout_minatar", 0)):
        scenario = proxima.load(name, [f"env.hidden=[{entry}]", f"output_directory={tmp_path}"])
        with pytest.raises(proxima.ProximaError, match=r"env.hidden"):
            proxima.run_multiple_experiments(scenario)
