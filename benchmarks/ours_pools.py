"""Proxima's host environments: environment steps per second of its collector, learning left out.

    python benchmarks/ours_pools.py --envs 1024 --updates 20 --groups 2              EnvPool's CartPole-v1
    python benchmarks/ours_pools.py --slow --envs 16 --steps 32 --updates 5 --groups 2    1 ms per step

Rollouts are collected by the code that a scenario runs: policy, log-probabilities, both observations,
endings and masks of every step, into arrays that an update could learn from. `--slow` is a Gymnasium
environment of CartPole's size that waits a millisecond per step, in two worker processes.
"""

import sys
import time
from pathlib import Path

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).parent / "peers"))
import protocol

import proxima
from proxima.build import build
from proxima.train.devices import prepare_host, use_compilation_cache

SLOW = {"env.name": "slow_env:Slow-v0", "env.backend": "gymnasium", "env.workers": 2}


def prepare(options) -> protocol.Run:
    """A warm collector, each run of new seeds."""
    batch = options.envs * options.steps
    scenario = proxima.load(
        "cartpole_envpool",
        {
            "trials": 1,
            "env.num_envs": options.envs,
            "env.groups": options.groups,
            **(SLOW if options.slow else {}),
            "algorithm.batch_size": batch,
            "algorithm.minibatch_size": batch,
            "algorithm.epochs_per_update": 1,
            "network.hidden": [options.hidden, options.hidden],
        },
    )
    prepare_host(1, 1)
    use_compilation_cache()
    program = build(scenario).program
    runs = 0

    def run() -> dict[str, float]:
        nonlocal runs
        runs += 1
        states = program.prepare(program.init([1_000 * runs]), 1)
        start = time.perf_counter()
        _, sums = jax.block_until_ready(program.chunk(states, np.ones(1, bool), options.updates))
        whole = time.perf_counter() - start
        return protocol.measurement(batch * options.updates, whole - float(sums["time/learn"][0]))

    run()
    return run


def main() -> None:
    """Times what the command line asks for."""
    parser = protocol.arguments("Proxima's host environments", envs=1024, updates=20)
    parser.add_argument("--groups", type=protocol.positive, default=1, help="env.groups")
    parser.add_argument("--hidden", type=protocol.positive, default=64, help="width of both layers")
    parser.add_argument("--slow", action="store_true", help="an environment of 1 ms per step")
    options = parser.parse_args()
    protocol.speak(lambda: prepare(options), options.repeat, options.serve)


if __name__ == "__main__":
    main()
