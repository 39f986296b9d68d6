"""docs/env_pools.md says what is true: its commands run, and its table has every setting and default."""

import re
import shlex
from dataclasses import fields, replace
from pathlib import Path

import pytest
from scenario_files import file_message
from tiny import BUDGET, flags, run_main

from proxima.domains.control.choices import ONE_HOT
from proxima.domains.control.config import EnvConfig
from proxima.domains.control.workers import MOST_FAILURES, STEADY
from proxima.scenario import load

DOCS = Path(__file__).parents[3] / "docs"
PAGE, SPACES = ((DOCS / name).read_text() for name in ("env_pools.md", "spaces.md"))
COMMANDS = re.findall(r"^proxima .*$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_its_commands_run(command, workdir, capsys, monkeypatch):
    words = shlex.split(command)[1:]
    small = flags(*BUDGET, "training.max_steps=256", "env.max_steps_per_episode=20")
    said = run_main([*words, *small], capsys, monkeypatch)
    assert said.code == 0, said.err


def test_its_table_has_every_setting_of_a_pool_and_its_default():
    section = PAGE.partition("## Settings")[2].partition("## ")[0]
    rows = dict(re.findall(r"^\| `env\.(\w+)` \| (\S+) \|", section, re.MULTILINE))
    defaults = {field.name: getattr(EnvConfig(), field.name) for field in fields(EnvConfig)}
    left_out = {"name", "backend"}
    assert rows.keys() == defaults.keys() - left_out
    for name, told in rows.items():
        value = list(defaults[name]) if defaults[name] == () else defaults[name]
        assert told == ("null" if value is None else str(value).removesuffix(".0")), name


def test_its_numbers_are_those_of_the_code():
    assert f"beyond {ONE_HOT:,} the number itself" in SPACES
    assert f"within {STEADY:,} answers" in PAGE
    assert MOST_FAILURES == 3 and "three times over" in PAGE


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{workers: 2}", "env.workers: 2, and env.backend gymnax has no workers"),
        ("{backend: gymnasium, groups: 2}", "env.groups: 2, and nothing steps beside the policy"),
        ("{backend: envpool, groups: 2, num_envs: 1}", "env.num_envs: 1 environments cannot be"),
        ("{backend: envpool, groups: 3}", "env.groups: 3 is not allowed: must be at most 2"),
        ("{backend: gymnasium, worker_timeout: 0}", "env.worker_timeout: 0"),
        ("{backend: gymnasium, on_worker_failure: ignore}", "must be stop or restart"),
    ],
)
def test_settings_that_make_no_sense_are_refused_in_words(tmp_path, text, told):
    assert told in file_message(tmp_path, f"env: {text}\n")


def test_cartpole_envpool_differs_from_cartpole_in_the_backend_alone():
    compiled, pool = load("cartpole"), load("cartpole_envpool")
    assert pool.env.backend == "envpool"
    assert (
        replace(
            pool,
            name=compiled.name,
            description=compiled.description,
            env=replace(pool.env, backend="gymnax"),
        )
        == compiled
    )
