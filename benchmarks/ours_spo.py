"""SPO's search on its own: search steps per second, and how they scale in particles, depth and environments.

    python benchmarks/ours_spo.py                                   CartPole, the whole table
    python benchmarks/ours_spo.py --scenario binpack_spo            on another compiled environment
    python benchmarks/ours_spo.py --particles 16 --depth 4 --envs 16 --steps 200      one setting

A search step is one step of one particle: the environment stepped, one pass of actor and critic, its share
of the resampling and of the read-out. Environments are stepped along with the actions found, and reset when
they end, as in training; nothing is learnt. One core: the search of one trial is one device's.
"""

import argparse
import json
import statistics
import time

import jax

import proxima
from proxima.core.seeds import first_keys, split_streams
from proxima.domains import reinforcement
from proxima.domains.control import gymnax
from proxima.domains.packing import jumanji
from proxima.train.compiled.collect import Collector
from proxima.train.devices import prepare_host, use_compilation_cache

PARTICLES, DEPTHS, ENVS = (4, 8, 16, 32, 64), (1, 2, 4, 8), (1, 4, 16, 64)
USUAL = (16, 4, 16)  # particles, depth and environments where one of them is varied


def measure(name: str, sizes: tuple[int, int, int], steps: int, repeat: int) -> dict[str, float]:
    """Search steps per second of rollouts with these sizes, the median of `repeat`."""
    particles, depth, envs = sizes
    scenario = proxima.load(
        name,
        {
            "trials": 1,
            "env.num_envs": envs,
            "algorithm.particles": particles,
            "algorithm.depth": depth,
            "algorithm.buffer_size": 65_536,
        },
    )
    own = scenario.env.backend == "jumanji"
    env = jumanji.make(scenario.env, scenario.seed) if own else gymnax.make(scenario.env)
    agent = reinforcement.compiled(scenario, env).agent
    collector = Collector(env, envs, steps)
    keys = first_keys(jax.numpy.uint32(0), envs)
    learner = jax.jit(lambda agent, key: agent.init(key))(agent, keys.weights)
    actors = jax.jit(lambda collector, keys: collector.init(keys))(collector, keys.resets)
    collect = jax.jit(lambda collector, *given: collector(*given)[0])
    streams, seconds = keys.streams, []
    for _ in range(repeat + 1):  # the first compiles
        streams, use = split_streams(streams)
        start = time.perf_counter()
        actors = jax.block_until_ready(collect(collector, agent, learner, actors, use))
        seconds.append(time.perf_counter() - start)
    taken = statistics.median(seconds[1:])
    return {
        "particles": particles,
        "depth": depth,
        "envs": envs,
        "search_steps_per_second": round(particles * depth * envs * steps / taken),
        "steps_per_second": round(envs * steps / taken),
    }


def main() -> None:
    """Times what the command line asks for, one JSON line each."""
    parser = argparse.ArgumentParser(description="SPO's search")
    parser.add_argument("--scenario", default="cartpole_spo")
    parser.add_argument("--particles", type=int)
    parser.add_argument("--depth", type=int)
    parser.add_argument("--envs", type=int)
    parser.add_argument("--steps", type=int, default=100, help="real steps per measurement")
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    prepare_host(1, 1)
    use_compilation_cache()
    given = (options.particles, options.depth, options.envs)
    if any(given):
        table = [tuple(one or usual for one, usual in zip(given, USUAL, strict=True))]
    else:
        table = [(count, *USUAL[1:]) for count in PARTICLES]
        table += [(USUAL[0], depth, USUAL[2]) for depth in DEPTHS]
        table += [(*USUAL[:2], envs) for envs in ENVS]
    for sizes in dict.fromkeys(table):
        figures = measure(options.scenario, sizes, options.steps, options.repeat)
        print(json.dumps({"scenario": options.scenario} | figures), flush=True)


if __name__ == "__main__":
    main()
