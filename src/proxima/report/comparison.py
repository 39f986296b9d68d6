"""Pictures and tables across trials and across runs."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proxima.core.errors import ProximaError
from proxima.report import statistics
from proxima.report.curves import Band, Curve, band
from proxima.report.style import (
    BELOW,
    BLUE,
    COLOURS,
    GREY,
    INK,
    VERMILLION,
    WIDTH,
    Box,
    Scale,
    add_axes,
    caption,
    decimals,
    draw_target,
    frame,
    legend,
    new_figure,
    number,
    save,
    single_axes,
    steps_scale,
    strip,
    write,
)


class Run(NamedTuple):
    """One run as a comparison sees it."""

    name: str
    curves: Sequence[Curve]
    """Evaluation steps and mean returns of each trial."""
    results: Sequence[Mapping[str, Any]]
    """results.json of each trial."""


def learning_curves(
    path: str | Path, curves: Sequence[Curve], title: str = "", target: float | None = None
) -> None:
    """Draw the trials as thin lines under their IQM and its interval."""
    save(learning_figure(curves, title or "Learning curves", target), path)


def learning_figure(
    curves: Sequence[Curve], title: str, target: float | None, width: float = WIDTH
) -> Any:
    """What `learning_curves` draws."""
    found = band(curves)
    ends = " Dots: where trials ended." if found.trials > 1 else ""
    figure, axes = _captioned(_explain([found]) + ends, width=width)
    for steps, returns in curves:
        axes.plot(steps, returns, color=BLUE, linewidth=0.8, alpha=0.45)
        _mark_end(axes, steps, returns)
    if found.trials:
        _draw_band(axes, found, BLUE, "greedy return" if found.trials == 1 else "IQM of the trials")
    _frame_curves(axes, title, target)
    return figure


def final_returns(
    path: str | Path,
    labels: Sequence[str],
    returns_per_trial: Sequence[Sequence[float]],
    random: Sequence[float] | None = None,
    title: str = "Greedy returns after training",
) -> None:
    """Draw every trial's evaluation episodes, their IQM over trials and the random policy."""
    save(returns_figure(labels, returns_per_trial, random, title), path)


def returns_figure(
    labels: Sequence[str],
    returns_per_trial: Sequence[Sequence[float]],
    random: Sequence[float] | None,
    title: str,
    width: float = WIDTH,
) -> Any:
    """What `final_returns` draws."""
    means = statistics.trial_means(returns_per_trial)
    summary = statistics.aggregate(means)
    failed = f" {summary['failed']} failed, left out." if summary["failed"] else ""
    figure, axes = _captioned(
        f"Dot: episode; box: quartiles; diamond and number below: the trial's mean.{failed}",
        BELOW,  # the names have two lines but no label
        width,
    )
    names = list(labels)
    for place, (returns, mean) in enumerate(zip(returns_per_trial, means, strict=True)):
        if np.isfinite(mean):
            strip(axes, place, returns, BLUE, vertical=True)
        names[place] += f"\n{number(mean)}"
    if random is not None:
        strip(axes, len(names), random, GREY, vertical=True)
        names.append(f"random\n{number(statistics.trial_means([random])[0])}")
    if summary["iqm"] is not None:
        look = {"color": VERMILLION, "linewidth": 1.3, "zorder": 1}
        alike = len(means) > 1 and np.ptp(means) == 0
        text = f"every trial's mean {number(means[0])}" if alike else _interval_text(summary)
        axes.axhline(summary["iqm"], label=text, **look)
    if summary["low"] is not None:
        axes.axhspan(summary["low"], summary["high"], color=VERMILLION, alpha=0.12, linewidth=0)
    x = Scale(-0.6, max(len(names), 3) - 0.4, range(len(names)), names)
    frame(axes, title, "", "episode return", x=x)
    # beside the title, for inside it would hide the dots
    legend(axes, loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.2)
    return figure


def trial_rows(results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The per-trial table: one row per results.json."""
    return [
        {
            "trial": result["trial"],
            "seed": result["seed"],
            "return": float(mean),
            "± std": result["evaluation"]["return_std"],
            "min": result["evaluation"]["return_min"],
            "max": result["evaluation"]["return_max"],
            "random": result["random"]["return_mean"],
            "steps": result["environment_steps"],
            "steps/s": round(result["steps_per_second"]),
            "converged at": result["converged_at_step"] if result["converged"] else "no",
        }
        for result, mean in zip(results, _result_means(results), strict=True)
    ]


def trials_table(
    path: str | Path, rows: Sequence[Mapping[str, Any]], title: str = "Trials"
) -> None:
    """Draw rows as a table; the columns are the first row's keys.

    All trials are evaluated on the same episodes, so the random policy earns the same in each: a
    `random` column that says one thing is said once, below the table.
    """
    names = list(rows[0]) if rows else ["no trials"]
    note = ""
    if len(rows) > 1 and "random" in names and len({row["random"] for row in rows}) == 1:
        names.remove("random")
        note = (
            f"The random policy earns {column_cells([rows[0]['random']])[0]} on the same episodes."
        )
    columns = [[name, *column_cells([row[name] for row in rows])] for name in names]
    widths = np.array([max(1.15 * len(cells[0]), *map(len, cells)) + 2 for cells in columns])
    edges = np.cumsum(widths) / widths.sum()
    height, below = 0.34 * (len(rows) + 1), 0.38 if note else 0.1
    figure = new_figure(height + below + 0.45)
    box = Box(0.1, below, WIDTH - 0.2, height)
    axes = add_axes(figure, box)
    axes.set(xlim=(0, 1), ylim=(len(rows) + 1, 0))
    write(figure, box.left, below + height + 0.08, title, 12)
    for line in range(1, len(rows) + 1, 2):
        axes.axhspan(line, line + 1, color="#F2F2F2", linewidth=0)
    size = min(10.0, 900 / widths.sum())  # so that many columns still fit the width
    for place, cells in enumerate(columns):
        x, align = (0.01, "left") if place == 0 else (edges[place] - 0.01, "right")
        for line, cell in enumerate(cells):
            weight = "normal" if line else "bold"
            look = {"fontsize": size, "weight": weight, "color": INK}
            axes.text(x, line + 0.5, cell, look, ha=align, va="center_baseline")
    axes.axhline(1, color=INK, linewidth=1)
    caption(figure, note)
    save(figure, path)


def compare_runs(
    path: str | Path, runs: Sequence[Run], title: str = "Runs compared", target: float | None = None
) -> None:
    """Draw each run's IQM and interval over its trials in one picture."""
    bands = [band(run.curves) for run in runs]
    figure, axes = _captioned(_explain(bands))
    for place, (run, found) in enumerate(zip(runs, bands, strict=True)):
        dashes = ("-", (0, (6, 2)), (0, (2, 1.5)))[place // len(COLOURS) % 3]
        label = f"{run.name} (n = {found.trials})"
        _draw_band(axes, found, COLOURS[place % len(COLOURS)], label, dashes)
    _frame_curves(axes, title, target)
    save(figure, path)


def comparison_rows(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """One row per run: what its trials earn after training, and what that took."""
    return [
        {
            "name": run.name,
            "trials": len(run.results),
            **_without_count(statistics.aggregate(_result_means(run.results))),
            "steps": _mean(run.results, "environment_steps"),
            "steps/s": _mean(run.results, "steps_per_second"),
            "converged": f"{sum(bool(r['converged']) for r in run.results)}/{len(run.results)}",
        }
        for run in runs
    ]


def improvement(first: Run, second: Run) -> dict[str, Any]:
    """How much better the first run's trials are than the second's on the same episodes."""
    one, other = (
        [result["evaluation"]["returns"] for result in run.results] for run in (first, second)
    )
    counts = {len(returns) for returns in (*one, *other) if len(returns)}
    if len(counts) > 1:
        raise ProximaError(
            f"{first.name} and {second.name} were evaluated on different numbers of episodes "
            f"({', '.join(map(str, sorted(counts)))}), so their episodes cannot be paired; "
            "give both the same evaluation.final_episodes"
        )
    return {
        "first": first.name,
        "second": second.name,
        **statistics.paired_comparison(one, other),
    }


def _draw_band(axes: Any, found: Band, colour: str, label: str, dashes: Any = "-") -> None:
    marker = "o" if len(found.steps) == 1 else None
    axes.plot(
        found.steps, found.iqm, color=colour, linewidth=2.2, ls=dashes, marker=marker, label=label
    )
    if found.low is not None and found.high is not None:
        axes.fill_between(found.steps, found.low, found.high, color=colour, alpha=0.2, linewidth=0)


def _mark_end(axes: Any, steps: ArrayLike, returns: ArrayLike) -> None:
    """A dot where a trial ended, a cross where its return was last finite before it failed."""
    steps, returns = np.asarray(steps, dtype=float), np.asarray(returns, dtype=float)
    finite = np.flatnonzero(np.isfinite(returns))
    if len(finite):
        last = finite[-1]
        marker, colour = ("o", BLUE) if last == len(returns) - 1 else ("X", VERMILLION)
        axes.plot(steps[last], returns[last], marker, color=colour, markersize=5.3, zorder=5)


def _explain(bands: Sequence[Band]) -> str:
    """The caption: what line and band are, and what happened to unusual trials."""
    if not any(found.trials for found in bands):
        return "No trial has a finite return to draw."
    parts = ["Line: interquartile mean over trials; band: 95 % bootstrap interval."]
    if not any(found.trials > 1 for found in bands):
        parts = ["One trial: no interval can be drawn from a single seed."]
    if held := sum(found.held for found in bands):
        parts.append(f"{held} stopped early and keep{'s' * (held == 1)} the last value.")
    if failed := sum(found.failed for found in bands):
        parts.append(f"{failed} failed (not finite), left out.")
    return " ".join(parts)


def _captioned(text: str, below: float = BELOW, width: float = WIDTH) -> tuple[Any, Any]:
    """A figure with its caption written, and the axes above it."""
    lines = textwrap.wrap(text, round(110 * width / WIDTH))  # what fits the figure's width
    figure = new_figure(4.5 if width >= WIDTH else 3.6, width)
    caption(figure, "\n".join(lines))
    return figure, single_axes(figure, below + 0.12 + 0.16 * len(lines))


def _frame_curves(axes: Any, title: str, target: float | None) -> None:
    """Add to curves what all pictures of curves have."""
    draw_target(axes, target)
    labels = ("environment steps", "greedy mean episode return")
    most = 10 * axes.figure.get_figwidth() / WIDTH
    frame(axes, title, *labels, x=steps_scale(axes.get_xlim()[1], most))
    # without a title there is room for it above, where it hides nothing
    above = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": 2, "borderpad": 0}
    legend(axes, **({} if title else above))


def _interval_text(summary: Mapping[str, Any]) -> str:
    middle = number(summary["iqm"])
    if summary["low"] is None:
        return f"mean {middle}"
    return f"IQM of trial means {middle} [{number(summary['low'])}, {number(summary['high'])}]"


def _result_means(results: Sequence[Mapping[str, Any]]) -> NDArray[np.float64]:
    return statistics.trial_means([result["evaluation"]["returns"] for result in results])


def _mean(results: Sequence[Mapping[str, Any]], key: str) -> int | None:
    return round(float(np.mean([result[key] for result in results]))) if results else None


def _without_count(summary: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in summary.items() if key != "n"}


def column_cells(values: Sequence[Any]) -> list[str]:
    """A column's values as text, its fractions with equally many decimals."""
    fractions = [value for value in values if isinstance(value, float)]
    digits = max(map(decimals, fractions), default=0)
    return [number(v, digits) if isinstance(v, float) else _cell(v) for v in values]


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)
