"""Values and overrides: taken as their fields' types, and every mistake told in words."""

from dataclasses import replace
from pathlib import Path

import pytest
from scenario_files import SCENARIO_KEYS, default_scenario, file_message, message, write

from proxima.domains.control.config import EnvConfig
from proxima.scenario import load, to_mapping


def test_values_become_the_types_of_their_fields(tmp_path):
    text = """
algorithm: {learning_rate: 1, gamma: 1, normalize_advantages: off}
network: {hidden: [32, 16]}
training: {max_steps: 1e5}
env: {params: {length: 1.0, count: 2, flag: true, mode: no, big: 1e5}}
"""
    scenario = load(write(tmp_path, text))
    assert scenario.algorithm.learning_rate == 1.0
    assert type(scenario.algorithm.learning_rate) is float
    assert scenario.algorithm.normalize_advantages == "off"
    assert scenario.network.hidden == (32, 16)
    assert scenario.training.max_steps == 100_000
    assert type(scenario.training.max_steps) is int
    params = {"length": 1.0, "count": 2, "flag": True, "mode": "no", "big": 1e5}
    assert scenario.env.params == params
    assert [type(value) for value in scenario.env.params.values()] == [float, int, bool, str, float]


def test_whole_floats_are_accepted_for_whole_numbers_everywhere():
    overrides = {"seed": 2.0, "network.hidden": (32.0, 16), "training.max_steps": 2e5}
    scenario = load("cartpole", overrides)
    assert (scenario.seed, scenario.training.max_steps) == (2, 200_000)
    assert scenario.network.hidden == (32, 16)
    numbers = (scenario.seed, scenario.training.max_steps, *scenario.network.hidden)
    assert all(type(number) is int for number in numbers)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("training: {max_steps: many}", 'training.max_steps: expected a whole number, got "many"'),
        ("training: {max_steps: 1.5}", "training.max_steps: expected a whole number, got 1.5"),
        ("training: {max_steps: '3'}", 'training.max_steps: expected a whole number, got "3"'),
        ("trials: true", "trials: expected a whole number, got true"),
        ("trials: null", "trials: expected a whole number, got null"),
        ("trials: .inf", "trials: expected a whole number, got Infinity"),
        ("algorithm: {gamma: '0.9'}", 'algorithm.gamma: expected a number, got "0.9"'),
        ("algorithm: {gamma: false}", "algorithm.gamma: expected a number, got false"),
        ("tracking: {enabled: no}", 'tracking.enabled: expected true or false, got "no"'),
        ("tracking: {enabled: 1}", "tracking.enabled: expected true or false, got 1"),
        ("description: 3", "description: expected text, got 3; put it in quotes"),
        ("description: [a]", 'description: expected text, got ["a"]'),
        ("network: {hidden: 64}", "network.hidden: expected a list, got 64"),
        ("network: {hidden: [64, x]}", 'network.hidden.1: expected a whole number, got "x"'),
        ("network: {hidden: [x]}", 'network.hidden.0: expected a whole number, got "x"'),
        ("network: 3", "network: expected keys and values, got 3"),
        ("env: {params: [1]}", "env.params: expected keys and values, got [1]"),
        (
            "env: {params: {size: [1]}}",
            "env.params.size: expected a number, a whole number, true or false or text, got [1]",
        ),
        ("algorithm: {gamma: 1.5}", "algorithm.gamma: 1.5 is not allowed: must be at most 1"),
        ("algorithm: {gamma: -1}", "algorithm.gamma: -1 is not allowed: must be at least 0"),
        (
            "algorithm: {learning_rate: 0}",
            "algorithm.learning_rate: 0 is not allowed: must be more than 0",
        ),
        (
            "algorithm: {learning_rate: .inf}",
            "algorithm.learning_rate: Infinity is not allowed: must be finite",
        ),
        (
            "algorithm: {target_kl: .nan}",
            "algorithm.target_kl: NaN is not allowed: must be finite",
        ),
        ("seed: -1", "seed: -1 is not allowed: must be at least 0"),
        ("trials: 0", "trials: 0 is not allowed: must be at least 1"),
        (
            "network: {activation: elu}",
            'network.activation: "elu" is not allowed: must be tanh, relu or silu',
        ),
        (
            "algorithm: {name: ppoo}",
            'algorithm.name: "ppoo" is not allowed: must be ppo, ddpg, sac, spo, dqn or pqn',
        ),
        (
            "network: {hidden: [0]}",
            "network.hidden.0: 0 is not allowed: must be at least 1",
        ),
        (f"trials: {'x' * 99}", f'trials: expected a whole number, got "{"x" * 58}…'),
    ],
)
def test_wrong_value_is_told_with_its_path(tmp_path, text, told):
    assert file_message(tmp_path, text) == told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "algorithm: {learnin_rate: 1}",
            "algorithm.learnin_rate: unknown key; did you mean learning_rate?",
        ),
        ("training: {gamma: 1}", "training.gamma: unknown key; did you mean algorithm.gamma?"),
        ("training: {seed: 1}", "training.seed: unknown key; did you mean seed?"),
        (
            "network: {name: x}",
            "network.name: unknown key; did you mean name, env.name or algorithm.name?",
        ),
        ("gamma: 0.9", "gamma: unknown key; did you mean algorithm.gamma?"),
        ("batchsize: 64", "batchsize: unknown key; did you mean algorithm.batch_size?"),
        ("algoritm: {gamma: 1}", "algoritm: unknown section; did you mean algorithm?"),
        ("trails: 3", "trails: unknown key; did you mean trials?"),
        ("checkpoint: {zzz: 1}", "checkpoint.zzz: unknown key; checkpoint has frequency, keep"),
        ("zzz: 1", f"zzz: unknown key; a scenario has {SCENARIO_KEYS}"),
        ("zzz: {a: 1}", f"zzz: unknown section; a scenario has {SCENARIO_KEYS}"),
        ("<<: {seed: 1}", f"<<: unknown section; a scenario has {SCENARIO_KEYS}"),
    ],
)
def test_unknown_key_is_told_with_the_nearest_right_name(tmp_path, text, told):
    assert file_message(tmp_path, text) == told


def test_all_problems_are_told_at_once(tmp_path):
    text = "algorithm: {gamma: 1.5, learnin_rate: 1}\ntraining: {max_steps: many}\n"
    assert file_message(tmp_path, text).splitlines() == [
        "algorithm.gamma: 1.5 is not allowed: must be at most 1",
        "algorithm.learnin_rate: unknown key; did you mean learning_rate?",
        'training.max_steps: expected a whole number, got "many"',
    ]


def test_shipped_file_is_called_by_its_name(monkeypatch, tmp_path):
    path = write(tmp_path, "algorithm: {learnin_rate: 1}\n", "cartpole.yaml")
    monkeypatch.setattr("proxima.scenario.read.shipped", lambda: {"cartpole": path})
    assert message(load, "cartpole") == (
        "cartpole.yaml: algorithm.learnin_rate: unknown key; did you mean learning_rate?"
    )


@pytest.mark.parametrize(
    "overrides",
    [
        {"algorithm.learning_rate": 1e-3, "env.params.length": 0.7},
        {"algorithm": {"learning_rate": 1e-3}, "env": {"params.length": 0.7}},
        ["algorithm.learning_rate=1e-3", "env.params.length=0.7"],
        ["algorithm={learning_rate: 1e-3}", "env={params.length: 0.7}"],
        ["algorithm.learning_rate = 1", "algorithm.learning_rate = 1e-3", "env.params.length=.7"],
    ],
)
def test_overrides_lie_over_the_file_which_lies_over_the_defaults(tmp_path, overrides):
    text = "algorithm: {learning_rate: 0.5, gamma: 0.5}\nenv: {params: {gravity: 9.0}}\n"
    assert load(write(tmp_path, text), overrides) == default_scenario(
        name="mine",
        algorithm=replace(default_scenario().algorithm, learning_rate=1e-3, gamma=0.5),
        env=EnvConfig(params={"gravity": 9.0, "length": 0.7}),
    )


@pytest.mark.parametrize(
    ("overrides", "params"),
    [
        (["env.params={}"], {}),
        (["env.params={length: 0.7}"], {"length": 0.7}),
        (["env={params: {length: 0.7}}"], {"length": 0.7}),
        ({"env": {"params": {"length": 0.7}}}, {"length": 0.7}),
        ({"env.params": {}}, {}),
        (["env.params={}", "env.params.length=0.7"], {"length": 0.7}),
        (["env.params.length=0.7"], {"gravity": 9.0, "length": 0.7}),
        (["env={}"], {"gravity": 9.0}),
    ],
)
def test_a_mapping_replaces_free_settings_and_is_laid_over_a_section(tmp_path, overrides, params):
    text = "env: {num_envs: 2, params: {gravity: 9.0}}\n"
    scenario = load(write(tmp_path, text), overrides)
    assert scenario.env == EnvConfig(num_envs=2, params=params)


def test_the_params_of_another_pattern_are_left_behind():
    shipped_params = load("sine_wave").data.params
    assert shipped_params
    changed = load("sine_wave", ["data.pattern=random_walk", "data.params={}"])
    assert changed.data.params == {} and changed.data.rows == load("sine_wave").data.rows


def test_a_single_override_may_stand_alone():
    assert load("cartpole", "seed=4").seed == 4


@pytest.mark.parametrize("overrides", [None, {}, [], {"algorithm": {}}])
def test_no_overrides_change_nothing(overrides):
    assert load("cartpole", overrides) == load("cartpole")


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("network.hidden=[32, 16]", ("network", "hidden"), [32, 16]),
        ("tracking.uri=http://host:5000/a=b", ("tracking", "uri"), "http://host:5000/a=b"),
        ("tracking.uri=", ("tracking", "uri"), None),
        ("convergence.target_reward=null", ("convergence", "target_reward"), None),
        ("env.params.mode=no", ("env", "params"), {"mode": "no"}),
    ],
)
def test_override_text_is_read_as_yaml(text, path, value):
    section, key = path
    assert to_mapping(load("cartpole", [text]))[section][key] == value


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (
            ["algorithm.learnin_rate=1"],
            "algorithm.learnin_rate: unknown key; did you mean learning_rate?",
        ),
        ({"algorithm.gamma": 1.5}, "algorithm.gamma: 1.5 is not allowed: must be at most 1"),
        (["algoritm.gamma=1"], "algoritm: unknown section; did you mean algorithm?"),
        (["algorithm.gamma.x=1"], 'algorithm.gamma: expected a number, got {"x": 1}'),
        (
            ["domain=tradng"],
            'domain: "tradng" is not known; did you mean trading? It must be control, packing, '
            "trading, portfolio, language or your own as package.module:DOMAIN",
        ),
        (["domain=3"], "domain: expected text, got 3"),
        (
            ["data.rows=3"],
            "data: unknown section where the domain is control; trading, portfolio or language has it: "
            "set domain or env.backend",
        ),
        (
            ["network.kind=mlpp"],
            'network.kind: "mlpp" is not allowed: must be mlp',
        ),
        (["plots=some"], 'plots: "some" is not allowed: must be few or all'),
        (["algorithm="], "algorithm: expected keys and values, got null"),
        (["network.hidden=[1, 2, 3, x]"], 'network.hidden.3: expected a whole number, got "x"'),
        (["seed"], "seed: expected section.key=value"),
        (["=3"], "=3: expected section.key=value"),
        (["algorithm.=3"], "algorithm.=3: expected section.key=value"),
        (
            ["network.hidden=[1"],
            "network.hidden: line 1: not valid YAML: expected ',' or ']', but got '<stream end>'",
        ),
        (
            {"output_directory": Path("logs")},
            f"output_directory: {Path('logs')!r} is not a number, text, true, false, null, list "
            "or mapping with text keys",
        ),
    ],
)
def test_wrong_override_is_told_as_such(overrides, told):
    assert message(load, "cartpole", overrides) == f"--set: {told}"


def test_problems_of_file_and_overrides_are_told_apart(tmp_path):
    path = write(tmp_path, "algoritm: {gamma: 1}\nseed: -1\n")
    told = message(load, path, ["algoritm.gamma=2", "trials=0"])
    assert told.splitlines() == [
        f"{path}: seed: -1 is not allowed: must be at least 0",
        "--set: trials: 0 is not allowed: must be at least 1",
        f"{path}: algoritm: unknown section; did you mean algorithm?",
    ]


def test_override_can_right_what_the_file_has_wrong(tmp_path):
    assert load(write(tmp_path, "seed: many\n"), ["seed=2"]).seed == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "algorithm: {batch_size: 100, minibatch_size: 4}",
            "algorithm.batch_size: 100 is not a multiple of env.num_envs (8); "
            "nearest that work: 96 or 104",
        ),
        (
            "algorithm: {batch_size: 96, minibatch_size: 64}",
            "algorithm.batch_size: 96 is not a multiple of algorithm.minibatch_size (64); "
            "nearest that work: 64 or 128",
        ),
        (
            "algorithm: {batch_size: 32, minibatch_size: 64}",
            "algorithm.batch_size: 32 is not a multiple of algorithm.minibatch_size (64); "
            "nearest that work: 64",
        ),
        (
            "env: {num_envs: 6}\nalgorithm: {batch_size: 20, minibatch_size: 8}",
            "algorithm.batch_size: 20 is not a multiple of env.num_envs (6); "
            "nearest that work: 24\n"
            "algorithm.batch_size: 20 is not a multiple of algorithm.minibatch_size (8); "
            "nearest that work: 24",
        ),
        (
            "training: {max_steps: null, max_episodes: null}",
            "training.max_steps: null, and training.max_episodes is null too: "
            "training would never end; set one",
        ),
        (
            "algorithm: {minibatch_size: 1}",
            "algorithm.minibatch_size: 1 leaves nothing to normalize advantages over; "
            "take at least 2, or set algorithm.normalize_advantages to batch or off",
        ),
    ],
)
def test_fields_that_do_not_fit_together(tmp_path, text, told):
    assert file_message(tmp_path, text) == told


@pytest.mark.parametrize("over_what", ["batch", "off"])
def test_minibatch_of_one_is_fine_where_it_is_not_normalized(over_what):
    overrides = {"algorithm.minibatch_size": 1, "algorithm.normalize_advantages": over_what}
    assert load("cartpole", overrides).algorithm.minibatch_size == 1


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("env: {num_envs: 6}", (768, 192)),
        ("data: {pattern: sine_wave}\nenv: {backend: trading}", (8192, 2048)),
        ("env: {num_envs: 4}\nalgorithm: {batch_size: 128}", (128, 64)),
        ("env: {num_envs: 4}\nalgorithm: {minibatch_size: 16}", (64, 16)),
    ],
)
def test_sizes_follow_from_the_environments_where_neither_is_given(tmp_path, text, sizes):
    algorithm = load(write(tmp_path, text)).algorithm
    assert (algorithm.batch_size, algorithm.minibatch_size) == sizes


def test_misfit_is_blamed_on_the_override_that_made_it():
    assert message(load, "cartpole", ["env.num_envs=7"]) == (
        "--set: algorithm.batch_size: 1024 is not a multiple of env.num_envs (7); "
        "nearest that work: 1792"
    )


TRADING = "env: {backend: trading}\ndata: {pattern: sine_wave"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "env: {backend: tradng}",
            'env.backend: "tradng" is not allowed: must be gymnax, gymnasium, envpool, '
            "jumanji, trading, portfolio or your own as package.module:make_env",
        ),
        (
            "env: {backend: trading}",
            "data.path: none is given; set one of data.pattern (synthetic prices), data.path (your own "
            "file) and data.source",
        ),
        (
            "data: {pattern: sine_wave}",
            "data: unknown section where the domain is control; trading, portfolio or language has it: "
            "set domain or env.backend",
        ),
        (
            f"{TRADING}, path: x.csv}}",
            "data.path: both are given; set one of data.pattern (synthetic prices), data.path (your own "
            "file) and data.source",
        ),
        (f"{TRADING}, split: {{tst: 1}}}}", "data.split.tst: unknown key; did you mean test?"),
        (
            f"{TRADING}, features: [{{knd: rsi}}]}}",
            "data.features.0.knd: unknown key; did you mean kind?",
        ),
        (
            f"{TRADING}, split: {{validation: 0.5, test: 0.5}}}}",
            "data.split.validation: 0.5 and data.split.test 0.5 leave nothing to train on; together "
            "they must be less than 1",
        ),
        (
            f"{TRADING}, split: {{folds: 3, fold: 3}}}}",
            "data.split.fold: 3 is not one of 3 folds; the first is 0, the last 2",
        ),
        (
            "env: {backend: trading, positions: [0, 1, 1]}\ndata: {pattern: sine_wave}",
            "env.positions: [0.0, 1.0, 1.0] names a position twice",
        ),
        (
            "algorithm: {name: ddpg, minibatch_size: 4}",
            "algorithm.minibatch_size: unknown key; did you mean batch_size?",
        ),
        (
            "algorithm: {name: ddpg, buffer_size: 100}",
            "algorithm.buffer_size: 100 cannot fill a batch of algorithm.batch_size (256); "
            "take at least as many",
        ),
        (
            "algorithm: {name: spo, buffer_size: 1000}",
            "algorithm.buffer_size: 1000 steps cannot fill a batch of algorithm.batch_size (32) "
            "sequences of algorithm.sequence_length (32) steps; take at least 1024",
        ),
        (
            "algorithm: {name: spo, buffer_size: 1024}\nenv: {num_envs: 33}",
            "algorithm.buffer_size: 1024 steps cannot hold one update: env.num_envs (33) sequences "
            "of algorithm.sequence_length (32) steps; take at least 1056",
        ),
        (
            "algorithm: {name: spo, particle: 8}",
            "algorithm.particle: unknown key; did you mean particles?",
        ),
    ],
)
def test_trading_and_replay_settings_that_cannot_be(tmp_path, text, told):
    assert file_message(tmp_path, text) == told
