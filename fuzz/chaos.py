"""Every kind of run, killed at random moments and resumed until done: it ends as if nothing had happened.

    python fuzz/chaos.py                         50 kills over all kinds, minutes
    python fuzz/chaos.py --only td3 --seed 7     one kind, with other moments

A process is killed at any moment of its life: while it starts, trains, saves, finishes, or resumes from the
kill before. Most are killed outright, some are asked to end. Weights, results and metrics are compared, bit
for bit, with those of a run that nobody disturbed. The first runs compile; later ones find their programs in
the cache.
"""

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
SUPPORT = HERE.parent / "tests" / "support"
sys.path[:0] = [str(HERE), str(SUPPORT)]
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"  # compiles quickly; in all of them alike
SIGNALS = (signal.SIGKILL,) * 8 + (signal.SIGTERM, signal.SIGINT)
KILLS = 50
MOST = 4  # kills of one run, after which it may end
FINISHING = 0.3  # share of the kills that wait until the run finishes


class Story(NamedTuple):
    """What became of a run that was killed and resumed."""

    kind: str
    kills: list[str]
    problem: str
    seconds: float


def start(arguments: list[str], folder: Path) -> subprocess.Popen[str]:
    from tiny import command

    path = os.pathsep.join([str(SUPPORT), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        command(*arguments),
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ended(process: subprocess.Popen[str], seconds: float) -> str:
    """What it said when it had ended; one that does not end is an error."""
    try:
        return process.communicate(timeout=seconds)[1]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise AssertionError(f"did not end within {seconds:.0f} s") from None


def left_behind(process: subprocess.Popen[str]) -> bool:
    """Whether processes that it started outlive it by ten seconds; they are ended then."""
    for _ in range(100):
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.1)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return True


def whole(kind: Any, folder: Path) -> tuple[Path, float]:
    """A run that nobody disturbs, and how long a process of that kind lives."""
    from resume import latest

    kind.prepare(folder)
    run_through(kind.case.command(), folder)  # compiles
    began = time.monotonic()
    run_through(kind.case.command(), folder)
    return latest(folder, kind.case), time.monotonic() - began


def run_through(arguments: list[str], folder: Path) -> None:
    process = start(arguments, folder)
    words = ended(process, 400)
    assert process.returncode == 0, words[-2000:]


def kill_once(
    arguments: list[str], folder: Path, run: Path, life: float, chance: random.Random
) -> str:
    """A process killed at a random moment; the signal and the moment, or nothing if it ended before."""
    number, finishing = chance.choice(SIGNALS), chance.random() < FINISHING
    process, began = start(arguments, folder), time.monotonic()
    moment = chance.uniform(0.0, 0.9 * life)
    if finishing:
        while process.poll() is None and not is_finishing(run):
            time.sleep(0.002)
        moment = time.monotonic() - began + chance.uniform(0.0, life / 20)
    while process.poll() is None and time.monotonic() < began + moment:
        time.sleep(0.002)
    if process.poll() is not None:
        words = ended(process, 60)
        assert process.returncode == 0, words[-2000:]
        return ""
    process.send_signal(number)
    words = ended(process, 90)
    # interrupted before any of our code was there to hear it, Python says so in its own way
    assert "Traceback" not in words or "proxima" not in words, words[-2000:]
    assert not left_behind(process), "left processes behind"
    if process.returncode == 0:  # it was so far that it could end
        return ""
    return (
        f"{number.name.removeprefix('SIG')} at {moment:.1f} s{' (finishing)' if finishing else ''}"
    )


def is_finishing(run: Path) -> bool:
    with contextlib.suppress(OSError):
        return '"finishing"' in (run / "run.json").read_text()
    return False


def tell(
    name: str, kind: Any, reference: Path, life: float, folder: Path, chance: random.Random
) -> Story:
    """A run of a kind, killed some times, resumed and compared."""
    from resume import check_same

    began, kills = time.monotonic(), list[str]()
    kind.prepare(folder)
    link = folder / "logs" / kind.case.name / "latest"
    try:
        while len(kills) < MOST:
            has_begun = (link / "run.json").exists()
            arguments = ["resume", kind.case.name] if has_begun else kind.case.command()
            kill = kill_once(arguments, folder, link, life, chance)
            if not kill:
                break
            kills.append(kill)
        else:
            has_begun = (link / "run.json").exists()
            run_through(["resume", kind.case.name] if has_begun else kind.case.command(), folder)
        check_same(link.resolve(), reference)
    except AssertionError as failure:
        return Story(name, kills, str(failure)[:500] or "differs", time.monotonic() - began)
    return Story(name, kills, "", time.monotonic() - began)


def main() -> int:
    from resume import KINDS

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=list(KINDS), help="a kind; repeatable")
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    names = options.only or list(KINDS)
    stories: list[Story] = []
    with tempfile.TemporaryDirectory() as place:
        references: dict[str, tuple[Path, float]] = {}
        for turn in range(1000):
            name = names[turn % len(names)]
            chance = random.Random(f"{name} {options.seed} {turn}")
            if name not in references:
                folder = Path(place) / f"whole_{turn}"
                folder.mkdir()
                references[name] = whole(KINDS[name], folder)
            folder = Path(place) / f"killed_{turn}"
            folder.mkdir()
            stories.append(tell(name, KINDS[name], *references[name], folder, chance))
            done = sum(len(story.kills) for story in stories)
            told = ", ".join(stories[-1].kills) or "ended before it was killed"
            print(f"{done:>3} kills  {name}: {told} {stories[-1].problem}", flush=True)
            if done >= options.kills and turn + 1 >= len(names):
                break
    print(f"\n{'kind':<20}{'runs':>6}{'kills':>7}{'same bits':>11}{'seconds':>9}")
    for name in names:
        of_kind = [story for story in stories if story.kind == name]
        kills, same = sum(len(s.kills) for s in of_kind), sum(not s.problem for s in of_kind)
        seconds = sum(story.seconds for story in of_kind)
        print(f"{name:<20}{len(of_kind):>6}{kills:>7}{same:>11}{seconds:>9.0f}")
    wrong = [story for story in stories if story.problem]
    kills = sum(len(story.kills) for story in stories)
    same = len(stories) - len(wrong)
    print(
        f"{'all':<20}{len(stories):>6}{kills:>7}{same:>11}{sum(s.seconds for s in stories):>9.0f}"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
