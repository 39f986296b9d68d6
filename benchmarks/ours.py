"""Proxima's PPO on CartPole-v1: environment steps per second of the whole training loop, metrics on.

    python benchmarks/ours.py --envs 64 --updates 50
    python benchmarks/ours.py --envs 4 --trials 8       eight trials in one program, their sum
    python benchmarks/ours.py --envs 8 --host           the Gymnasium environment
    python benchmarks/ours.py --envs 64 --memory 128    with a GRU of 128 before both nets

The loop is the one a scenario runs (chunks, metrics read once per chunk, convergence bookkeeping), with
no evaluation, as the rivals have none here, and no files. Value clipping is on, as in Rejax.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "peers"))
import protocol

import proxima
from proxima.build import domain_of
from proxima.scenario import Scenario
from proxima.train.books import fresh_progress
from proxima.train.devices import use_compilation_cache
from proxima.train.loop import Observer, train
from proxima.train.stage import Score


def prepare(
    envs: int, steps: int, updates: int, trials: int, host: bool, memory: int | None
) -> protocol.Run:
    """A compiled training run of `trials` trials."""
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
            "algorithm.final_learning_rate": None,
            "algorithm.value_clip_epsilon": 0.2,
            "algorithm.normalize_advantages": "minibatch",
            "network.hidden": [64, 64],
            "network.memory": "none" if memory is None else "gru",
            "network.memory_size": memory or 1,
            "training.max_steps": batch * updates,
            "training.updates_per_chunk": max(1, updates // 5),
            "evaluation.eval_frequency": 10**9,
            "evaluation.eval_episodes": 1,
            "convergence.target_reward": None,
            "checkpoint.frequency": 10**9,
        },
    )
    return training_run(scenario)


def training_run(scenario: Scenario, uncounted: int = 0) -> protocol.Run:
    """A compiled training of the scenario without evaluations; `uncounted` steps of a trial are warm-up."""
    trials = scenario.trials
    domain_of(scenario).prepare_host(scenario)
    use_compilation_cache()
    planned = domain_of(scenario).prepare(scenario).stages[0]
    stage = planned.make(lambda trial: Path()).stage
    observer = Observer(
        record=lambda report: {}, save=lambda states, progress: None, interrupted=lambda: False
    )
    # The closing evaluation of a run is not what is measured here.
    silent = stage._replace(evaluate=lambda states: [Score(0.0, 1, {})] * trials)

    def run() -> dict[str, float]:
        states = stage.prepare(stage.init())
        start = time.perf_counter()
        _, progress = train(silent, states, fresh_progress(trials), observer)
        seconds = time.perf_counter() - start
        done = sum(book.steps - uncounted for book in progress.books)
        return protocol.measurement(done, seconds)

    run()
    return run


def main() -> None:
    """Times what the command line asks for."""
    parser = protocol.arguments("Proxima PPO on CartPole-v1", envs=64, updates=50)
    parser.add_argument("--trials", type=protocol.positive, default=1, help="trials side by side")
    parser.add_argument("--host", action="store_true", help="Gymnasium's environment")
    parser.add_argument("--memory", type=protocol.positive, help="numbers of a GRU's memory")
    options = parser.parse_args()
    sizes = (options.envs, options.steps, options.updates, options.trials)
    protocol.speak(
        lambda: prepare(*sizes, options.host, options.memory),
        options.repeat,
        options.serve,
    )


if __name__ == "__main__":
    main()
