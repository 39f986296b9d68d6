"""What `proxima live` costs on many long runs: 50 runs × 256 trials × 10,000 rows, written to a directory.

    python benchmarks/live.py [--runs 50] [--trials 256] [--rows 10000]

All runs but the first are hard links to the first one's metrics, so the disk holds one of them.
"""

import argparse
import json
import math
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from proxima.run.standing import NAME, Standing

COMMAND = [sys.executable, "-c", "from proxima.cli import main; main()"]
IDLE_SECONDS = 10


def write_runs(output: Path, runs: int, trials: int, rows: int) -> None:
    """Runs that look finished, with two training metrics and an evaluation every 20 rows."""
    first = output / "many" / "runs" / "run_000"
    for run in range(runs):
        root = output / "many" / "runs" / f"run_{run:03d}"
        root.mkdir(parents=True)
        info = {"status": "finished", "started": f"2026-01-01T00:{run:02d}", "trials": trials}
        (root / "run.json").write_text(json.dumps(info))
        standing = Standing("", 1, 1, "steps", rows * 100, 1.0, 60.0, "eval/return_mean", 107.0)
        (root / NAME).write_text(json.dumps(standing._asdict()))
        (root / "scenario.yaml").write_text(f"training: {{max_steps: {rows * 100}}}\n")
        for trial in range(trials):
            (root / f"trial_{trial}").mkdir()
            path = root / f"trial_{trial}" / "metrics.jsonl"
            if run:
                os.link(first / f"trial_{trial}" / "metrics.jsonl", path)
            else:
                path.write_text("".join(row(trial, i) for i in range(rows)))


def row(trial: int, index: int) -> str:
    value = 100 * math.tanh(index / 3000) + trial % 7
    content = {"step": 100 * (index + 1), "loss/total": 1 / (index + 1), "episode/return": value}
    if index % 20 == 19:
        content["eval/return_mean"] = value + 1
    return json.dumps(content) + "\n"


def cpu_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(process: int) -> float:
    text = Path(f"/proc/{process}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", text)[1]) / 1024


def measure(output: Path) -> None:
    server = subprocess.Popen(
        [*COMMAND, "live", "--port", "0", "--output", str(output)], stdout=-1, text=True
    )
    try:
        address, token = re.search(r"(http://\S+/)\?token=(\S+)", server.stdout.readline()).groups()

        def timed(path: str) -> tuple[float, int]:
            request = urllib.request.Request(address + path, headers={"X-Proxima-Token": token})
            began = time.perf_counter()
            with urllib.request.urlopen(request) as answer:
                content = answer.read()
            read = json.loads(content).get("read")
            print(f"{read[0]} of {read[1]} files read" if read else "", end="  ")
            return time.perf_counter() - began, len(content)

        time.sleep(2)
        print(f"at rest: {memory_mb(server.pid):.0f} MB")
        for what, path in (
            ("list, first", "api/runs"),
            ("list, again", "api/runs"),
            ("a run, first", "api/run?id=many/runs/run_000"),
            ("the same, all read", "api/run?id=many/runs/run_000"),
            ("the same, again", "api/run?id=many/runs/run_000"),
            ("another metric", "api/run?id=many/runs/run_000&metric=loss/total"),
        ):
            seconds, size = timed(path)
            print(f"{what}: {seconds:.2f} s, {size / 1000:.0f} kB, {memory_mb(server.pid):.0f} MB")
        events = urllib.request.Request(
            address + "api/events?id=many/runs/run_000", headers={"X-Proxima-Token": token}
        )
        with urllib.request.urlopen(events) as stream:
            stream.readline()
            time.sleep(3)
            before = cpu_seconds(server.pid)
            time.sleep(IDLE_SECONDS)
            share = (cpu_seconds(server.pid) - before) / IDLE_SECONDS
            print(f"a page open, nothing new: {100 * share:.1f} % of a core")
        time.sleep(3)
        before = cpu_seconds(server.pid)
        time.sleep(IDLE_SECONDS)
        share = (cpu_seconds(server.pid) - before) / IDLE_SECONDS
        print(f"no page open: {100 * share:.1f} % of a core")
    finally:
        server.terminate()
        server.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, usual in (("runs", 50), ("trials", 256), ("rows", 10_000)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_runs(Path(folder), given.runs, given.trials, given.rows)
        size = sum(path.stat().st_size for path in Path(folder).glob("*/*/run_000/*/*"))
        print(
            f"{given.runs} runs × {given.trials} trials × {given.rows:,} rows, {size / 1e6:.0f} MB a run"
        )
        measure(Path(folder))
        print(f"writing it took {resource.getrusage(resource.RUSAGE_SELF).ru_utime:.0f} s")


if __name__ == "__main__":
    main()
