"""Ours and the rival take turns: both are started, warmed up, and asked again and again.

program ◄── ready, run, run, … quit        one line in, one line of JSON out
"""

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from lines import OURSELVES, Line

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "peers"))
import venvs  # noqa: E402

AGREEMENT = 1e-5  # of values relative to each other: ours are float32


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
