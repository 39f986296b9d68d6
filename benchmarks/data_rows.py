"""How long prices take to load, featurise and split, and how much memory, from 10⁴ to 10⁷ rows.

    python benchmarks/data_rows.py              one line for each size
    python benchmarks/data_rows.py 1000000      this size only

Each size runs in a process of its own, whose largest resident memory is read when it is done. What the
imports take is measured alone, as 0 rows. The prices are made before, in yet another process.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)


def measure(path: Path | None) -> dict[str, float]:
    """Seconds and peak of reading and of preparing one file; without one, the peak of the imports."""
    from proxima.domains.trading.config import DataConfig
    from proxima.domains.trading.data import prepare_source, read_source

    seconds = [0.0, 0.0]
    if path is not None:
        config = DataConfig(path=str(path))
        start = time.perf_counter()
        source = read_source(config, "benchmark")
        read = time.perf_counter()
        prepare_source(source, config)
        seconds = [read - start, time.perf_counter() - read]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # kilobytes on Linux
    return {"read": seconds[0], "prepare": seconds[1], "peak": peak}


def in_process(*arguments: object) -> str:
    """What this file prints when it is started with these arguments."""
    command = [sys.executable, __file__, *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def table(sizes: tuple[int, ...]) -> None:
    """Prints a line for each size as it is measured."""
    print("      rows   read s   prepare s   rows/s        peak MB   bytes a row over the imports")
    imports = json.loads(in_process("--measure", "-"))["peak"]
    print(f"{0:10,} {0.0:8.2f} {0.0:11.2f} {'–':>8} {imports:14,.0f}")
    with tempfile.TemporaryDirectory() as directory:
        for rows in sizes:
            path = Path(directory) / "data" / "raw" / "synthetic" / "benchmark.parquet"
            in_process("--make", rows, directory)
            found = json.loads(in_process("--measure", path))
            rate = rows / (found["read"] + found["prepare"])
            over = (found["peak"] - imports) * 1024**2 / rows
            print(
                f"{rows:10,} {found['read']:8.2f} {found['prepare']:11.2f} {rate:12,.0f}"
                f" {found['peak']:10,.0f} {over:10,.0f}",
                flush=True,
            )


def main() -> None:
    """Measures what the command line names."""
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(None if sys.argv[2] == "-" else Path(sys.argv[2]))))
    elif sys.argv[1:2] == ["--make"]:
        from proxima.domains.trading.config import DataConfig
        from proxima.domains.trading.data import write_synthetic

        config = DataConfig(pattern="mean_reversion", rows=int(sys.argv[2]))
        write_synthetic(config, "benchmark", sys.argv[3])
    else:
        table(tuple(int(text) for text in sys.argv[1:]) or SIZES)


if __name__ == "__main__":
    main()
