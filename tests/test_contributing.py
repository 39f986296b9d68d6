"""The recipes of CONTRIBUTING.md, followed to the letter: their files written, used and run."""

import re
import runpy
import sys
from pathlib import Path

import pytest
from tiny import read, rows_of

import proxima
from proxima.build import algorithm
from proxima.scenario import load

TEXT = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text()
BLOCKS = re.findall(
    r"^```(?:python|yaml)\n# (\S+\.\w+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL
)
MODULES = ("guess", "corridor", "reinforce", "corridors")


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
    fences = re.findall(r"^```(?:python|yaml)$", TEXT, re.MULTILINE)
    names = [name for name, _ in BLOCKS]
    assert len(fences) == len(names) == len(set(names)) and len(names) >= 7
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
