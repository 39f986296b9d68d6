"""Random search, ASHA and population-based training at equal environment steps, judged on unseen seeds.

    python benchmarks/regret.py                 every problem, method and tuning seed; takes a while
    python benchmarks/regret.py cartpole        one problem
    python benchmarks/regret.py --table         only the table, from what was kept

Each search has the steps of so many whole trainings; what it found (settings, or a population's schedule) is
trained again on seeds that it had not seen. A method's figure is the interquartile mean of these over
tuning seeds, with its interval. Searches that were interrupted go on; finished ones are read.
"""

import argparse
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from proxima.report.statistics import aggregate
from proxima.run.files import write_json
from proxima.scenario import load
from proxima.track.tracker import no_tracker
from proxima.tune.files import SearchFiles
from proxima.tune.plan import Watch, prepare_search
from proxima.tune.search import run_search
from proxima.tune.tracking import Tracking

TUNING_SEEDS = 5
WHOLE = 32  # trainings whose steps a search has
UNSEEN = 12  # seeds on which what was found is judged
RECORD = Path(__file__).parent / "results" / "regret.json"
SPACE = {
    "algorithm.learning_rate": "log:1e-5:1e-1",
    "algorithm.gae_lambda": "0.8:1.0",
    "algorithm.clip_epsilon": "0.1:0.4",
    "algorithm.entropy_coef": "log:1e-6:0.3",
    "algorithm.value_coef": "0.1:1.0",
    "algorithm.max_grad_norm": "log:0.3:5",
}
PROBLEMS: dict[str, dict[str, Any]] = {
    "cartpole": {"training.max_steps": 20_000, "evaluation.eval_episodes": 20},
    "acrobot": {"training.max_steps": 100_000, "evaluation.eval_episodes": 20},
    "mountain_car_continuous": {
        "training.max_steps": 20_000,
        "algorithm.batch_size": 256,
        "algorithm.minibatch_size": 64,
    },
}
METHODS: dict[str, dict[str, Any]] = {
    "random": {"configs": WHOLE},
    # Of 9 evaluations, with a reduction of 3, a configuration has 1 + 2/3 + 6/9 on average.
    "asha": {"configs": round(WHOLE * 9 / (1 + 2 / 3 + 6 / 9))},
    "pbt": {"configs": WHOLE},
}


class Outcome(NamedTuple):
    """What a search found is worth on unseen seeds, and what it took."""

    values: list[float]
    steps: int
    seconds: float


def search(problem: str, method: str, seed: int, output: Path) -> Outcome:
    """One search, read if it is kept."""
    folder = output / problem / f"{method}_{seed}"
    kept = folder / "outcome.json"
    if kept.is_file():
        return Outcome(**json.loads(kept.read_text()))
    settings = {
        **PROBLEMS[problem],
        "trials": UNSEEN,
        "convergence.target_reward": None,
        "search": {"space": SPACE, "method": method, "seed": seed, "evaluations": 9, "confirm": 1}
        | METHODS[method],
    }
    folder.mkdir(parents=True, exist_ok=True)
    watch, tracking = (
        Watch(print, lambda standing: None),
        Tracking(no_tracker(), "", lambda run: None),
    )
    prepared = prepare_search(load(problem, settings), watch, SearchFiles(folder))
    result = run_search(prepared, tracking, test=False)
    (chosen,) = result.choosing
    values = [-np.inf if value is None else value for value in chosen.values]
    outcome = Outcome(values, result.steps, result.seconds)
    write_json(kept, outcome._asdict())
    return outcome


def row(problem: str, method: str, outcomes: list[Outcome]) -> dict[str, Any]:
    """A method's figures on a problem."""
    means = [float(np.mean(each.values)) for each in outcomes]
    return {
        "problem": problem,
        "method": method,
        **aggregate(means),
        "searches": means,
        "steps": int(np.mean([each.steps for each in outcomes])),
        "seconds": float(np.median([each.seconds for each in outcomes])),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The record as Markdown."""
    lines = [
        "| | method | return on unseen seeds | steps of a search |",
        "| --- | --- | ---: | ---: |",
    ]
    for each in rows:
        figure = f"{each['iqm']:.1f} [{each['low']:.1f}, {each['high']:.1f}]"
        lines.append(f"| {each['problem']} | {each['method']} | {figure} | {each['steps']:,} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problems", nargs="*", default=list(PROBLEMS))
    parser.add_argument("--output", type=Path, default=Path("logs/regret"))
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    if not arguments.table:
        rows = []
        for problem in arguments.problems:
            for method in METHODS:
                seeds = range(TUNING_SEEDS)
                outcomes = [search(problem, method, seed, arguments.output) for seed in seeds]
                rows.append(row(problem, method, outcomes))
                print(table(rows[-1:]).splitlines()[-1], flush=True)
        if set(arguments.problems) == set(PROBLEMS):
            write_json(RECORD, rows)
    if RECORD.is_file():
        print(table(json.loads(RECORD.read_text())))


if __name__ == "__main__":
    main()
