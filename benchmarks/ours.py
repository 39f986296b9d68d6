"""Proxima's PPO on CartPole-v1: environment steps per second of the whole training loop, metrics on.

    python benchmarks/ours.py --envs 64 --updates 50
    python benchmarks/ours.py --envs 4 --trials 8       eight trials in one program, their sum
    python benchmarks/ours.py --envs 8 --host           the Gymnasium environment

The loop is the one a scenario runs (chunks, metrics read once per chunk, convergence bookkeeping), with
no evaluation, as the rivals have none here, and no files. Value clipping is on, as in Rejax.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "peers"))
import protocol

import proxima
from proxima.build import build, settings
from proxima.scenario import Scenario
from proxima.train.devices import prepare_host, use_compilation_cache
from proxima.train.loop import Observer, fresh_progress, train


def prepare(envs: int, steps: int, updates: int, trials: int, host: bool) -> protocol.Run:
    """A compiled training run of `trials` trials, each time with new seeds."""
    batch = envs * steps
    scenario = proxima.load(
        "cartpole_host" if host else "cartpole",
        {
            "trials": trials,
            "env.num_envs": envs,
            "algorithm.batch_size": batch,
            "algorithm.minibatch_size": batch // 4,
            "algorithm.epochs_per_update": 4,
            "algorithm.learning_rate": 2.5e-4,
            "algorithm.anneal_learning_rate": False,
            "algorithm.value_clip_epsilon": 0.2,
            "algorithm.normalize_advantages": "minibatch",
            "network.hidden": [64, 64],
            "training.max_steps": batch * updates,
            "training.updates_per_chunk": max(1, updates // 5),
            "evaluation.eval_frequency": 10**9,
            "evaluation.eval_episodes": 1,
            "convergence.target_reward": None,
            "checkpoint.frequency": 10**9,
        },
    )
    return training_run(scenario)


def training_run(scenario: Scenario) -> protocol.Run:
    """A compiled training run of the scenario without evaluations, each time with new seeds."""
    trials = scenario.trials
    prepare_host(trials, scenario.training.threads)
    use_compilation_cache()
    program = build(scenario).program
    reports = []
    observer = Observer(chunk=reports.append, interrupted=lambda: False)
    # The closing evaluation of a run is not what is measured here.
    silent = program._replace(evaluate=lambda learners, policy, episodes: _nothing(trials))
    runs = 0

    def run() -> dict[str, float]:
        nonlocal runs
        runs += 1
        states = program.init([1_000 * runs + k for k in range(trials)])
        states = program.prepare(states, 1)
        start = time.perf_counter()
        _, progress = train(silent, states, fresh_progress(trials), settings(scenario), observer)
        seconds = time.perf_counter() - start
        done = sum(book.steps for book in progress.books)
        return protocol.measurement(done, seconds)

    run()
    return run


def _nothing(trials: int):
    import numpy as np

    from proxima.train.program import Evaluation

    return Evaluation(np.zeros((trials, 1)), np.zeros((trials, 1)))


def main() -> None:
    """Times what the command line asks for."""
    parser = protocol.arguments("Proxima PPO on CartPole-v1", envs=64, updates=50)
    parser.add_argument("--trials", type=protocol.positive, default=1, help="trials side by side")
    parser.add_argument("--host", action="store_true", help="Gymnasium's environment")
    options = parser.parse_args()
    protocol.speak(
        lambda: prepare(options.envs, options.steps, options.updates, options.trials, options.host),
        options.repeat,
        options.serve,
    )


if __name__ == "__main__":
    main()
