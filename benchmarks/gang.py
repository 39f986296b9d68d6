"""What a gang costs and gives on this machine: all-reduce by size, steps per second by layout, learning.

    python benchmarks/gang.py                       all of it, about 15 minutes on two cores
    python benchmarks/gang.py reduce                the all-reduce of two processes, by size
    python benchmarks/gang.py speed [TASK ...]      1 process × 1 device, 1 × 2 and 2 × 1
    python benchmarks/gang.py learning              5 seeds of 2 × 1 against 1 × 2

Every measurement is a process of its own, or two; the load of the machine is printed before and after,
as two processes on two cores are slowed by whoever else is there.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from proxima.cluster.gang import COMMAND, free_address, local_launcher, run_gang

SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
SEEDS = range(5)
COMMON = ("trials=1", "tracking.enabled=false", "evaluation.film=false")
# 64 environments × 128 steps in minibatches that two devices share by 1,024 samples
WIDE = (
    *COMMON,
    "env.num_envs=64",
    "algorithm.batch_size=8192",
    "algorithm.minibatch_size=2048",
    "evaluation.eval_frequency=1000000",
    "evaluation.eval_episodes=8",
    "evaluation.final_episodes=8",
    "convergence.target_reward=null",
)
LANGUAGE = (
    "trials=1",
    "tracking.enabled=false",
    "data.source=file",
    "data.path=texts.parquet",
    "data.prompt_tokens=3",
    "reward_model=null",
    "ppo=null",
    "model.new.layers=2",
    "model.new.width=256",
    "model.new.heads=4",
    "model.new.inner=704",
    "model.new.context=64",
    "model.threads=1",
    "sft.batch_size=32",
    "sft.epochs=1",
    "sft.evaluate_every=1000",
)


class Task(NamedTuple):
    """A training whose speed is measured."""

    scenario: str
    settings: tuple[str, ...]
    metrics: str  # where its rows are, below the trial
    unit: str


TASKS = {
    "cartpole": Task(
        "cartpole",
        (*WIDE, "training.max_steps=819200", "training.updates_per_chunk=5"),
        "metrics.jsonl",
        "steps",
    ),
    "wide_net": Task(
        "cartpole",
        (
            *WIDE,
            "network.hidden=[1024,1024]",
            "training.max_steps=32768",
            "training.updates_per_chunk=1",
        ),
        "metrics.jsonl",
        "steps",
    ),
    "language": Task("movie_critic", LANGUAGE, "sft/metrics.jsonl", "updates"),
}
LAYOUTS = {"1 × 1": (1, 1), "1 × 2": (1, 2), "2 × 1": (2, 1)}  # processes × devices of each


def trained(
    task: Task, settings: Sequence[str], processes: int, devices: int, folder: Path
) -> Path:
    """The trial's directory of one training in this layout."""
    folder.mkdir(parents=True)
    if task.scenario == "movie_critic":
        write_texts(folder)
        settings = (*settings, f"model.mesh.data={processes * devices}")
    words = [word for each in (*task.settings, *settings) for word in ("--set", each)]
    arguments = ["experiment", task.scenario, "--run-id", "bench", *words]
    environment = {"JAX_NUM_CPU_DEVICES": str(devices)}
    if processes > 1:
        launch = local_launcher(arguments, processes, environment, [folder] * processes, quiet=True)
        status = run_gang(launch, processes, restarts=0)
    else:
        command = [sys.executable, "-c", COMMAND, *arguments]
        quiet = {"stdout": subprocess.DEVNULL, "cwd": folder}
        status = subprocess.run(command, env=os.environ | environment, **quiet).returncode
    assert status == 0, f"{task.scenario} in {processes} × {devices} ended with {status}"
    return folder / "logs" / task.scenario / "runs" / "bench" / "trial_0"


def write_texts(folder: Path) -> None:
    """Some lines of words, the same for every layout."""
    import numpy as np
    import polars as pl

    words = np.random.default_rng(0).choice([f"word{n}" for n in range(200)], (640, 12))
    texts = [" ".join(row) + "." for row in words]
    ratings = [float(row[0] < row[1]) for row in words]
    pl.DataFrame({"text": texts, "rating": ratings}).write_parquet(folder / "texts.parquet")


def rows_of(path: Path) -> list[Mapping[str, float]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def speed(names: Sequence[str]) -> None:
    """A table of steps per second: the median over chunks, the first left out."""
    print(f"{'':10} {'unit':8}" + "".join(f"{layout:>12}" for layout in LAYOUTS))
    for name in names:
        task, line = TASKS[name], ""
        for processes, devices in LAYOUTS.values():
            with tempfile.TemporaryDirectory() as directory:
                trial = trained(task, (), processes, devices, Path(directory) / "run")
                rows = [row for row in rows_of(trial / task.metrics) if "time/train" in row][1:]
                rates = [row["time/steps_per_second"] for row in rows]
            line += f"{statistics.median(rates):12,.1f}"
        print(f"{name:10} {task.unit:8}{line}   load {os.getloadavg()[0]:.1f}", flush=True)


def learning() -> None:
    """Final greedy returns of CartPole by layout, and the interval of their paired difference."""
    task = TASKS["cartpole"]
    settings = ("training.max_steps=204800", "evaluation.final_episodes=64")
    returns: dict[str, list[float]] = {"1 × 2": [], "2 × 1": []}
    for seed in SEEDS:
        for layout, values in returns.items():
            with tempfile.TemporaryDirectory() as directory:
                folder = Path(directory) / "run"
                trial = trained(task, (*settings, f"seed={seed}"), *LAYOUTS[layout], folder)
                results = json.loads((trial / "results.json").read_text())
                values.append(results["evaluation"]["return_mean"])
    for layout, values in returns.items():
        mean = statistics.mean(values)
        print(f"{layout}: {mean:.1f}  ({', '.join(f'{value:.1f}' for value in values)})")
    gaps = [b - a for a, b in zip(*returns.values(), strict=True)]
    half = (
        2.776 * statistics.stdev(gaps) / len(gaps) ** 0.5
    )  # Student's t with 4 degrees of freedom
    print(f"2 × 1 less 1 × 2: {statistics.mean(gaps):.1f} ± {half:.1f} (95 %, {len(gaps)} seeds)")


def reduce() -> None:
    """The seconds of an all-reduce of two processes, by size."""
    address = free_address()
    command = [sys.executable, __file__, "--reduce", address]
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": "1"}
    other = subprocess.Popen([*command, "1"], env=environment, stdout=subprocess.DEVNULL)
    said = subprocess.run([*command, "0"], env=environment, capture_output=True, text=True)
    assert other.wait() == said.returncode == 0, said.stderr
    print("\n".join(line for line in said.stdout.splitlines() if not line.startswith("[Gloo]")))


def _reduce(address: str, process: int) -> None:
    """One of the two processes of `reduce`."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import PartitionSpec as P

    from proxima.train.devices import DATA, Layout, ask_for_devices, make_mesh
    from proxima.train.gang import Gang, Member

    member = Member(Gang(process, 2, address))
    ask_for_devices(1, 1)
    mesh = make_mesh(Layout(1, 2))
    print("    floats     median ms     GB/s")
    for size in SIZES:
        array = jax.make_array_from_callback(
            (2, size),
            jax.sharding.NamedSharding(mesh, P(DATA)),
            lambda index, size=size: np.ones((1, size), np.float32),
        )
        add = jax.jit(
            jax.shard_map(
                lambda part: jax.lax.psum(jnp.squeeze(part, 0), DATA),
                mesh=mesh,
                in_specs=P(DATA),
                out_specs=P(),
            )
        )
        jax.block_until_ready(add(array))
        seconds = []
        for _ in range(200 if size < 1_000_000 else 30):
            began = time.perf_counter()
            jax.block_until_ready(add(array))
            seconds.append(time.perf_counter() - began)
        median = statistics.median(seconds)
        print(f"{size:10,} {1e3 * median:13.3f} {4e-9 * size / median:8.2f}")
    member.leave()


def main(arguments: Sequence[str]) -> None:
    """Everything, or what is named."""
    if arguments[:1] == ["--reduce"]:
        return _reduce(arguments[1], int(arguments[2]))
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    what, names = (arguments[0] if arguments else "all"), arguments[1:]
    if what in ("all", "reduce"):
        reduce()
    if what in ("all", "speed"):
        speed(names or list(TASKS))
    if what in ("all", "learning"):
        learning()
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main(sys.argv[1:])
