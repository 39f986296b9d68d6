"""Everything that Proxima reads, damaged at random: refused in words or read right, and soon.

    python fuzz/run.py                                    every target, minutes
    python fuzz/run.py --cases 100                        fewer cases of each
    python fuzz/run.py --only "prices: CSV" --seed 1234   one case again, with its traceback

Cases run in processes of their own: one that hangs, or takes its process with it, is named like one that
raises.
"""

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests" / "support")]
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a name that nobody has is not looked for

CASES = 450
LONGEST = 10.0  # seconds that a case may take
PREPARING = 120.0  # seconds for a valid input
FOUND = "found"
Ended = tuple[str, str, float]  # one of these, the words of what was found, and seconds


def work(pipe: Connection) -> None:
    """A worker: plays the cases it is sent, one after the other, and says how each ended."""
    from targets import READ, TARGETS, play

    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what libraries say when they fail
    made: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        for number in count():
            name, seed = pipe.recv()
            folder = Path(place) / str(number)
            try:
                if seed is None:
                    valid = Path(place) / f"valid {name}".replace("/", "_")
                    valid.mkdir(exist_ok=True)
                    made[name] = TARGETS[name].make(valid)
                    pipe.send((READ, "", 0.0))
                    continue
                folder.mkdir()
                began = time.monotonic()
                outcome = play(name, seed, made[name], folder)
                pipe.send((outcome, "", time.monotonic() - began))
            except BaseException as failure:  # a library in Rust panics as one
                where = traceback.extract_tb(failure.__traceback__)[-1]
                place_of = f"{Path(where.filename).name}:{where.lineno}"
                words = f"{type(failure).__name__}: {str(failure)[:200]} ({place_of})"
                pipe.send((FOUND, words, 0.0))


class Worker:
    """A process that plays cases, and another one when it is lost."""

    def __init__(self) -> None:
        self._process: Any = None
        self._ready: set[str] = set()

    def play(self, name: str, seed: int) -> Ended:
        """How the case ended."""
        if self._process is None or not self._process.is_alive():
            self._start()
        if name not in self._ready:
            outcome, words, _ = self._ask(name, None, PREPARING)
            if outcome == FOUND:
                return FOUND, f"no valid input: {words}", 0.0
            self._ready.add(name)
        return self._ask(name, seed, LONGEST)

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=work, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self._ready = set()

    def _ask(self, name: str, seed: int | None, seconds: float) -> Ended:
        try:
            self._pipe.send((name, seed))
            if self._pipe.poll(seconds):
                answer: Ended = self._pipe.recv()
                return answer
            words = f"took longer than {seconds:.0f} s"
        except (EOFError, OSError):
            self._process.join(10)
            words = f"the process ended ({self._process.exitcode})"
        self.close()
        return FOUND, words, 0.0

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()


def again(name: str, seed: int) -> None:
    """One case in this process, with its traceback."""
    from targets import TARGETS, play

    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        (Path(place) / "valid").mkdir()
        (Path(place) / "case").mkdir()
        valid = TARGETS[name].make(Path(place) / "valid")
        print(play(name, seed, valid, Path(place) / "case"))


def main() -> int:
    from targets import READ, REFUSED, TARGETS

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--only", action="append", choices=list(TARGETS), help="a target; repeatable"
    )
    parser.add_argument("--cases", type=int, default=CASES, help="of each target")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="one case of one target, in this process")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    names = options.only or list(TARGETS)
    if options.seed is not None:
        again(names[0], options.seed)
        return 0
    cases = [(n, s) for n in names for s in range(options.first, options.first + options.cases)]
    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    queue, lock, began = iter(cases), Lock(), time.monotonic()
    slowest = dict.fromkeys(names, 0.0)

    def keep_playing(worker: Worker) -> None:
        while True:
            with lock:
                case = next(queue, None)
            if case is None:
                worker.close()
                return
            name, seed = case
            outcome, words, spent = worker.play(name, seed)
            with lock:
                slowest[name] = max(slowest[name], spent)
                counts[name][outcome] += 1
                if outcome == FOUND:
                    print(
                        f'{words}\n    python fuzz/run.py --only "{name}" --seed {seed}', flush=True
                    )

    with ThreadPoolExecutor(options.workers) as pool:
        list(pool.map(keep_playing, [Worker() for _ in range(options.workers)]))
    print(f"\n{'target':<24}{'cases':>8}{READ:>8}{REFUSED:>9}{FOUND:>8}{'slowest':>10}")
    for name, kinds in counts.items():
        numbers = f"{kinds.total():>8}{kinds[READ]:>8}{kinds[REFUSED]:>9}{kinds[FOUND]:>8}"
        print(f"{name:<24}{numbers}{slowest[name]:>8.2f} s")
        if not kinds[READ]:
            print(f"{name}: nothing was read, so that nothing was checked")
            counts[name][FOUND] += 1
    total = sum((kinds for kinds in counts.values()), Counter())
    seconds = time.monotonic() - began
    numbers = f"{total.total():>8}{total[READ]:>8}{total[REFUSED]:>9}{total[FOUND]:>8}"
    print(f"{'all':<24}{numbers}  in {seconds:.0f} s")
    return 1 if total[FOUND] else 0


if __name__ == "__main__":
    sys.exit(main())
