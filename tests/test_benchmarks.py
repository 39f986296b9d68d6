"""The benchmarks' own programs still run: each once, at its smallest.

All but that of packing, which compiles for half a minute and shares its loop with `ours.py`.
"""

import runpy
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
ONCE = ("--repeat", "1", "--updates", "1")
PROGRAMS = {
    "ours.py": ("--envs", "2", "--steps", "8", *ONCE),
    "ours_ddpg.py": ("--hidden", "8", *ONCE),
    "ours_dqn.py": ("--hidden", "8", *ONCE),
    "ours_pools.py": ("--envs", "2", "--steps", "8", *ONCE),
    "ours_spo.py": (
        *("--particles", "2", "--depth", "1", "--envs", "1", "--steps", "2", "--repeat", "1"),
    ),
    "ours_trading.py": ("--envs", "4", "--steps", "8", *ONCE),
    "trading_env.py": ("--envs", "2", "--steps", "8", *ONCE),
    "ours_language.py": ("ppo", "--rows", "4", *ONCE),
}


@pytest.mark.parametrize("script", PROGRAMS)
def test_runs(script, monkeypatch, capfd):
    monkeypatch.setattr(sys, "argv", [script, *PROGRAMS[script]])
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    monkeypatch.setenv("NPROC", "2")
    runpy.run_path(str(BENCHMARKS / script), run_name="__main__")
    assert "steps_per_second" in capfd.readouterr().out
