"""Pictures and tables across trials and across runs."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxima.core.errors import ProximaError
from proxima.core.records import Record
from proxima.report import statistics
from proxima.report.chosen import roles
from proxima.report.curves import Band, Curve, band
from proxima.report.style import (
    BELOW,
    BLUE,
    COLOURS,
    GREY,
    INK,
    SKY,
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

MOST_LONG_NAMES = 8  # of boxes across a whole figure
MOST_ROWS = 12  # of a table that is drawn whole
MOST_LINES = 20  # trials whose curves are drawn one by one
MOST_BOXES, MOST_BOXES_NARROW = 12, 8  # trials whose returns have a box each
BOXES_WORDS = "Dot: episode; box: quartiles; diamond and number below: the trial's mean."
SORTED_WORDS = (
    "Trials from the worst to the best. Dot: mean; bar: the middle half of the episodes; thin: all."
)


class Run(NamedTuple):
    """One run as a comparison sees it."""

    name: str
    curves: Sequence[Curve]
    """Evaluation steps and mean returns of each trial."""
    results: Sequence[Record]
    """results.json of each trial."""


def learning_curves(
    path: str | Path, curves: Sequence[Curve], title: str = "", target: float | None = None
) -> None:
    """Draw the trials as thin lines, or many as shades, under their IQM and its interval."""
    save(learning_figure(curves, title or "Learning curves", target), path)


def learning_figure(
    curves: Sequence[Curve],
    title: str,
    target: float | None,
    width: float = WIDTH,
    over_trials: Band | None = None,
) -> Any:
    """What `learning_curves` draws; `over_trials` is the curves' band, if it is known already."""
    over_trials = band(curves) if over_trials is None else over_trials
    many = over_trials.trials > MOST_LINES
    figure, axes = _captioned(_explain([over_trials]) + _explain_trials(over_trials), width=width)
    if many:
        _draw_spread(axes, over_trials)
        _mark_ends(axes, [curve for curve in curves if _failed(curve)])
    else:
        for steps, returns in curves:
            axes.plot(steps, returns, color=BLUE, linewidth=0.8, alpha=0.45)
        _mark_ends(axes, curves)
    if over_trials.trials:
        label = "greedy return" if over_trials.trials == 1 else "IQM of the trials"
        _draw_band(axes, over_trials, BLUE, label)
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
    """What `final_returns` draws: a box per trial, or of many trials a line of sorted means."""
    means = statistics.trial_means(returns_per_trial)
    summary = statistics.aggregate(means)
    failed = f" {summary['failed']} failed, left out." if summary["failed"] else ""
    sort = len(labels) > (MOST_BOXES if width >= WIDTH else MOST_BOXES_NARROW)
    words = SORTED_WORDS + _random_words(random) if sort else BOXES_WORDS
    # the names have two lines but no label
    figure, axes = _captioned(words + failed, BELOW, width)
    if sort:
        scale = _draw_sorted(axes, labels, returns_per_trial, means)
        _draw_level(axes, random)
    else:
        scale = _draw_boxes(axes, labels, returns_per_trial, random)
    if summary["iqm"] is not None:
        finite = means[np.isfinite(means)]
        alike = len(means) > 1 and np.ptp(finite) == 0
        text = f"every trial's mean {number(finite[0])}" if alike else _interval_text(summary)
        axes.axhline(summary["iqm"], label=text, color=VERMILLION, linewidth=1.3, zorder=1)
    if summary["low"] is not None:
        axes.axhspan(summary["low"], summary["high"], color=VERMILLION, alpha=0.12, linewidth=0)
    frame(axes, title, "", "episode return", x=scale)
    # beside the title, for inside it would hide the dots
    legend(axes, loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.2)
    return figure


def trial_rows(results: Sequence[Record]) -> list[dict[str, Any]]:
    """The per-trial table: one row per results.json."""
    beside = _beside(results)
    return [
        {
            "trial": result["trial"],
            "seed": result["seed"],
            "return": float(mean),
            **_spread(result),
            beside: result[beside]["return_mean"] if result[beside] else None,
            "steps": result["environment_steps"],
            "steps/s": round(result["steps_per_second"]),
            "converged at": result["converged_at_step"] if result["converged"] else "no",
        }
        for result, mean in zip(results, _result_means(results), strict=True)
    ]


def _spread(result: Record) -> dict[str, Any]:
    """The spread of a trial's returns; None of a trial that broke down before it was judged."""
    columns = {"± std": "return_std", "min": "return_min", "max": "return_max"}
    episodes = result["evaluation"]
    return {name: None if episodes is None else episodes[key] for name, key in columns.items()}


def _beside(results: Sequence[Record]) -> str:
    """What trials are compared with: the random policy, or the one that training started from."""
    known = [name for name in ("random", "reference") if any(result[name] for result in results)]
    return known[0] if known else "random"


def trials_table(
    path: str | Path, rows: Sequence[Mapping[str, Any]], title: str = "Trials"
) -> None:
    """Draw rows as a table; the columns are the first row's keys.

    All trials are evaluated on the same episodes, so the random policy earns the same in each: a
    `random` column with one value is written once, below the table. Of many trials only those that
    stand for all by their `return` have a row.
    """
    notes = []
    names = list(rows[0]) if rows else ["no trials"]
    if len(rows) > 1 and "random" in names and len({row["random"] for row in rows}) == 1:
        names.remove("random")
        random = column_cells([rows[0]["random"]])[0]
        notes.append(f"The random policy earns {random} on the same episodes.")
    if len(rows) > MOST_ROWS:
        shown = _short(rows)
        names = ["", *names] if "" in shown[0] else names
        notes.insert(0, f"… and {len(rows) - len(shown)} more, in summary.json.")
        rows = shown
    _draw_table(
        [[name, *column_cells([row[name] for row in rows])] for name in names], title, path, notes
    )


def _short(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The rows that stand for all, under what they stand for; the first ones where none has a return."""
    if "return" not in rows[0]:
        return list(rows[:MOST_ROWS])
    chosen = roles([row["return"] for row in rows])
    return [{"": role, **rows[index]} for index, role in chosen.items()]


def _draw_table(
    columns: Sequence[Sequence[str]], title: str, path: str | Path, notes: Sequence[str]
) -> None:
    """Columns of text, each with its name on top, the first aligned to the left."""
    count = len(columns[0]) - 1
    widths = np.array([max(1.15 * len(cells[0]), *map(len, cells)) + 2 for cells in columns])
    edges = np.cumsum(widths) / widths.sum()
    height, below = 0.34 * (count + 1), 0.38 if notes else 0.1
    figure = new_figure(height + below + 0.45)
    box = Box(0.1, below, WIDTH - 0.2, height)
    axes = add_axes(figure, box)
    axes.set(xlim=(0, 1), ylim=(count + 1, 0))
    write(figure, box.left, below + height + 0.08, title, 12)
    for line in range(1, count + 1, 2):
        axes.axhspan(line, line + 1, color="#F2F2F2", linewidth=0)
    size = min(10.0, 900 / widths.sum())  # so that many columns still fit the width
    for index, cells in enumerate(columns):
        x, align = (0.01, "left") if index == 0 else (edges[index] - 0.01, "right")
        for line, cell in enumerate(cells):
            font = {"fontsize": size, "weight": "normal" if line else "bold", "color": INK}
            axes.text(x, line + 0.5, cell, font, ha=align, va="center_baseline")
    axes.axhline(1, color=INK, linewidth=1)
    caption(figure, " ".join(notes))
    save(figure, path)


def compare_runs(
    path: str | Path, runs: Sequence[Run], title: str = "Runs compared", target: float | None = None
) -> None:
    """Draw each run's IQM and interval over its trials in one picture."""
    bands = [band(run.curves) for run in runs]
    figure, axes = _captioned(_explain(bands))
    for index, (run, over_trials) in enumerate(zip(runs, bands, strict=True)):
        dashes = ("-", (0, (6, 2)), (0, (2, 1.5)))[index // len(COLOURS) % 3]
        label = f"{run.name} (n = {over_trials.trials})"
        _draw_band(axes, over_trials, COLOURS[index % len(COLOURS)], label, dashes)
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


def _draw_band(axes: Any, over_trials: Band, colour: str, label: str, dashes: Any = "-") -> None:
    marker = "o" if len(over_trials.steps) == 1 else None
    axes.plot(
        over_trials.steps,
        over_trials.iqm,
        color=colour,
        linewidth=2.2,
        ls=dashes,
        marker=marker,
        label=label,
    )
    if over_trials.low is not None and over_trials.high is not None:
        axes.fill_between(
            over_trials.steps,
            over_trials.low,
            over_trials.high,
            color=colour,
            alpha=0.2,
            linewidth=0,
        )


def _draw_spread(axes: Any, over_trials: Band) -> None:
    """Shades from 5 % to 95 % and from 25 % to 75 % of many trials."""
    low, first, third, high = over_trials.spread
    steps = over_trials.steps
    shades = {"color": SKY, "linewidth": 0}
    axes.fill_between(steps, low, high, alpha=0.22, **shades)
    axes.fill_between(steps, first, third, alpha=0.45, **shades)


def _mark_ends(axes: Any, curves: Sequence[Curve]) -> None:
    """A dot where a trial ended, a cross where its return was last finite before it failed."""
    points: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for curve in curves:
        steps, returns = (np.asarray(part, dtype=float) for part in curve)
        finite = np.flatnonzero(np.isfinite(returns))
        if len(finite):
            last = finite[-1]
            points[last < len(returns) - 1].append((steps[last], returns[last]))
    for failed, ends in points.items():
        if ends:
            marker, colour = ("X", VERMILLION) if failed else ("o", BLUE)
            shape = {"marker": marker, "color": colour, "markersize": 5.3, "linestyle": "none"}
            axes.plot(*zip(*ends, strict=True), zorder=5, **shape)


def _failed(curve: Curve) -> bool:
    returns = np.asarray(curve[1], dtype=float)
    return not len(returns) or not np.isfinite(returns[-1])


def _draw_boxes(
    axes: Any,
    labels: Sequence[str],
    returns_per_trial: Sequence[Sequence[float]],
    random: Sequence[float] | None,
) -> Scale:
    """A box and its dots for every trial and the random policy, named with their means."""
    short = len(labels) > MOST_LONG_NAMES * axes.figure.get_figwidth() / WIDTH
    names = [label.removeprefix("trial ") if short else label for label in labels]
    policies = [(returns, BLUE) for returns in returns_per_trial]
    if random is not None:
        policies.append((random, GREY))
        names.append("random")
    for index, (returns, colour) in enumerate(policies):
        mean = statistics.trial_means([returns])[0]
        if np.isfinite(mean) or colour == GREY:
            strip(axes, index, returns, colour, vertical=True)
        names[index] += f"\n{number(mean)}"
    return Scale(-0.6, max(len(names), 3) - 0.4, range(len(names)), names)


def _draw_sorted(
    axes: Any,
    labels: Sequence[str],
    returns_per_trial: Sequence[Sequence[float]],
    means: NDArray[np.float64],
) -> Scale:
    """Every trial's mean, from the worst to the best, over the range of its episodes."""
    order = np.flatnonzero(np.isfinite(means))
    order = order[np.argsort(means[order], kind="stable")]
    ranks = np.arange(len(order))
    ranges = [np.percentile(returns_per_trial[trial], [0, 25, 75, 100]) for trial in order.tolist()]
    low, first, third, high = np.reshape(ranges, (-1, 4)).T
    thick = 72 * 0.6 * axes.figure.get_figwidth() / max(len(order), 1)  # points: most of its room
    axes.vlines(ranks, low, high, color=SKY, linewidth=min(1.0, 0.5 * thick), alpha=0.5)
    axes.vlines(ranks, first, third, color=SKY, linewidth=min(7.0, thick))
    size = min(5.3, max(1.8, thick))
    axes.plot(ranks, means[order], "o", color=BLUE, markersize=size, markeredgewidth=0, zorder=3)
    named = sorted({0, (len(order) - 1) // 2, len(order) - 1}) if len(order) else []
    names = [f"{labels[order[rank]]}\n{number(means[order[rank]])}" for rank in named]
    room = 0.04 * max(len(order), 1)
    return Scale(-0.5 - room, len(order) - 0.5 + room, named, names)


def _draw_level(axes: Any, random: Sequence[float] | None) -> None:
    """The random policy's mean and the middle half of its episodes, across the whole width."""
    if random is not None and _random_words(random):
        axes.axhline(np.mean(random), color=GREY, linewidth=1.3, zorder=1)
        axes.axhspan(*np.percentile(random, [25, 75]), color=GREY, alpha=0.18, linewidth=0)


def _random_words(random: Sequence[float] | None) -> str:
    """What the caption says of the random policy; nothing where it earned no finite return."""
    mean = np.nan if random is None else statistics.trial_means([random])[0]
    return f" Grey: the random policy, {number(mean)}." if np.isfinite(mean) else ""


def _explain(bands: Sequence[Band]) -> str:
    """The caption: what line and band are, and what happened to unusual trials."""
    if not any(drawn.trials for drawn in bands):
        return "No trial has a finite return to draw."
    parts = ["Line: interquartile mean over trials; band: 95 % bootstrap interval."]
    if not any(drawn.trials > 1 for drawn in bands):
        parts = ["One trial: no interval can be drawn from a single seed."]
    if held := sum(drawn.held for drawn in bands):
        parts.append(f"{held} stopped early and keep{'s' * (held == 1)} the last value.")
    if failed := sum(drawn.failed for drawn in bands):
        parts.append(f"{failed} failed (not finite), left out.")
    return " ".join(parts)


def _explain_trials(over_trials: Band) -> str:
    """What the caption says of single trials."""
    if over_trials.trials > MOST_LINES:
        return " Shades: 5 % to 95 % and 25 % to 75 % of the trials." + (
            " Crosses: where trials failed." if over_trials.failed else ""
        )
    return " Dots: where trials ended." if over_trials.trials > 1 else ""


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


def _result_means(results: Sequence[Record]) -> NDArray[np.float64]:
    episodes = [result["evaluation"] for result in results]
    return statistics.trial_means([[] if each is None else each["returns"] for each in episodes])


def _mean(results: Sequence[Record], key: str) -> int | None:
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
