"""Our PPO beside somebody else's on 128 configurations: rank correlation, and the picture in docs/tuning.md.

    proxima tune --scenario cartpole_landscape
    python benchmarks/landscape.py [SEARCH]

Theirs is benchmarks/results/arlbench_ppo_cartpole.csv: means over ten seeds at 100,000 steps, as ARLBench
(Becktepe et al. 2024, BSD licence) published them, in the order of the scenario's table.
"""

import argparse
import csv
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from proxima.report import style
from proxima.run.files import read_json, write_json
from proxima.tune.files import find_search
from proxima.tune.run import read_result

HERE = Path(__file__).parent
THEIRS = HERE / "results" / "arlbench_ppo_cartpole.csv"
RECORD = HERE / "results" / "landscape.json"
PICTURE = HERE.parent / "docs" / "img" / "cartpole_landscape.png"
MOST = 500.0  # return of an episode


def correlation(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Spearman's rank correlation."""
    return float(spearmanr(ours, theirs).statistic)


def draw(ours: np.ndarray, theirs: np.ndarray) -> None:
    """A point per configuration."""
    figure = style.new_figure(4.4, 4.6)
    axes = style.single_axes(figure)
    axes.plot([0, MOST], [0, MOST], color=style.SOFT, linewidth=1)
    axes.plot(theirs, ours, "o", color=style.BLUE, markersize=4, alpha=0.6, markeredgewidth=0)
    title = f"128 configurations, rank correlation {correlation(ours, theirs):.2f}"
    both = style.scale(0.0, MOST, most=6)
    labels = "ARLBench's PPO, mean return over 10 seeds", "ours, over 3 seeds"
    style.frame(axes, title, *labels, both, both)
    style.save(figure, PICTURE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("search", nargs="?", help="a search; without one, what was kept")
    parser.add_argument("--output", default="logs")
    arguments = parser.parse_args()
    if arguments.search:
        result = read_result(find_search(arguments.search, arguments.output))
        values = [list(each.values) for each in result.configurations]
        write_json(RECORD, {"values": values, "steps": result.steps, "seconds": result.seconds})
    kept = read_json(RECORD)
    rows = list(csv.DictReader(THEIRS.open()))
    # one whose loss is no number has learnt nothing
    seeds = np.array([[np.nan if v is None else v for v in row] for row in kept["values"]], float)
    ours = np.nan_to_num(np.mean(seeds, axis=1), nan=0.0)
    theirs = np.array([float(row["mean_100k"]) for row in rows])
    print(f"rank correlation {correlation(ours, theirs):.3f}")
    print(f"means {ours.mean():.1f} (ours), {theirs.mean():.1f} (theirs)")
    print(f"{kept['steps']:,} steps in {kept['seconds']:.0f} s")
    draw(ours, theirs)


if __name__ == "__main__":
    main()
