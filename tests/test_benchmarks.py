"""The benchmarks' own programs still run: each once, at its smallest.

All but that of packing, which compiles for half a minute and shares its loop with `ours.py`.
"""

import json
import runpy
import sys
from pathlib import Path

import pytest

from proxima.core.errors import ProximaError
from proxima.scenario import load
from proxima.tune.check import check_runnable, checked_ranges

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
ONCE = ("--repeat", "1", "--updates", "1")
OFF_POLICY = ("--hidden", "8", *ONCE)
PROGRAMS = {
    "ours.py": ("--envs", "2", "--steps", "8", *ONCE),
    "ours_off_policy.py": OFF_POLICY,
    "ours_off_policy.py, sac": ("--algorithm", "sac", *OFF_POLICY),
    "ours_off_policy.py, dqn": ("--algorithm", "dqn", *OFF_POLICY),
    "ours_pools.py": ("--envs", "2", "--steps", "8", *ONCE),
    "ours_spo.py": (
        *("--particles", "2", "--depth", "1", "--envs", "1", "--steps", "2", "--repeat", "1"),
    ),
    "ours_trading.py": ("--envs", "4", "--steps", "8", *ONCE),
    "trading_env.py": ("--envs", "2", "--steps", "8", *ONCE),
    "ours_language.py": ("ppo", "--rows", "4", *ONCE),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_runs(name, monkeypatch, capfd):
    script = name.partition(",")[0]
    monkeypatch.setattr(sys, "argv", [script, *PROGRAMS[name]])
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    monkeypatch.setenv("NPROC", "2")
    runpy.run_path(str(BENCHMARKS / script), run_name="__main__")
    assert "steps_per_second" in capfd.readouterr().out


def test_methods_are_set_beside_each_other_seed_by_seed(tmp_path):
    methods = runpy.run_path(str(BENCHMARKS / "language_methods.py"))
    names = methods["FIGURES"]

    def method(gain, start=0.0):
        before = {seed: dict.fromkeys(names, start + seed) for seed in range(5)}
        after = {seed: dict.fromkeys(names, start + seed + gain) for seed in range(5)}
        prompts = [
            {seed: {name: [value] * 3 for name, value in row.items()} for seed, row in part.items()}
            for part in (before, after)
        ]
        return methods["Method"](before, after, *prompts)

    both = {"PPO": method(1.0), "DPO": method(0.5)}
    text = methods["table"](both)
    assert "| SFT | 2.00 [" in text and "| PPO | 3.00 [" in text and "| DPO | 2.50 [" in text
    assert "- PPO − SFT: reward +1.00 [+1.00, +1.00], judge" in text
    assert "- DPO − PPO: reward −0.50 [−0.50, −0.50], judge" in text
    assert "95 % intervals over 5 trials (seeds 0, 1, 2, 3, 4)" in text
    with pytest.raises(ProximaError, match="PPO and DPO did not start alike with seed 0"):
        methods["table"](both | {"DPO": method(0.5, start=0.1)})
    page = tmp_path / "page.md"
    page.write_text(f"before\n{methods['START']}\nold\n{methods['END']}\nafter\n")
    for _ in range(2):
        methods["into"](page, text)
    assert page.read_text().startswith("before\n") and page.read_text().endswith("\nafter\n")
    assert page.read_text().count("| SFT |") == 1 and "old" not in page.read_text()


def test_the_task_of_a_search_is_one_that_a_scenario_takes(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    command = runpy.run_path(str(BENCHMARKS / "ours_tune.py"))["command"]
    words = [word.partition("=")[::2] for word in command(8, seed=1)]
    settings = [value for option, value in words if option == "--set"]
    space = dict(value.split("=") for option, value in words if option == "--search")
    scenario = load("cartpole", [*settings, f"search.space={json.dumps(space)}"])
    check_runnable(scenario)
    assert checked_ranges(scenario).keys() == space.keys() and len(space) == 6
    assert scenario.search.configs == 8 and scenario.training.max_steps == 20_000
