"""The package's front door: what it offers, and how little it costs to come in."""

import importlib
import subprocess
import sys

import pytest

import proxima


def python(*lines: str) -> str:
    """What a fresh process prints."""
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_everything_it_offers_is_listed_and_there():
    assert set(proxima.__all__) <= set(dir(proxima)) and "Trainer" in dir(proxima)
    for name in proxima.__all__:
        thing = getattr(proxima, name)
        assert thing.__doc__, name
        assert getattr(importlib.import_module(thing.__module__), name) is thing
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = proxima.nothing


def test_importing_it_imports_no_heavy_library():
    heavy = ("jax", "numpy", "gymnasium", "pydantic", "rich", "polars", "importlib.abc")
    loaded = "print([name for name in " + repr(heavy) + " if name in sys.modules])"
    before = python("import sys", loaded)
    assert python("import sys, proxima", loaded) == before


@pytest.mark.parametrize("order", ["import proxima, gymnasium", "import gymnasium, proxima"])
def test_gymnasium_knows_our_environment_whichever_comes_first(order):
    assert python(order, "print('proxima/Trading-v0' in gymnasium.registry)") == "True"
