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
from proxima.domains.control.domain import build
from proxima.domains.control.pools import make_pools
from proxima.train.devices import prepare_host, use_compilation_cache
from proxima.train.host.act import chooser
from proxima.train.host.collect import HostCollector

SLOW = {"env.name": "slow_env:Slow-v0", "env.backend": "gymnasium", "env.workers": 2}


def prepare(options) -> protocol.Run:
    """A warm collector, each run of new seeds."""
    envs, steps = options.envs, options.steps
    scenario = proxima.load(
        "cartpole_envpool",
        {
            "trials": 1,
            "env.num_envs": envs,
            "env.groups": options.groups,
            **(SLOW if options.slow else {}),
            "algorithm.batch_size": envs * steps,
            "algorithm.minibatch_size": envs * steps,
            "network.hidden": [options.hidden, options.hidden],
        },
    )
    prepare_host(1, 1)
    use_compilation_cache()
    built = build(scenario)
    built.program.close()
    agent = built.agent
    learners = jax.jit(jax.vmap(agent.init))(jax.random.split(jax.random.key(0), 1))
    explore = chooser(agent, agent.policy(learners), greedy=False)
    collector = HostCollector(agent, make_pools(scenario.env, print).train(envs), 1, steps)

    @jax.jit
    def draw(key: jax.Array):
        return agent.noise(None, key, (steps, 1, envs))

    runs = 0

    def run() -> dict[str, float]:
        nonlocal runs
        runs += 1
        collector.reset(envs * runs + np.arange(envs)[None])
        start = time.perf_counter()
        for update in range(options.updates):
            noise = draw(jax.random.key(options.updates * runs + update))
            collector.collect(explore, jax.device_get(noise))
        return protocol.measurement(envs * steps * options.updates, time.perf_counter() - start)

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
