"""How often intervals of the interquartile mean contain the truth: the tables of docs/statistics.md.

    python benchmarks/interval_coverage.py        a minute, seeded: the same figures every time

Many small experiments are drawn from a distribution whose IQM is known. A method is good if its intervals
contain that number 95 times in a hundred and are no wider than they must be.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from proxima.report.statistics import interquartile_mean

Array = NDArray[np.float64]
Ends = tuple[Array, Array]

TRIALS = (2, 3, 4, 5, 6, 8, 10, 20, 50)
EXPERIMENTS = 1000
RESAMPLES = 1000
TAIL = 0.025
AT_ONCE = 4_000_000  # resampled numbers in memory


def two_bumps(q: Array) -> Array:
    """Three trials in ten fail."""
    fails, works = (
        stats.norm.ppf(np.clip(part, 1e-12, 1 - 1e-12)) for part in (q / 0.3, (q - 0.3) / 0.7)
    )
    return np.where(q < 0.3, 0.1 * fails, 1.0 + 0.1 * works)


# By name: the quantile function of what a trial is worth.
DISTRIBUTIONS: dict[str, Callable[[Array], Array]] = {
    "normal": stats.norm.ppf,
    "skewed (negative exponential)": lambda q: -stats.expon.ppf(1 - q),
    "skewed (lognormal)": lambda q: np.exp(stats.norm.ppf(q)),
    "two bumps": two_bumps,
    "heavy tails (t, 2 degrees)": partial(stats.t.ppf, df=2),
    "ceiling (four in ten at the best)": lambda q: np.minimum(q / 0.6, 1.0),
}


def deviation(ordered: Array) -> Array:
    """The standard error of the IQM of sorted values (..., n), from their winsorised variance."""
    count = ordered.shape[-1]
    cut = count // 4
    inside = np.clip(ordered, ordered[..., [cut]], ordered[..., [count - cut - 1]])
    return inside.std(axis=-1, ddof=1) / ((count - 2 * cut) / count * np.sqrt(count))


def trimmed_t(values: Array) -> Ends:
    """Student's t for trimmed means (Tukey, McLaughlin 1963)."""
    count = values.shape[1]
    half = stats.t.ppf(1 - TAIL, count - 2 * (count // 4) - 1) * deviation(values)
    middle = interquartile_mean(values, axis=1)
    return middle - half, middle + half


def quantiles(resampled: Array, tail: float) -> Ends:
    low, high = np.quantile(resampled, [tail, 1 - tail], axis=1)
    return low, high


def expanded_tail(count: int) -> float:
    """As `proxima.report.statistics` has it."""
    return float(stats.norm.cdf(np.sqrt(count / (count - 1)) * stats.t.ppf(TAIL, count - 1)))


def corrected(values: Array, resampled: Array) -> Ends:
    """BCa: quantiles moved by bias and by acceleration (Efron 1987)."""
    count = values.shape[1]
    middle = interquartile_mean(values, axis=1)[:, None]
    below = np.mean(resampled < middle, axis=1) + 0.5 * np.mean(resampled == middle, axis=1)
    bias = stats.norm.ppf(np.clip(below, 1 / RESAMPLES, 1 - 1 / RESAMPLES))
    without = [interquartile_mean(np.delete(values, i, 1), axis=1) for i in range(count)]
    away = np.mean(without, axis=0) - np.asarray(without)
    scale = np.maximum(6 * np.sum(away**2, axis=0) ** 1.5, 1e-300)
    acceleration = np.sum(away**3, axis=0) / scale
    ends = []
    for z in stats.norm.ppf([TAIL, 1 - TAIL]):
        at = stats.norm.cdf(bias + (bias + z) / (1 - acceleration * (bias + z)))
        ends.append(np.array([np.quantile(row, q) for row, q in zip(resampled, at, strict=True)]))
    return ends[0], ends[1]


def studentised(values: Array, drawn: Array, resampled: Array) -> Ends:
    """Bootstrap-t: quantiles of (resampled − IQM) / standard error; no interval where one is 0."""
    middle, error = interquartile_mean(values, axis=1), deviation(values)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.nan_to_num(
            (resampled - middle[:, None]) / deviation(drawn), posinf=1e9, neginf=-1e9
        )
    low, high = quantiles(ratio, TAIL)
    return middle - high * error, middle - low * error


def intervals(values: Array, random: np.random.Generator) -> dict[str, Ends]:
    """By method, the ends of the intervals of experiments (experiments, trials)."""
    count = values.shape[1]
    values = np.sort(values, axis=1)
    drawn = np.sort(values[:, random.integers(count, size=(RESAMPLES, count))], axis=2)
    resampled = interquartile_mean(drawn, axis=2)
    return {
        "percentile": quantiles(resampled, TAIL),
        "expanded": quantiles(resampled, expanded_tail(count)),
        "BCa": corrected(values, resampled),
        "bootstrap-t": studentised(values, drawn, resampled),
        "trimmed t": trimmed_t(values),
    }


def measured(quantile: Callable[[Array], Array], count: int) -> dict[str, tuple[float, float]]:
    """By method, the share of intervals that contain the truth, and their mean width over percentile's."""
    truth = quantile((np.arange(100_000) + 0.5) / 200_000 + 0.25).mean()
    random = np.random.default_rng(0)
    values = quantile(random.random((EXPERIMENTS, count)))
    parts = -(-EXPERIMENTS * RESAMPLES * count // AT_ONCE)
    found = [intervals(part, random) for part in np.array_split(values, parts)]
    ends = {name: np.hstack([part[name] for part in found]) for name in found[0]}
    usual = np.mean(ends["percentile"][1] - ends["percentile"][0])
    return {
        name: (np.mean((low <= truth) & (truth <= high)), np.mean(high - low) / usual)
        for name, (low, high) in ends.items()
    }


def main() -> None:
    """Prints one table for each distribution, in Markdown."""
    for name, quantile in DISTRIBUTIONS.items():
        print(f"\n{name}\n")
        for count in TRIALS:
            found = measured(quantile, count)
            if count == TRIALS[0]:
                print("| trials |", " | ".join(found), "|")
                print("|", " | ".join(["---"] * (len(found) + 1)), "|")
            cells = [
                f"{hit:.0%} ×{width:.1f}" if width < 99 else f"{hit:.0%} ×∞"
                for hit, width in found.values()
            ]
            print(f"| {count} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
