"""Proxima's PPO on BinPack-v2: environment steps per second of the whole training loop, one trial.

    python benchmarks/ours_packing.py --envs 128 --steps 16 --updates 20
    python benchmarks/ours_packing.py --items 20 --spaces 40

The rival is peers/jumanji_loop.py: the same net, settings and sizes over Jumanji's own environment.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "peers"))
import protocol
from ours import training_run

import proxima


def prepare(envs: int, steps: int, updates: int, items: int, spaces: int) -> protocol.Run:
    """A compiled training run."""
    batch = envs * steps
    scenario = proxima.load(
        "binpack_ppo",
        {
            "trials": 1,
            "env.num_envs": envs,
            "env.params.max_num_items": items,
            "env.params.max_num_ems": spaces,
            "algorithm.batch_size": batch,
            "algorithm.minibatch_size": batch // 8,
            "training.max_steps": batch * updates,
            "training.updates_per_chunk": max(1, updates // 2),
            "evaluation.eval_frequency": 10**9,
            "evaluation.eval_episodes": 1,
            "checkpoint.frequency": 10**9,
        },
    )
    return training_run(scenario)


def main() -> None:
    """Times what the command line asks for."""
    parser = protocol.arguments("Proxima PPO on BinPack-v2", envs=128, updates=10)
    parser.set_defaults(steps=16)
    parser.add_argument("--items", type=protocol.positive, default=10)
    parser.add_argument("--spaces", type=protocol.positive, default=20)
    options = parser.parse_args()
    sizes = options.envs, options.steps, options.updates, options.items, options.spaces
    protocol.speak(lambda: prepare(*sizes), options.repeat, options.serve)


if __name__ == "__main__":
    main()
