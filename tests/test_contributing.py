"""The recipes of docs/howto, followed to the letter: their files written, used and run."""

import re
import runpy
import sys
from pathlib import Path

import pytest
from tiny import read, rows_of

import proxima
from proxima.build import algorithm
from proxima.scenario import load

HOW_TO = Path(__file__).parent.parent / "docs" / "howto"
PAGES = ("environment", "network", "algorithm", "domain")  # every block of code is a file
WHOLE = "".join((HOW_TO / f"{page}.md").read_text() for page in PAGES)
TEXT = WHOLE + (HOW_TO / "reward.md").read_text()  # where some blocks are parts of a scenario
BLOCKS = re.findall(
    r"^```(?:python|yaml)\n# (\S+\.\w+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL
)
MODULES = ("guess", "corridor", "reinforce", "corridors", "gated", "shaped")


@pytest.fixture
def recipes(workdir, monkeypatch):
    """A directory with every file that the document shows."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(workdir)])
    for name, text in BLOCKS:
        (workdir / name).write_text(text)
    yield workdir
    for name in MODULES:
        sys.modules.pop(name, None)


def test_every_block_of_code_names_its_file():
    fences = re.findall(r"^```(?:python|yaml)$", WHOLE, re.MULTILINE)
    names = [name for name, _ in BLOCKS]
    in_reward = ["shaped.py", "shaped.yaml"]
    assert len(fences) + len(in_reward) == len(names) == len(set(names)) and len(names) >= 11
    assert {f"{name}.py" for name in MODULES} <= set(names)


def test_the_recipes_train_together(recipes):
    summary = proxima.run_multiple_experiments(load(recipes / "corridor.yaml"))
    (trial,) = summary.trials
    assert summary.domain == "corridors:DOMAIN" and summary.algorithm == "reinforce:ALGORITHM"
    assert 0 <= trial.scores["reached"] <= 1
    folder = Path(summary.paths["run"]) / "trial_0"
    assert "train/return_to_go" in rows_of(folder)[-1]
    assert read(folder / "episode.json")["rewards"]
    assert algorithm("reinforce:ALGORITHM").panels[1].metric == "train/return_to_go"


def test_the_gymnasium_recipe_trains_from_python(recipes, capsys):
    assert load(recipes / "guess.yaml").env.name == "Guess"
    runpy.run_path(str(recipes / "train.py"))
    assert "greedy" in capsys.readouterr().out
    assert proxima.load_policy("guesser").about["env"] == "Guess"


@pytest.mark.parametrize("name", ["gated", "shaped"])
def test_a_net_and_a_reward_of_ones_own_train(recipes, name):
    summary = proxima.run_multiple_experiments(load(recipes / f"{name}.yaml"))
    (trial,) = summary.trials
    assert trial.stopped == "budget" and trial.evaluation.return_mean > 0
    if name == "shaped":  # a step would give 1 without the wrapper's price
        assert trial.evaluation.return_mean < trial.evaluation.length_mean
