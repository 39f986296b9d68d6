"""Proxima's DQN on CartPole-v1: environment steps per second of the whole training loop.

    python benchmarks/ours_dqn.py --updates 1000
    python benchmarks/ours_dqn.py --updates 1000 --prioritized      what drawing by priority costs
    python benchmarks/ours_dqn.py --updates 1000 --hidden 64 --trials 4    the sum of four trials

One environment, one gradient step of 256 samples per environment step, a net of 256-256 ReLU, Huber's loss,
the target copied every 250 gradient steps. The loop is the one a scenario runs (chunks, metrics read once
per chunk), with no evaluation, as the rivals have none here, and no files. The steps counted are those with
a gradient step; the warm-up's 256 are not.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "peers"))
import protocol
from ours import training_run

import proxima

BATCH = 256


def prepare(
    updates: int, trials: int, threads: int, hidden: int, buffer: int, prioritized: bool
) -> protocol.Run:
    """A compiled training run of `trials` trials."""
    steps = BATCH + updates
    scenario = proxima.load(
        "acrobot_dqn",
        {
            "trials": trials,
            "env.name": "CartPole-v1",
            "env.max_steps_per_episode": 500,
            "network.hidden": [hidden, hidden],
            "algorithm.batch_size": BATCH,
            "algorithm.buffer_size": buffer,
            "algorithm.warmup_steps": BATCH,
            "algorithm.steps_per_update": 1,
            "algorithm.prioritized": prioritized,
            "algorithm.double": False,
            "algorithm.n_step": 1,
            "training.max_steps": steps,
            "training.threads": threads,
            "training.updates_per_chunk": max(1, steps // 5),
            "evaluation.eval_frequency": 10**9,
            "evaluation.eval_episodes": 1,
            "checkpoint.frequency": 10**9,
        },
    )
    return training_run(scenario, uncounted=BATCH)


def main() -> None:
    """Times what the command line asks for."""
    parser = protocol.arguments("Proxima DQN on CartPole-v1", envs=1, updates=1_000)
    parser.add_argument("--trials", type=protocol.positive, default=1, help="trials side by side")
    parser.add_argument("--threads", type=protocol.positive, default=1, help="training.threads")
    parser.add_argument(
        "--hidden", type=protocol.positive, default=256, help="width of both layers"
    )
    parser.add_argument("--buffer", type=protocol.positive, default=100_000, help="buffer_size")
    parser.add_argument("--prioritized", action="store_true", help="draw by priority")
    options = parser.parse_args()
    sizes = (options.updates, options.trials, options.threads, options.hidden, options.buffer)
    protocol.speak(lambda: prepare(*sizes, options.prioritized), options.repeat, options.serve)


if __name__ == "__main__":
    main()
