"""Every speed line side by side: ours and the rival take turns in one go, medians and their ratio.

    python benchmarks/run.py                 everything; about 10 minutes, and the rivals' installation once
    python benchmarks/run.py large small     some of it

Results, with machine and commit, go to benchmarks/results/. Nothing else should use the machine.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "peers"))
import venvs  # noqa: E402

AGREEMENT = 1e-5  # of values relative to each other: ours are float32


OURSELVES = "proxima"


class Line(NamedTuple):
    """One line of the table: what is asked of both, and the ratio to reach."""

    name: str
    ours: tuple[str, ...]
    peer: str
    theirs: tuple[str, ...]
    at_least: float
    script: str = "ours.py"
    before: tuple[str, ...] = ()  # a script of ours that writes what both read
    own_speed: float = 0.0  # steps per second that ours is to reach besides


LINES = {
    "large": Line(
        "64 envs × 128, one run",
        ("--envs", "64", "--updates", "60"),
        "rejax",
        ("rejax_ppo.py", "--envs", "64", "--updates", "60"),
        2.0,
    ),
    "small": Line(
        "4 envs × 128, one run",
        ("--envs", "4", "--updates", "500"),
        "rejax",
        ("rejax_ppo.py", "--envs", "4", "--updates", "500"),
        1.3,
    ),
    "trials": Line(
        "8 trials of 4 × 128, in sum",
        ("--envs", "4", "--updates", "200", "--trials", "8"),
        "rejax",
        ("rejax_ppo.py", "--envs", "4", "--updates", "200", "--seeds", "8"),
        3.3,
    ),
    "sb3": Line(
        "8 envs × 128",
        ("--envs", "8", "--updates", "400"),
        "sb3",
        ("sb3_ppo.py", "--envs", "8", "--updates", "20"),
        30.0,
    ),
    "host": Line(
        "Gymnasium CartPole, 8 envs × 128",
        ("--envs", "8", "--updates", "40", "--host"),
        "sb3",
        ("sb3_ppo.py", "--envs", "8", "--updates", "20"),
        2.0,
    ),
    "trading_env": Line(
        "trading env alone, 1,024 accounts in one process",
        ("--envs", "1024", "--steps", "1000", "--updates", "10"),
        "gym-trading-env",
        ("gym_trading.py", "--envs", "1", "--steps", "1000", "--updates", "10"),
        300.0,
        "trading_env.py",
    ),
    "trading_ppo": Line(
        "PPO on a trading env, 4,096 steps per update; the rival as usual, with one env",
        ("--envs", "64", "--steps", "64", "--updates", "100"),
        "torchrl",
        ("torchrl_trading.py", "--envs", "1", "--steps", "4096", "--updates", "1"),
        100.0,
        "ours_trading.py",
        ("ours_trading.py", "--write"),
        60_000,
    ),
    "trading_ppo_vector": Line(  # no aim but to be quicker than what TorchRL can be brought to
        "PPO on a trading env, 64 envs × 64; the rival's in two processes, as vectors",
        ("--envs", "64", "--steps", "64", "--updates", "100"),
        "torchrl",
        ("torchrl_trading.py", "--envs=64", "--steps=64", "--updates=10", "--collectors=2"),
        1.0,
        "ours_trading.py",
        ("ours_trading.py", "--write"),
        60_000,
    ),
    "ddpg_sb3": Line(
        "DDPG on Pendulum, 256-256, batch 256, an update per step",
        ("--updates", "1000"),
        "sb3",
        ("sb3_ddpg.py", "--updates", "500"),
        3.0,
        "ours_ddpg.py",
    ),
    "ddpg_sbx": Line(
        "DDPG on Pendulum, 256-256, batch 256, an update per step",
        ("--updates", "1000"),
        "sbx",
        ("sbx_ddpg.py", "--updates", "800"),
        1.5,
        "ours_ddpg.py",
    ),
    "packing": Line(
        "PPO on BinPack-v2, 10 items and 20 spaces, 128 envs × 16; the rival over Jumanji's autoreset",
        ("--envs=128", "--steps=16", "--updates=10"),
        OURSELVES,
        ("jumanji_loop.py", "--envs=128", "--steps=16", "--updates=10"),
        1.5,
        "ours_packing.py",
    ),
    "packing_full": Line(
        "PPO on BinPack-v2, 20 items and 40 spaces, 128 envs × 16; the rival over Jumanji's autoreset",
        ("--envs=128", "--steps=16", "--updates=4", "--items=20", "--spaces=40"),
        OURSELVES,
        ("jumanji_loop.py", "--envs=128", "--steps=16", "--updates=4", "--items=20", "--spaces=40"),
        1.5,
        "ours_packing.py",
    ),
    "language_generation": Line(
        "627,360 parameters, 64 prompts × 20 new tokens: tokens per second",
        ("generation", "--updates", "20"),
        "trl",
        ("trl_ppo.py", "generation", "--updates", "5"),
        2.0,
        "ours_language.py",
    ),
    "language_ppo": Line(
        "627,360 parameters, 64 × 20 tokens, PPO with 4 optimizer steps: iterations per second",
        ("ppo", "--updates", "5"),
        "trl",
        ("trl_ppo.py", "ppo", "--updates", "3"),
        2.0,
        "ours_language.py",
    ),
    "smollm2_generation": Line(
        "SmolLM2-135M, 16 prompts of 16 × 64 new tokens: tokens per second",
        ("smollm2_generation", "--updates", "1"),
        "trl",
        ("torch_smollm2.py", "generation", "--updates", "1"),
        1.2,
        "ours_language.py",
        ("ours_language.py", "write"),
    ),
    "smollm2_lora": Line(
        "SmolLM2-135M, LoRA rank 16, 8 × 64 tokens: updates per second",
        ("smollm2_lora", "--updates", "3"),
        "trl",
        ("torch_smollm2.py", "lora", "--updates", "3"),
        1.2,
        "ours_language.py",
        ("ours_language.py", "write"),
    ),
    "envpool": Line(
        "EnvPool CartPole, 1,024 envs, rollouts kept; the rival's loop keeps nothing",
        ("--envs", "1024", "--updates", "20", "--groups", "2"),
        "envpool",
        ("envpool_loop.py", "--envs", "1024", "--updates", "20"),
        0.7,
        "ours_pools.py",
    ),
}


def start(command: list[str]) -> subprocess.Popen:
    """A benchmarked program that waits for its turn."""
    return subprocess.Popen(
        [*command, "--serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def ask(program: subprocess.Popen, line: str) -> dict[str, Any]:
    """One line to the program, one answer."""
    assert program.stdin and program.stdout
    program.stdin.write(line + "\n")
    program.stdin.flush()
    answer = program.stdout.readline()
    if not answer:
        raise SystemExit(f"{' '.join(map(str, program.args))} ended without an answer")
    return json.loads(answer)


def finish(program: subprocess.Popen) -> None:
    """Ends the program."""
    assert program.stdin
    program.stdin.write("quit\n")
    program.stdin.close()
    program.wait()


def side_by_side(line: Line, repeat: int) -> dict[str, Any]:
    """Speeds of both, in turns, and the median of the ratios of neighbours."""
    # A rival that takes our net runs under our Python.
    python = sys.executable if line.peer == OURSELVES else str(venvs.ensure(line.peer))
    script, *theirs = line.theirs
    if line.before:
        first, *rest = line.before
        subprocess.run([sys.executable, str(HERE / first), *rest], check=True)
    programs = [
        start([sys.executable, str(HERE / line.script), *line.ours]),
        start([python, str(HERE / "peers" / script), *theirs]),
    ]
    for program in programs:  # one after the other: compiling disturbs
        ask(program, "ready")
    speeds: list[list[float]] = [[], []]
    for _ in range(repeat):
        answers = [ask(program, "run") for program in programs]
        refuse_disagreement(line, answers)
        for place, answer in enumerate(answers):
            speeds[place].append(answer["steps_per_second"])
    for program in programs:
        finish(program)
    ours, rival = map(statistics.median, speeds)
    ratios = [ours / theirs for ours, theirs in zip(*speeds, strict=True)]
    ratio = statistics.median(ratios)
    return {
        "line": line.name,
        "peer": line.peer,
        "ours": ours,
        "theirs": rival,
        "ratio": ratio,
        "ratios": ratios,
        "at_least": line.at_least,
        "own_speed_at_least": line.own_speed,
        "reached": ratio >= line.at_least and ours >= line.own_speed,
    }


def refuse_disagreement(line: Line, answers: list[dict[str, Any]]) -> None:
    """Speeds are compared only where both found the same values; not every line has any."""
    ours, theirs = (answer.get("values", []) for answer in answers)
    if len(ours) != len(theirs) or any(
        abs(a - b) > AGREEMENT * abs(b) for a, b in zip(ours, theirs, strict=True)
    ):
        raise SystemExit(f"{line.name}: the values differ: {ours} and {theirs}")


def trading_matrix(repeat: int) -> dict[str, Any]:
    """Bars per second of a fixed policy over 1,000 assets of 1,000 bars."""
    program = start([sys.executable, str(HERE / "trading_env.py"), "--matrix"])
    ask(program, "ready")
    speeds = [ask(program, "run")["steps_per_second"] for _ in range(2 * repeat)]
    finish(program)
    found = statistics.median(speeds)
    return {
        "line": "a fixed policy over 1,000 × 1,000 prices, bars per second",
        "ours": found,
        "at_least": 20e6,
        "reached": found >= 20e6,
    }


def double_buffering(repeat: int) -> dict[str, Any]:
    """Two groups against one, on an environment of 1 ms per step in two worker processes."""
    sizes = ("--slow", "--envs", "4", "--steps", "64", "--updates", "5", "--hidden", "512")
    programs = [
        start([sys.executable, str(HERE / "ours_pools.py"), *sizes, "--groups", groups])
        for groups in ("2", "1")
    ]
    for program in programs:
        ask(program, "ready")
    speeds = [
        [ask(program, "run")["steps_per_second"] for program in programs] for _ in range(repeat)
    ]
    for program in programs:
        finish(program)
    double, single = (statistics.median(column) for column in zip(*speeds, strict=True))
    ratio = statistics.median(two / one for two, one in speeds)
    return {
        "line": "double against single buffering, 4 envs of 1 ms in two processes, a 512-512 net",
        "ours": double,
        "single": single,
        "ratio": ratio,
        "at_least": 1.0,
        "reached": ratio > 1.0,
    }


def language_memory() -> dict[str, Any]:
    """Memory of policy, reference, critic and reward model with LoRA over SmolLM2, during PPO."""
    script = str(HERE / "ours_language.py")
    subprocess.run([sys.executable, script, "write"], check=True)
    run = subprocess.run(
        [sys.executable, script, "memory"], capture_output=True, text=True, check=True
    )
    found = json.loads(run.stdout.splitlines()[-1])
    return {
        "line": "memory of four models with LoRA over SmolLM2, relative to the base's",
        "ours": found,
        "ratio": found["ratio"],
        "at_most": 1.5,
        "reached": found["ratio"] <= 1.5,
    }


def trading_growth() -> dict[str, Any]:
    """Cost of an environment step against rows of prices and number of environments."""
    run = subprocess.run(
        [sys.executable, str(HERE / "trading_env.py"), "--growth"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {
        "line": "trading env alone, cost against rows and environments",
        "ours": [json.loads(row) for row in run.stdout.splitlines()],
    }


def solve(repeat: int) -> dict[str, Any]:
    """Seconds from the command to a solved CartPole, tracked, against SB3's script of 100k steps."""
    python = str(venvs.ensure("sb3"))
    ours: list[dict[str, float]] = []
    theirs: dict[str, list[float]] = {"default": [], "zoo": []}
    with tempfile.TemporaryDirectory() as directory:
        for _ in range(repeat + 1):  # the first fills the compilation cache
            ours.append(time_to_solve(directory))
    for _ in range(max(1, repeat // 2)):
        run = subprocess.run(
            [python, str(HERE / "peers" / "sb3_ppo.py"), "--solve", "--repeat", "1"],
            capture_output=True,
            text=True,
            check=True,
        )
        for name, answer in json.loads(run.stdout.splitlines()[-1]).items():
            theirs[name].append(answer["seconds_to_learnt"])
    warm = statistics.median(each["solved"] for each in ours[1:])
    whole = statistics.median(each["whole"] for each in ours[1:])
    rival = {name: statistics.median(seconds) for name, seconds in theirs.items()}
    return {
        "line": "seconds from the command to CartPole solved, tracked",
        "ours_to_solved": warm,
        "ours_whole_command": whole,
        "ours_cold": ours[0]["solved"],
        "theirs": rival,
        "ratio": {name: whole / seconds for name, seconds in rival.items()},
        "at_most": 0.5,
        "reached": all(whole / seconds <= 0.5 for seconds in rival.values()),
    }


def time_to_solve(directory: str) -> dict[str, float]:
    """One `proxima experiment` of one trial: until its metrics show it solved, and until it ends."""
    started_at, started = time.time(), time.perf_counter()
    run = subprocess.run(
        [
            str(Path(sys.executable).parent / "proxima"), "experiment", "--scenario", "cartpole",
            "--trials", "1", "--json",
        ],
        cwd=directory, capture_output=True, text=True, check=True,
    )  # fmt: skip
    whole = time.perf_counter() - started
    summary = json.loads(run.stdout)
    mean = summary["trials"][0]["evaluation"]["return_mean"]
    if mean < 475:
        raise SystemExit(f"CartPole was not solved: {mean}")
    metrics = Path(directory) / summary["paths"]["run"] / "trial_0" / "metrics.jsonl"
    return {"whole": whole, "solved": metrics.stat().st_mtime - started_at}


def help_seconds(repeat: int) -> dict[str, Any]:
    """Seconds that `proxima --help` takes."""
    command = [str(Path(sys.executable).parent / "proxima"), "--help"]
    seconds = []
    for _ in range(repeat + 1):
        started = time.perf_counter()
        subprocess.run(command, capture_output=True, check=True)
        seconds.append(time.perf_counter() - started)
    found = statistics.median(seconds[1:])
    return {
        "line": "proxima --help, seconds",
        "ours": found,
        "at_most": 0.5,
        "reached": found < 0.5,
    }


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    import jax

    model = "unknown"
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [row for row in cpuinfo.read_text().splitlines() if row.startswith("model name")]
        model = names[0].split(":", 1)[1].strip() if names else model
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=HERE,
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "jax": jax.__version__,
        "commit": commit.stdout.strip(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def earlier(target: Path) -> list[dict[str, Any]]:
    """The lines that were measured of this commit before, today."""
    return json.loads(target.read_text())["results"] if target.exists() else []


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    """Whether both are the same line of the table."""
    return [first["line"], first.get("peer")] == [second["line"], second.get("peer")]


def main() -> None:
    """Measure what the command line asks for, print it, and write it down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    others = ("trading_matrix", "trading_growth", "double_buffering", "language_memory")
    everything = [*LINES, *others, "solve", "help"]
    parser.add_argument("lines", nargs="*", help=f"some of: {', '.join(everything)}")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--no-write", action="store_true", help="print only")
    options = parser.parse_args()
    results = []
    for name in options.lines or everything:
        if name == "solve":
            result = solve(options.repeat)
        elif name == "trading_matrix":
            result = trading_matrix(options.repeat)
        elif name == "trading_growth":
            result = trading_growth()
        elif name == "double_buffering":
            result = double_buffering(options.repeat)
        elif name == "language_memory":
            result = language_memory()
        elif name == "help":
            result = help_seconds(options.repeat)
        else:
            result = side_by_side(LINES[name], options.repeat)
        print(json.dumps(result), flush=True)
        results.append(result)
    if not options.no_write:
        about = machine()
        target = HERE / "results" / f"{about['date'][:10]}-{about['commit']}.json"
        target.parent.mkdir(exist_ok=True)
        kept = [each for each in earlier(target) if not any(same(each, new) for new in results)]
        content = {"machine": about, "results": kept + results}
        target.write_text(json.dumps(content, indent=2) + "\n")
        print(target.relative_to(HERE.parent))


if __name__ == "__main__":
    main()
