"""Proxima's learners from a replay buffer: environment steps per second of the whole training loop.

    python benchmarks/ours_off_policy.py --algorithm sac --updates 1000
    python benchmarks/ours_off_policy.py --algorithm dqn --updates 1000 --prioritized    drawn by priority
    python benchmarks/ours_off_policy.py --updates 1000 --threads 1
    python benchmarks/ours_off_policy.py --updates 1000 --hidden 64 --trials 4     the sum of four trials

One environment, one gradient step of 256 samples per environment step, nets of 256-256 ReLU.

    ddpg    Pendulum-v1   an actor and a critic
    td3     Pendulum-v1   an actor and two critics
    sac     Pendulum-v1   an actor and two critics, the temperature learnt
    dqn     CartPole-v1   Huber's loss, the target copied every 250 gradient steps

The loop is the one a scenario runs (chunks, metrics read once per chunk), with no evaluation, as the rivals
have none here, and no files. The steps counted are those with a gradient step; the warm-up's 256 are not.
"""

import argparse
import sys
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent / "peers"))
import protocol
from ours import training_run

import proxima

BATCH = 256


class Task(NamedTuple):
    """What differs between the algorithms."""

    scenario: str
    threads: int  # training.threads where none are asked for
    settings: dict[str, Any]


CARTPOLE = {
    "env.name": "CartPole-v1",
    "env.max_steps_per_episode": 500,
    "algorithm.steps_per_update": 1,
    "algorithm.double": False,  # as the rivals
    "algorithm.n_step": 1,
}
TASKS = {
    "ddpg": Task("pendulum_ddpg", 1, {}),
    "td3": Task("pendulum_td3", 1, {}),
    "sac": Task("pendulum_sac", 2, {}),
    "dqn": Task("acrobot_dqn", 1, CARTPOLE),
}


def prepare(options: argparse.Namespace) -> protocol.Run:
    """A compiled training run of as many trials as asked for."""
    task, steps = TASKS[options.algorithm], BATCH + options.updates
    settings = {
        "trials": options.trials,
        "network.hidden": [options.hidden, options.hidden],
        "algorithm.batch_size": BATCH,
        "algorithm.buffer_size": options.buffer,
        "algorithm.warmup_steps": BATCH,
        "training.max_steps": steps,
        "training.threads": options.threads or task.threads,
        "training.updates_per_chunk": max(1, steps // 5),
        "evaluation.eval_frequency": 10**9,
        "evaluation.eval_episodes": 1,
        "checkpoint.frequency": 10**9,
    }
    if options.prioritized:
        settings["algorithm.prioritized"] = True
    scenario = proxima.load(task.scenario, settings | task.settings)
    return training_run(scenario, uncounted=BATCH)


def main() -> None:
    """Times what the command line asks for."""
    parser = protocol.arguments("Proxima, learning from a replay buffer", envs=1, updates=1_000)
    sized = {"type": protocol.positive}
    parser.add_argument("--algorithm", choices=TASKS, default="ddpg")
    parser.add_argument("--trials", **sized, default=1, help="trials side by side")
    parser.add_argument("--threads", **sized, help="training.threads")
    parser.add_argument("--hidden", **sized, default=256, help="width of both layers")
    parser.add_argument("--buffer", **sized, default=100_000, help="buffer_size")
    parser.add_argument("--prioritized", action="store_true", help="DQN: draw by priority")
    options = parser.parse_args()
    protocol.speak(lambda: prepare(options), options.repeat, options.serve)


if __name__ == "__main__":
    main()
