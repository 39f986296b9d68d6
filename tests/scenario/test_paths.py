"""Paths in settings may begin with the home directory, wherever they come from."""

from dataclasses import fields, is_dataclass
from typing import get_args, get_type_hints

import pytest

from proxima.build import DOMAINS, domain
from proxima.scenario import load
from proxima.scenario.read import PATH_KEYS


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_home_in_settings_and_in_the_files_own_name(home):
    (home / "mine.yaml").write_text(
        "env: {name: CartPole-v1}\noutput_directory: ~/runs\ndescription: ~/as it is\n"
    )
    scenario = load("~/mine.yaml", ["tracking.uri=sqlite:///~/mlflow.db"])
    assert scenario.name == "mine"
    assert scenario.output_directory == f"{home}/runs"
    assert scenario.tracking.uri == f"sqlite:///{home}/mlflow.db"
    assert scenario.description == "~/as it is"


def test_home_in_the_paths_of_every_domain(home):
    assert (
        load("sine_wave", ["data.path=~/p.csv", "data.pattern=null"]).data.path == f"{home}/p.csv"
    )
    language = load(
        "movie_critic",
        {"data.source": "file", "data.path": "~/t.csv", "model.path": "~/m", "reward.path": "~/r"}
        | {"reward_model": None},
    )
    paths = (language.data.path, language.model.path, language.reward.path)
    assert paths == (f"{home}/t.csv", f"{home}/m", f"{home}/r")


def settings_of(kind: type) -> set[str]:
    names = set()
    for field in fields(kind):
        names.add(field.name)
        for part in (get_type_hints(kind)[field.name], *get_args(field.type)):
            for config in (part, *get_args(part)):
                if isinstance(config, type) and is_dataclass(config):
                    names |= settings_of(config)
    return names


def test_every_setting_that_sounds_like_a_path_is_one():
    names = set[str]().union(*(settings_of(domain(name).scenario) for name in DOMAINS))
    sounding = {n for n in names if n.endswith(("path", "directory", "folder", "file", "uri"))}
    assert sounding == PATH_KEYS
