"""Host environments on Ray actors, with and without a policy lag: environment steps per second of a training.

    python benchmarks/actors.py --envs 8 --steps 32 --updates 16

The environment waits a millisecond per step (`slow_env.py`). PPO learns from every rollout; compiling and the
start of processes come before the clock. Settings take turns, and each one's best of the repetitions counts.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import proxima
from proxima.domains.control.domain import build
from proxima.train.devices import prepare_host, use_compilation_cache

SETTINGS = {
    "in the trainer": {},
    "2 workers": {"env.workers": 2},
    "2 actors": {"env.actors": 2},
    "2 actors, 2 groups": {"env.actors": 2, "env.groups": 2},
}
ON = np.ones(1, bool)


def trained(options: argparse.Namespace, settings: dict[str, int], lag: int) -> float:
    """Environment steps per second of some updates."""
    scenario = proxima.load(
        "cartpole_host",
        {
            "trials": 1,
            "env.name": "slow_env:Slow-v0",
            "env.max_steps_per_episode": None,
            "env.num_envs": options.envs,
            "algorithm.batch_size": options.envs * options.steps,
            "algorithm.minibatch_size": options.envs * options.steps // 4,
            "algorithm.epochs_per_update": options.epochs,
            "network.hidden": [options.hidden, options.hidden],
            "training.policy_lag": lag,
            **settings,
        },
    )
    program = build(scenario).program
    try:
        states = program.prepare(program.init([0]), 4)
        states, _ = program.chunk(states, ON, 1)
        start = time.perf_counter()
        _, sums = program.chunk(states, ON, options.updates)
        seconds = time.perf_counter() - start
    finally:
        program.close()
    if options.parts:
        parts = (f"{name} {sums[name][0]:.2f} s" for name in ("time/env", "time/act", "time/learn"))
        print(f"    {settings} lag {lag}: {', '.join(parts)}", file=sys.stderr)
    return options.updates * options.envs * options.steps / seconds


def main() -> None:
    """Prints a line for each setting: steps per second with the lag and without."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--envs", type=int, default=8, help="environments")
    parser.add_argument("--steps", type=int, default=32, help="steps of each per update")
    parser.add_argument("--updates", type=int, default=16, help="updates of a chunk")
    parser.add_argument("--epochs", type=int, default=4, help="passes over a batch")
    parser.add_argument("--hidden", type=int, default=256, help="width of both layers")
    parser.add_argument(
        "--repeat", type=int, default=3, help="repetitions, of which the best counts"
    )
    parser.add_argument("--parts", action="store_true", help="also where the time went")
    options = parser.parse_args()
    prepare_host(1, 1)
    use_compilation_cache()
    best = {name: [0.0, 0.0] for name in SETTINGS}
    for _ in range(options.repeat):
        for name, settings in SETTINGS.items():
            for lag in (0, 1):
                best[name][lag] = max(best[name][lag], trained(options, settings, lag))
    print("| environments | steps/s | with policy_lag: 1 | gain |\n| --- | --- | --- | --- |")
    for name, (without, lagging) in best.items():
        print(f"| {name} | {without:,.0f} | {lagging:,.0f} | {lagging / without:.2f} × |")


if __name__ == "__main__":
    main()
