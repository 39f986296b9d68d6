"""As test_resume.py, with programs compiled as users' are: one kind of each sort of program."""

import os
from pathlib import Path

import pytest
import texts
from resume import Undisturbed, check_killed_in_training

pytestmark = pytest.mark.optimized


@pytest.mark.parametrize("name", ["ppo", "gymnasium", "language"])
def test_killed_while_it_trains(name, workdir, tmp_path_factory, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(texts.__file__).parent), prepend=os.pathsep)
    check_killed_in_training(name, workdir, Undisturbed(tmp_path_factory.mktemp))
