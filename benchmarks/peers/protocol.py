"""How a benchmarked program talks to the driver, so that runs of rivals can alternate A B A B.

With --serve the program warms up (imports, compiles, runs once) and then answers lines on
standard input:

    ready   {"ready": true}, sent when the warm-up is over, so that nobody's run is timed beside it
    run     one timed run: {"steps_per_second": …, "seconds": …, "environment_steps": …, …}
    quit    the end, as is the end of the input

Without --serve it times --repeat runs and prints the same line for each. Nothing else is written
to standard output.
"""

import argparse
import contextlib
import json
import sys
from collections.abc import Callable
from typing import Any

Run = Callable[[], dict[str, Any]]


def positive(text: str) -> int:
    """A whole number of at least one."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def arguments(description: str, envs: int, updates: int) -> argparse.ArgumentParser:
    """A parser for what every benchmarked program is told."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--envs", type=positive, default=envs, help="environments in parallel")
    parser.add_argument("--steps", type=positive, default=128, help="steps per env and rollout")
    parser.add_argument("--updates", type=positive, default=updates, help="rollouts in a timed run")
    parser.add_argument("--repeat", type=positive, default=3, help="timed runs without --serve")
    parser.add_argument("--serve", action="store_true", help="obey lines on standard input")
    return parser


def measurement(environment_steps: int, seconds: float) -> dict[str, Any]:
    """The answer to one timed run."""
    return {
        "steps_per_second": environment_steps / seconds,
        "seconds": seconds,
        "environment_steps": environment_steps,
    }


def speak(prepare: Callable[[], Run], repeat: int, serve: bool) -> None:
    """Warms up and times runs, as often as asked for; `prepare` returns a run that is warm."""
    answers = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):  # what libraries print is not an answer
        run = prepare()
        for command in map(str.strip, sys.stdin) if serve else ["run"] * repeat:
            if command == "quit":
                return
            if command not in ("run", "ready"):
                raise SystemExit(f"{command!r} is no command: send ready, run or quit")
            answer = run() if command == "run" else {"ready": True}
            print(json.dumps(answer), file=answers, flush=True)
