"""Scenarios: found by name or path, read strictly, and given back as they were."""

import json
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest
from scenario_files import SCENARIO_KEYS, default_scenario, file_message, message, write

from proxima.algorithms.spo import SPOConfig
from proxima.build import DOMAINS
from proxima.domains.control.config import EnvConfig
from proxima.nets.actor_critic import MLPConfig
from proxima.scenario import (
    EnvironmentScenario,
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
    "acrobot_dqn",
    "asterix_minatar",
    "asterix_pqn",
    "binpack_ppo",
    "binpack_spo",
    "bipedal_walker_sac",
    "breakout_minatar",
    "breakout_pqn",
    "cartpole",
    "cartpole_curriculum",
    "cartpole_envpool",
    "cartpole_host",
    "cartpole_landscape",
    "cartpole_memory",
    "cartpole_pqn",
    "cartpole_spo",
    "eurusd_hourly",
    "freeway_minatar",
    "freeway_pqn",
    "halfcheetah_sac",
    "hopper_sac",
    "leaked_oracle",
    "lunar_lander",
    "lunar_lander_dqn",
    "maze_curriculum",
    "maze_ppo",
    "maze_spo",
    "mean_reversion",
    "mean_reversion_ddpg",
    "memory_chain",
    "mountain_car_continuous",
    "mountain_car_memory",
    "mountain_car_sac",
    "movie_critic",
    "movie_critic_dpo",
    "movie_critic_hacked",
    "movie_critic_rloo",
    "nyse_portfolio",
    "pendulum",
    "pendulum_ddpg",
    "pendulum_memory",
    "pendulum_sac",
    "pendulum_spo",
    "pendulum_td3",
    "pong",
    "portfolio_reversion",
    "random_walk",
    "regime_switching",
    "sine_wave",
    "sine_wave_ddpg",
    "smollm2_positive",
    "sp500_daily",
    "space_invaders_minatar",
    "space_invaders_pqn",
    "trending",
    "upward_drift",
]


def test_shipped_lists_every_scenario_by_its_file_name():
    assert list(shipped()) == SHIPPED
    assert all(path.is_file() for path in shipped().values())


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_scenario_loads_describes_itself_and_opens_with_a_comment(name):
    scenario = load(name)
    assert scenario.name == name
    assert scenario.description != ""
    lines = shipped()[name].read_text().splitlines()
    comment = next(index for index, line in enumerate(lines) if not line.startswith("# "))
    assert comment in (1, 2, 3)


@pytest.mark.parametrize(
    "name", [name for name in SHIPPED if isinstance(load(name), EnvironmentScenario)]
)
def test_shipped_scenario_writes_only_what_differs_from_the_defaults(name):
    path = shipped()[name]
    written = parse(path.read_text(), path.name)
    chosen = {
        "env": ("backend",),
        "algorithm": ("name",),
        "network": ("kind",),
        "data": ("pattern", "source"),
        "search": (),
    }
    kinds = {
        section: {key: written[section][key] for key in keys if key in written[section]}
        for section, keys in chosen.items()
        if section in written
    }
    defaults = to_mapping(from_mapping(kinds, "defaults"))
    for section, keys in written.items():
        if not isinstance(keys, dict) or defaults[section] is None:
            assert keys != defaults[section]
            continue
        repeated = {key for key, value in keys.items() if value == defaults[section][key]}
        repeated -= {"name", *chosen.get(section, ())}
        # Sizes may be spelled out: left out, they would change with the number of environments.
        repeated -= {"batch_size", "minibatch_size"}
        assert repeated == set(), f"{section} repeats defaults"


def test_cartpole_is_what_it_says():
    scenario = load("cartpole")
    assert (scenario.env.name, scenario.env.backend) == ("CartPole-v1", "gymnax")
    assert scenario.env.max_steps_per_episode == 500
    assert scenario.trials == 5
    assert scenario.convergence.target_reward == 475.0
    assert scenario.convergence.convergence_window == 100
    assert scenario.evaluation.eval_episodes == 100
    assert scenario.training.max_steps == 100_000


def test_cartpole_host_differs_in_the_backend_and_how_it_is_evaluated_alone():
    compiled, host = load("cartpole"), load("cartpole_host")
    as_compiled = replace(
        host,
        name=compiled.name,
        description=compiled.description,
        trials=compiled.trials,
        env=replace(host.env, backend="gymnax"),
        evaluation=compiled.evaluation,
        convergence=compiled.convergence,
    )
    assert host.env.backend == "gymnasium"
    assert as_compiled == compiled


@pytest.mark.parametrize("kind", [str, Path])
@pytest.mark.parametrize("ending", [".yaml", ".yml"])
def test_path_names_the_scenario_by_its_stem(tmp_path, kind, ending):
    path = write(tmp_path, "seed: 3\n", f"mine{ending}")
    assert load(kind(path)) == default_scenario(name="mine", seed=3)


def test_bare_file_name_with_ending_is_a_path(tmp_path, monkeypatch):
    write(tmp_path, "seed: 3\n", "cartpole.yaml")
    monkeypatch.chdir(tmp_path)
    assert load("cartpole.yaml") == default_scenario(name="cartpole", seed=3)


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
        (
            "cartpol",
            "cartpol: no such scenario; did you mean cartpole, cartpole_spo or cartpole_pqn? ",
        ),
        (
            "Pendulum",
            "Pendulum: no such scenario; did you mean pendulum, pendulum_td3 or pendulum_spo? ",
        ),
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


def test_section_with_all_keys_commented_out_keeps_its_defaults(tmp_path):
    path = write(tmp_path, "seed: 1\nalgorithm:\n  # gamma: 0.9\n")
    assert load(path).algorithm == default_scenario().algorithm


def test_scenario_is_frozen():
    with pytest.raises(FrozenInstanceError):
        load("cartpole").seed = 1


@pytest.mark.parametrize("name", SHIPPED)
def test_dump_and_mapping_give_the_scenario_back(name):
    scenario = load(name)
    assert from_mapping(parse(dump(scenario), "dump"), "dump") == scenario
    assert from_mapping(json.loads(json.dumps(to_mapping(scenario))), "json") == scenario


def test_dump_loads_from_a_file_of_its_name(tmp_path):
    scenario = load("pendulum", {"seed": 7})
    assert load(write(tmp_path, dump(scenario), "pendulum.yaml")) == scenario


def test_dump_keeps_the_order_of_the_fields():
    assert list(parse(dump(default_scenario()), "dump")) == SCENARIO_KEYS.split(", ")


def test_mapping_is_plain_and_independent():
    scenario = default_scenario(network=MLPConfig(hidden=(8,)), env=EnvConfig(params={"a": 1}))
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
    assert from_mapping({}, "nothing") == default_scenario()


def test_schema_describes_every_key_and_forbids_others():
    schema = json_schema()
    json.dumps(schema)
    kinds = [branch["then"] for branch in schema["allOf"]]
    for kind in (*kinds, *schema["$defs"].values()):
        assert kind["additionalProperties"] is False
        assert kind["description"]
        assert all(entry["description"] for entry in kind["properties"].values())
    assert list(kinds[0]["properties"]) == SCENARIO_KEYS.split(", ")
    assert len(kinds) == len(DOMAINS)
    own = {"packing": "env", "trading": "data", "portfolio": "data", "language": "sft"}
    for name, section in own.items():
        assert section in kinds[list(DOMAINS).index(name)]["properties"]


def test_schema_takes_descriptions_and_limits_from_the_fields():
    gamma = json_schema()["$defs"]["PPOConfig"]["properties"]["gamma"]
    assert gamma["description"] == "Discount factor."
    assert (gamma["minimum"], gamma["maximum"], gamma["default"]) == (0, 1, 0.99)


def test_a_section_set_to_another_kind_starts_from_that_kinds_defaults():
    file = load("sine_wave")
    assert file.algorithm.gamma == 0.9
    changed = load("sine_wave", ["algorithm.name=spo", "algorithm.tau=0.1"])
    assert changed.algorithm == SPOConfig(name="spo", tau=0.1)
    assert (changed.env, changed.data) == (file.env, file.data)
    same = load("sine_wave", ["algorithm.name=ppo", "algorithm.clip_epsilon=0.1"])
    assert same.algorithm.gamma == 0.9
    assert load("cartpole", ["env.backend=gymnasium"]).env.max_steps_per_episode == 500
