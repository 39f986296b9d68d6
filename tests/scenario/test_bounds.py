"""Sizes that nobody can mean are errors with the path, the value, what is allowed; whoever writes them."""

import pytest
from scenario_files import file_message, message

from proxima.scenario import changed, from_mapping, load
from proxima.scenario.bounds import DEEPEST, MOST_CHARACTERS

SIZES = {
    "trials=4294967296": "trials: 4294967296 is not allowed: must be at most 10000",
    "training.threads=100000": "training.threads: 100000 is not allowed: must be at most 1024",
    "training.max_steps=1e12": "training.max_steps: 1000000000000 is not allowed: must be less than 1e+12",
    "seed=18446744073709551616": "seed: a whole number of 65 bits is not allowed: 64 at most",
    "env.num_envs=2147483648": "env.num_envs: 2147483648 is not allowed: must be less than 2,147,483,648",
    "env.params={gravity: .nan}": "env.params.gravity: NaN is not allowed: must be finite",
    "env.params={gravity: 1e400}": "env.params.gravity: Infinity is not allowed: must be finite",
    "algorithm.learning_rate=1e-300": (
        "algorithm.learning_rate: 1e-300 is not allowed: must be 0 or between 1.2e-38 and 3.4e+38, as 32 "
        "bits hold"
    ),
    "algorithm.max_grad_norm=1e300": "algorithm.max_grad_norm: 1e+300 is not allowed: must be 0 or between",
    "network.hidden=[1000001]": "network.hidden.0: 1000001 is not allowed: must be at most 1e+06",
    f"network.hidden={[8] * 65}": "network.hidden: [8, 8, ",
    f"network.hidden={[8] * 1001}": "network.hidden: 1,001 entries are not allowed: at most 1,000",
    f"description={'x' * (MOST_CHARACTERS + 1)}": (
        "description: a text of 4,097 characters is not allowed: at most 4,096"
    ),
    f"name={'é' * 101}": 'name: "éé',
    f"output_directory={'x' * 256}": 'output_directory: "xx',
    f"output_directory={'x/' * 2048}": 'output_directory: "x/x/',
    f"env.params={'{a: ' * DEEPEST}1{'}' * DEEPEST}": "nested too deeply: at most 16",
    f"seed=0x{'f' * 5000}": "line 1: a whole number of 5,002 digits is not allowed: at most 100",
    f"seed={'9' * 5000}": "line 1: a whole number of 5,000 digits is not allowed: at most 100",
    f"seed={'[' * 100_001}": "has 100,001 characters",
}


@pytest.mark.parametrize("setting", SIZES, ids=lambda text: text[:40])
def test_a_size_that_nobody_can_mean_is_told_with_its_path(setting):
    told = message(load, "cartpole", [setting])
    assert told.startswith("--set: ") and SIZES[setting] in told
    assert len(told) < 400


def test_environments_on_the_host_are_counted_over_all_trials():
    settings = {"env.num_envs": 64, "trials": 2_000, "algorithm.batch_size": 1024}
    told = message(load, "cartpole_host", settings)
    assert told == (
        "--set: env.num_envs: 64, which for 2,000 trial(s) is 128,000; on the host there can be 100,000 "
        "environments at most"
    )
    assert load("cartpole", settings).env.num_envs == 64


def test_largest_sizes_that_are_allowed():
    settings = {"training.max_steps": 10**12 - 1, "trials": 10_000, "training.threads": 1024}
    scenario = load("cartpole", settings | {"name": "x" * 200, "output_directory": "x" * 255})
    assert scenario.training.max_steps == 10**12 - 1
    assert load("cartpole", {"algorithm.entropy_coef": 0}).algorithm.entropy_coef == 0.0


def test_sizes_in_python_are_told_likewise():
    endless = []
    endless.append(endless)
    assert "env.params" in message(load, "cartpole", {"env.params": {"a": endless}})
    huge = 10**5000
    told = message(from_mapping, {"name": "x", "seed": huge}, "x")
    assert told == "x: seed: a whole number of 16,610 bits is not allowed: 64 at most"
    assert message(changed, load("cartpole"), {"trials": huge}, "x").startswith("--set: trials: ")


def test_sizes_in_files_are_told_likewise(tmp_path):
    assert file_message(tmp_path, "seed: 0x" + "f" * 5000).startswith("line 1: a whole number of")
    laughs = "a: &a [1, 1]\nb: &b [*a, *a]\nc: [*b, *b]\n"
    assert "an alias repeats" in file_message(tmp_path, laughs)
    assert "is the most" in file_message(tmp_path, "# " + "x" * 100_000)


@pytest.mark.parametrize(
    "name", ["x" * 300, "x" * 5000, "a\0b", "\ud800", "x/" * 3000, "a\0b.yaml"]
)
def test_names_that_no_file_can_have(name):
    told = message(load, name)
    assert "is no path" in told and len(told) < 200
