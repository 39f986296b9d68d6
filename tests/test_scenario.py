"""Scenarios are read strictly, and every mistake is told in words."""

import json
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest

from proxima.algorithms.ppo import PPOConfig
from proxima.core.errors import ProximaError
from proxima.domains.control.config import EnvConfig
from proxima.nets.actor_critic import NetworkConfig
from proxima.scenario import (
    Scenario,
    describe,
    dump,
    from_mapping,
    json_schema,
    load,
    parse,
    shipped,
    to_mapping,
)

SHIPPED = [
    "acrobot",
    "breakout_minatar",
    "cartpole",
    "cartpole_host",
    "mountain_car_continuous",
    "pendulum",
]
SCENARIO_KEYS = (
    "name, description, seed, trials, output_directory, env, network, algorithm, training, "
    "evaluation, convergence, checkpoint, tracking"
)


TRICKY_TEXTS = (
    *("", "no", "3", "1e5", "0o17", "~", "2020-01-01", "=", "<<", "# a", "a: b", "- a", "*a", "!b"),
    *(
        "é😀",
        " a ",
        "'\"\\",
        "a\nb\n",
        "\n\n",
        "a\x85b\u2028c",
        "\ta",
        "\x00\x7f",
        "%c",
        "x " * 200,
    ),
)


def write(directory: Path, text: str | bytes, name: str = "mine.yaml") -> Path:
    path = directory / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def message(call, *arguments) -> str:
    """What the error says that the call raises."""
    with pytest.raises(ProximaError) as caught:
        call(*arguments)
    return str(caught.value)


def file_message(directory: Path, text: str | bytes) -> str:
    """What loading a file with this text says, without the file's path in front."""
    path = write(directory, text)
    lines = message(load, path).splitlines()
    assert all(line.startswith(f"{path}: ") for line in lines), lines
    return "\n".join(line.removeprefix(f"{path}: ") for line in lines)


def test_shipped_lists_every_scenario_by_its_file_name():
    assert list(shipped()) == SHIPPED
    assert all(path.is_file() for path in shipped().values())


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_scenario_loads_describes_itself_and_opens_with_a_comment(name):
    scenario = load(name)
    assert scenario.name == name
    assert scenario.description == describe(name) != ""
    lines = shipped()[name].read_text().splitlines()
    comment = next(index for index, line in enumerate(lines) if not line.startswith("# "))
    assert comment in (2, 3)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_scenario_writes_only_what_differs_from_the_defaults(name):
    path = shipped()[name]
    defaults = to_mapping(Scenario())
    for section, keys in parse(path.read_text(), path.name).items():
        if not isinstance(keys, dict):
            assert keys != defaults[section]
            continue
        repeated = {key for key, value in keys.items() if value == defaults[section][key]}
        assert repeated - {"name"} == set(), f"{section} repeats defaults"


def test_cartpole_is_what_it_says():
    scenario = load("cartpole")
    assert (scenario.env.name, scenario.env.backend) == ("CartPole-v1", "gymnax")
    assert scenario.env.max_steps_per_episode == 500
    assert scenario.trials == 5
    assert scenario.convergence.target_reward == 475.0
    assert scenario.convergence.convergence_window == 100
    assert scenario.evaluation.eval_episodes == 100
    assert scenario.training.max_steps == 100_000


def test_cartpole_host_differs_in_the_backend_alone():
    compiled, host = load("cartpole"), load("cartpole_host")
    as_compiled = replace(
        host,
        name=compiled.name,
        description=compiled.description,
        trials=compiled.trials,
        env=replace(host.env, backend="gymnax"),
    )
    assert host.env.backend == "gymnasium"
    assert as_compiled == compiled


@pytest.mark.parametrize("kind", [str, Path])
@pytest.mark.parametrize("ending", [".yaml", ".yml"])
def test_path_names_the_scenario_by_its_stem(tmp_path, kind, ending):
    path = write(tmp_path, "seed: 3\n", f"mine{ending}")
    assert load(kind(path)) == Scenario(name="mine", seed=3)


def test_bare_file_name_with_ending_is_a_path(tmp_path, monkeypatch):
    write(tmp_path, "seed: 3\n", "cartpole.yaml")
    monkeypatch.chdir(tmp_path)
    assert load("cartpole.yaml") == Scenario(name="cartpole", seed=3)


def test_path_like_without_ending_is_a_path(tmp_path, monkeypatch):
    write(tmp_path, "seed: 3\n", "cartpole")
    monkeypatch.chdir(tmp_path)
    assert load(Path("cartpole")).seed == 3


def test_name_in_the_file_may_repeat_the_file_name(tmp_path):
    assert load(write(tmp_path, "name: mine\n")).name == "mine"


def test_name_in_the_file_must_be_the_file_name(tmp_path):
    told = file_message(tmp_path, "name: other\nsed: 1\n")
    assert told == (
        'name: "other" is not the file\'s name; write mine or leave it out\n'
        "sed: unknown key; did you mean seed?"
    )


def test_wrong_name_in_the_file_stays_wrong_under_an_override(tmp_path):
    path = write(tmp_path, "name: other\n")
    assert message(load, path, ["name=third", "algorithm.minibatch_size=48"]).splitlines() == [
        f'{path}: name: "other" is not the file\'s name; write mine or leave it out',
        "--set: algorithm.batch_size: 64 is not a multiple of algorithm.minibatch_size (48); "
        "nearest that work: 48 or 96",
    ]


def test_name_can_be_overridden():
    assert load("cartpole", {"name": "try_2"}).name == "try_2"


@pytest.mark.parametrize("name", ["../up", "a/b", "a\\b", ".hidden", "two\nlines"])
def test_name_must_do_as_a_directory(name):
    assert message(load, "cartpole", {"name": name}) == (
        f"--set: name: {json.dumps(name)} is not allowed: "
        "it names a directory: no slashes, line breaks or leading dot"
    )


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("cartpol", "cartpol: no such scenario; did you mean cartpole or cartpole_host? "),
        ("Pendulum", "Pendulum: no such scenario; did you mean pendulum? "),
        ("xyz", "xyz: no such scenario; "),
        ("", ": no such scenario; "),
    ],
)
def test_unknown_scenario_lists_near_names(name, told):
    assert message(load, name) == told + "`proxima scenarios` lists all"


def test_unknown_scenario_points_at_a_file_of_that_name(tmp_path, monkeypatch):
    write(tmp_path, "seed: 3\n", "xyz.yaml")
    monkeypatch.chdir(tmp_path)
    assert message(load, "xyz") == (
        "xyz: no such scenario; did you mean the file xyz.yaml? `proxima scenarios` lists all"
    )


def test_missing_file(tmp_path):
    assert message(load, tmp_path / "no.yaml") == f"{tmp_path}/no.yaml: no such file"


def test_missing_file_named_like_a_shipped_scenario(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message(load, "pendulum.yaml") == (
        "pendulum.yaml: no such file; the shipped scenario is called pendulum"
    )


def test_directory(tmp_path):
    assert message(load, tmp_path) == f"{tmp_path}: is a directory; name the .yaml file in it"


def test_device():
    assert message(load, "/dev/zero") == "/dev/zero: is not a regular file"


def test_unreadable_file(tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied")

    path = write(tmp_path, "seed: 1\n")
    monkeypatch.setattr(Path, "read_bytes", refuse)  # the superuser may read everything
    assert message(load, path) == f"{path}: cannot be read: Permission denied"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty; write at least `env: {name: CartPole-v1}`"),
        ("# nothing\n", "is empty; write at least `env: {name: CartPole-v1}`"),
        ("---\n", "is empty; write at least `env: {name: CartPole-v1}`"),
        ("- 1\n- 2\n", "expected keys and values, got [1, 2]"),
        ("hello\n", 'expected keys and values, got "hello"'),
        (b"\x89PNG\r\n\x1a\n\xff\xfe", "is not UTF-8 text, so not a YAML file"),
        ("seed: 1\nname: \x01\n", "line 2: the character 0x1 is not allowed in YAML"),
        (
            "algorithm:\n\tgamma: 0.9\n",
            "line 2: not valid YAML: found character '\\t' that cannot start any token; "
            "indent with spaces, not tabs",
        ),
        ("seed: 1\nenv: {name: x\n", "line 3: not valid YAML: expected ',' or '}', but got "),
        ("seed: 1\n---\nseed: 2\n", "line 2: not valid YAML: but found another document"),
        ("seed: *one\n", "line 1: not valid YAML: found undefined alias 'one'"),
        (
            "algorithm:\n  gamma: 0.9\n  gamma: 0.8\n",
            "line 3: the key gamma stands here a second time; delete one",
        ),
        ("seed: 1\nseed: 1\n", "line 2: the key seed stands here a second time; delete one"),
        ("seed: 1\n3: x\n", "line 2: the key 3 is not text; put it in quotes"),
        ("? [a]\n: x\n", 'line 1: the key ["a"] is not text; put it in quotes'),
        (
            "seed: !!python/object/apply:os.system [ls]\n",
            "line 1: the tag !!python/object/apply:os.system is not allowed; write plain values",
        ),
        ("seed: 1\nenv: !mine {}\n", "line 2: the tag !mine is not allowed; write plain values"),
        ("env: !!set {a}\n", "line 1: the tag !!set is not allowed; write plain values"),
        ("env: !!map x\n", "line 1: the tag !!map is not allowed; write plain values"),
        ("seed: !!int x\n", 'line 1: "x" is not a YAML int'),
        ("%YAML 1.1\n---\nseed: no\n", 'line 3: "no" is not a YAML bool'),
        (
            "env: &e {}\nnetwork: *e\n",
            "line 1: an alias repeats a mapping or list; write it out instead",
        ),
        ("env: &e [*e]\n", "line 1: an alias repeats a mapping or list; write it out instead"),
        ("[" * 1000, "is nested too deeply for a scenario"),
        (
            'description: "\\ud800"\n',
            "description: '\\ud800' is not a number, text, true, false, null, list or mapping",
        ),
    ],
)
def test_file_that_is_no_scenario(tmp_path, text, told):
    assert file_message(tmp_path, text).startswith(told)


def test_byte_order_mark_and_windows_line_ends_are_read(tmp_path):
    path = write(tmp_path, b"\xef\xbb\xbfseed: 3\r\ntrials: 2\r\n")
    assert load(path) == Scenario(name="mine", seed=3, trials=2)


def test_section_with_all_keys_commented_out_keeps_its_defaults(tmp_path):
    path = write(tmp_path, "seed: 1\nalgorithm:\n  # gamma: 0.9\n")
    assert load(path).algorithm == PPOConfig()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3e-4", 3e-4),
        ("1e5", 1e5),
        ("1E+5", 1e5),
        ("12", 12),
        ("+12", 12),
        ("0o17", 15),
        ("017", 17),
        ("0x1F", 31),
        (".5", 0.5),
        ("-.inf", float("-inf")),
        ("no", "no"),
        ("on", "on"),
        ("off", "off"),
        ("yes", "yes"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("", None),
        ("1:30", "1:30"),
        ("2020-01-01", "2020-01-01"),
        ("=", "="),
        ("'3'", "3"),
        ("!!str 3", "3"),
        ("[1, a]", [1, "a"]),
        ("{a: {b: 1}}", {"a": {"b": 1}}),
    ],
)
def test_yaml_is_read_by_the_rules_of_1_2(text, value):
    read = parse(f"key: {text}\n", "text")["key"]
    assert read == value
    assert type(read) is type(value)


def test_scalars_can_be_shared_by_an_alias():
    assert parse("a: &size 64\nb: *size\n", "text") == {"a": 64, "b": 64}


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


def test_scenario_is_frozen():
    with pytest.raises(FrozenInstanceError):
        load("cartpole").seed = 1


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
        ("algorithm: {name: ppoo}", 'algorithm.name: "ppoo" is not allowed: must be ppo'),
        (
            "network: {hidden: []}",
            "network.hidden: [] is not allowed: must have 1 or more entries",
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
    monkeypatch.setattr("proxima.scenario.shipped", lambda: {"cartpole": path})
    assert message(load, "cartpole") == (
        "cartpole.yaml: algorithm.learnin_rate: unknown key; did you mean learning_rate?"
    )


@pytest.mark.parametrize(
    "overrides",
    [
        {"algorithm.learning_rate": 1e-3, "env.params.length": 0.7},
        {"algorithm": {"learning_rate": 1e-3}, "env": {"params": {"length": 0.7}}},
        {"algorithm": {"learning_rate": 1e-3}, "env": {"params.length": 0.7}},
        ["algorithm.learning_rate=1e-3", "env.params.length=0.7"],
        ["algorithm={learning_rate: 1e-3}", "env.params={length: 0.7}"],
        ["algorithm.learning_rate = 1", "algorithm.learning_rate = 1e-3", "env.params.length=.7"],
    ],
)
def test_overrides_lie_over_the_file_which_lies_over_the_defaults(tmp_path, overrides):
    text = "algorithm: {learning_rate: 0.5, gamma: 0.5}\nenv: {params: {gravity: 9.0}}\n"
    assert load(write(tmp_path, text), overrides) == Scenario(
        name="mine",
        algorithm=PPOConfig(learning_rate=1e-3, gamma=0.5),
        env=EnvConfig(params={"gravity": 9.0, "length": 0.7}),
    )


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


def test_misfit_is_blamed_on_the_override_that_made_it():
    assert message(load, "cartpole", ["env.num_envs=7"]) == (
        "--set: algorithm.batch_size: 1024 is not a multiple of env.num_envs (7); "
        "nearest that work: 1792"
    )


@pytest.mark.parametrize("name", SHIPPED)
def test_dump_and_mapping_give_the_scenario_back(name):
    scenario = load(name)
    assert from_mapping(parse(dump(scenario), "dump"), "dump") == scenario
    assert from_mapping(json.loads(json.dumps(to_mapping(scenario))), "json") == scenario


def test_dump_loads_from_a_file_of_its_name(tmp_path):
    scenario = load("pendulum", {"seed": 7})
    assert load(write(tmp_path, dump(scenario), "pendulum.yaml")) == scenario


@pytest.mark.parametrize(
    "text",
    TRICKY_TEXTS,
)
def test_dump_keeps_every_text(text):
    scenario = Scenario(description=text, env=EnvConfig(params={text or "k": text}))
    assert from_mapping(parse(dump(scenario), "dump"), "dump") == scenario


@pytest.mark.parametrize("value", [1e-05, 1e22, 0.1 + 0.2, 5e-324, 1.0, -0.0, 12, -3, True])
def test_dump_keeps_every_number(value):
    scenario = Scenario(env=EnvConfig(params={"key": value}))
    read = from_mapping(parse(dump(scenario), "dump"), "dump").env.params["key"]
    assert (repr(read), type(read)) == (repr(value), type(value))


def test_dump_keeps_the_order_of_the_fields():
    assert list(parse(dump(Scenario()), "dump")) == SCENARIO_KEYS.split(", ")


def test_mapping_is_plain_and_independent():
    scenario = Scenario(network=NetworkConfig(hidden=(8,)), env=EnvConfig(params={"a": 1}))
    mapping = to_mapping(scenario)
    assert mapping["network"]["hidden"] == [8]
    mapping["env"]["params"]["a"] = 2
    assert scenario.env.params == {"a": 1}


def test_from_mapping_names_its_source_and_leaves_the_mapping_alone():
    mapping = {"algorithm": {"gama": 1}, "training": {"max_steps": 1e5}}
    told = message(from_mapping, mapping, "run/scenario.yaml")
    assert told == "run/scenario.yaml: algorithm.gama: unknown key; did you mean gamma?"
    assert mapping == {"algorithm": {"gama": 1}, "training": {"max_steps": 1e5}}


def test_from_mapping_of_nothing_is_the_default_scenario():
    assert from_mapping({}, "nothing") == Scenario()


def test_schema_describes_every_key_and_forbids_others():
    schema = json_schema()
    json.dumps(schema)
    for kind in (schema, *schema["$defs"].values()):
        assert kind["additionalProperties"] is False
        assert kind["description"]
        assert all(entry["description"] for entry in kind["properties"].values())
    assert list(schema["properties"]) == SCENARIO_KEYS.split(", ")


def test_schema_takes_descriptions_and_limits_from_the_fields():
    gamma = json_schema()["$defs"]["PPOConfig"]["properties"]["gamma"]
    assert gamma["description"] == "Discount factor."
    assert (gamma["minimum"], gamma["maximum"], gamma["default"]) == (0, 1, 0.99)
