"""A small, seeded part of `make fuzz`: every target, a few damages each."""

import pytest
from targets import TARGETS, Absurd, Target, check, play

CASES = 12


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_input_is_read_right_or_refused_in_words(name, workdir):
    (workdir / "valid").mkdir()
    valid = TARGETS[name].make(workdir / "valid")
    for seed in range(CASES):
        folder = workdir / str(seed)
        folder.mkdir()
        play(name, seed, valid, folder)


def test_a_finding_is_no_refusal(workdir):
    """What is read wrong, and what fails without words, is raised."""
    broken = {"absurd": lambda *_: check(False, "x"), "raw": lambda *_: {}["key"]}
    for name, kind in {"absurd": Absurd, "raw": KeyError}.items():
        TARGETS[name] = Target(lambda folder: folder, broken[name])
        with pytest.raises(kind):
            play(name, 0, workdir, workdir)
        del TARGETS[name]
