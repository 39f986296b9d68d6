"""Pictures across trials and across runs."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxima.core.records import Record
from proxima.report import statistics, style
from proxima.report.chosen import ranked
from proxima.report.statistics import Band, Curve, band
from proxima.report.style import BLUE, COLOURS, GREY, SKY, VERMILLION, WIDTH, Scale, number

MOST_LONG_NAMES = 8  # of boxes across a whole figure
MOST_LINES = 20  # trials whose curves are drawn one by one
MOST_BOXES, MOST_BOXES_NARROW = 12, 8  # trials whose returns have a box each
BOXES_WORDS = "Dot: episode; box: quartiles; diamond and number below: the trial's mean."
SORTED_WORDS = (
    "Trials from the worst to the best. Dot: mean; bar: the middle half of the episodes; thin: all."
)

Returns = Sequence[Sequence[float]]  # of each trial's episodes


class RunCurves(NamedTuple):
    """One run as a comparison sees it."""

    name: str
    curves: Sequence[Curve]
    """Evaluation steps and mean returns of each trial."""
    results: Sequence[Record]
    """results.json of each trial."""


def learning_figure(
    curves: Sequence[Curve],
    title: str = "",
    target: float | None = None,
    width: float = WIDTH,
    over_trials: Band | None = None,
) -> Any:
    """The trials as thin lines, or many as shades, under their IQM and its interval.

    over_trials: the band of the curves, if it is known already.
    """
    over_trials = band(curves) if over_trials is None else over_trials
    steps, trials = over_trials.steps, over_trials.trials
    many = trials > MOST_LINES
    words = ""
    if many:
        words = " Shades: 5 % to 95 % and 25 % to 75 % of the trials."
        words += " Crosses: where trials failed." * bool(over_trials.failed)
    elif trials > 1:
        words = " Dots: where trials ended."
    figure, axes = captioned(_explain([over_trials]) + words, width)
    if many:
        low, first, third, high = over_trials.spread
        axes.fill_between(steps, low, high, alpha=0.22, color=SKY, linewidth=0)
        axes.fill_between(steps, first, third, alpha=0.45, color=SKY, linewidth=0)
    else:
        for curve in curves:
            axes.plot(*curve, color=BLUE, linewidth=0.8, alpha=0.45)
    _mark_ends(axes, curves, failed_only=many)
    if trials:
        label = "greedy return" if trials == 1 else "IQM of the trials"
        _draw_band(axes, over_trials, BLUE, label)
    _frame_curves(axes, title, target)
    return figure


def returns_figure(
    labels: Sequence[str],
    returns_per_trial: Returns,
    random: Sequence[float] | None = None,
    title: str = "",
    width: float = WIDTH,
) -> Any:
    """The evaluation episodes of the trials, their IQM over trials and the random policy.

    Every trial has a box; of many trials there is a line of sorted means.
    """
    means = statistics.trial_means(returns_per_trial)
    summary = statistics.aggregate(means)
    iqm, low, high = summary["iqm"], summary["low"], summary["high"]
    sort = len(labels) > (MOST_BOXES if width >= WIDTH else MOST_BOXES_NARROW)
    words = SORTED_WORDS if sort else BOXES_WORDS
    level = statistics.trial_means([() if random is None else random])[0]
    if sort and np.isfinite(level):
        words += f" Grey: the random policy, {number(level)}."
    if summary["failed"]:
        words += f" {summary['failed']} failed, left out."
    figure, axes = captioned(words, width)  # the names have two lines but no label
    if sort:
        scale = _draw_sorted(axes, labels, returns_per_trial, means)
        if random is not None and np.isfinite(level):
            axes.axhline(np.mean(random), color=GREY, linewidth=1.3, zorder=1)
            axes.axhspan(*np.percentile(random, [25, 75]), color=GREY, alpha=0.18, linewidth=0)
    else:
        scale = _draw_boxes(axes, labels, returns_per_trial, random)
    if iqm is not None:
        finite = means[np.isfinite(means)]
        text = f"mean {number(iqm)}"
        if len(means) > 1 and np.ptp(finite) == 0:
            text = f"every trial's mean {number(finite[0])}"
        elif low is not None and high is not None:
            percent = statistics.coverage(len(finite))
            text = f"IQM of trial means {number(iqm)} [{number(low)}, {number(high)}] ({percent} %)"
        axes.axhline(iqm, label=text, color=VERMILLION, linewidth=1.3, zorder=1)
    if low is not None:
        axes.axhspan(low, high, color=VERMILLION, alpha=0.12, linewidth=0)
    style.frame(axes, title, "", "episode return", x=scale)
    # beside the title, for inside it would hide the dots
    style.legend(axes, loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.2)
    return figure


def compare_runs(path: str | Path, runs: Sequence[RunCurves], target: float | None = None) -> None:
    """Draw each run's IQM and interval over its trials in one picture."""
    bands = [band(run.curves) for run in runs]
    figure, axes = captioned(_explain(bands))
    for index, (run, over_trials) in enumerate(zip(runs, bands, strict=True)):
        dashes = ("-", (0, (6, 2)), (0, (2, 1.5)))[index // len(COLOURS) % 3]
        label = f"{run.name} (n = {over_trials.trials})"
        _draw_band(axes, over_trials, COLOURS[index % len(COLOURS)], label, dashes)
    _frame_curves(axes, "Runs compared", target)
    style.save(figure, path)


def _draw_band(axes: Any, over_trials: Band, colour: str, label: str, dashes: Any = "-") -> None:
    steps, iqm, low, high = over_trials[:4]
    line = {"linewidth": 2.2, "ls": dashes, "marker": "o" if len(steps) == 1 else None}
    axes.plot(steps, iqm, color=colour, label=label, **line)
    if low is not None:
        axes.fill_between(steps, low, high, color=colour, alpha=0.2, linewidth=0)


def _mark_ends(axes: Any, curves: Sequence[Curve], failed_only: bool) -> None:
    """A dot where a trial ended, a cross where its return was last finite before it failed."""
    points: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for curve in curves:
        steps, returns = (np.asarray(part, dtype=float) for part in curve)
        finite = np.flatnonzero(np.isfinite(returns))
        if len(finite):
            last = finite[-1]
            points[last < len(returns) - 1].append((steps[last], returns[last]))
    for failed, ends in points.items():
        if ends and (failed or not failed_only):
            marker, colour = ("X", VERMILLION) if failed else ("o", BLUE)
            shape = {"marker": marker, "color": colour, "markersize": 5.3, "linestyle": "none"}
            axes.plot(*zip(*ends, strict=True), zorder=5, **shape)


def _draw_boxes(
    axes: Any, labels: Sequence[str], returns_per_trial: Returns, random: Sequence[float] | None
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
            style.strip(axes, index, returns, colour, vertical=True)
        names[index] += f"\n{number(mean)}"
    return Scale(-0.6, max(len(names), 3) - 0.4, range(len(names)), names)


def _draw_sorted(
    axes: Any, labels: Sequence[str], returns_per_trial: Returns, means: NDArray[np.float64]
) -> Scale:
    """Every trial's mean, from the worst to the best, over the range of its episodes."""
    order = ranked(means.tolist())
    ranks = np.arange(len(order))
    ranges = [np.percentile(returns_per_trial[trial], [0, 25, 75, 100]) for trial in order]
    low, first, third, high = np.reshape(ranges, (-1, 4)).T
    thick = 72 * 0.6 * axes.figure.get_figwidth() / max(len(order), 1)  # points: most of its room
    axes.vlines(ranks, low, high, color=SKY, linewidth=min(1.0, 0.5 * thick), alpha=0.5)
    axes.vlines(ranks, first, third, color=SKY, linewidth=min(7.0, thick))
    size = min(5.3, max(1.8, thick))
    axes.plot(ranks, means[order], "o", color=BLUE, markersize=size, markeredgewidth=0, zorder=3)
    named = sorted({0, (len(order) - 1) // 2, len(order) - 1}) if order else []
    names = [f"{labels[order[rank]]}\n{number(means[order[rank]])}" for rank in named]
    room = 0.04 * max(len(order), 1)
    return Scale(-0.5 - room, len(order) - 0.5 + room, named, names)


def _explain(bands: Sequence[Band]) -> str:
    """The caption: what line and band are, and what happened to unusual trials."""
    if not any(drawn.trials for drawn in bands):
        return "No trial has a finite return to draw."
    drawn_over = sorted({drawn.trials for drawn in bands if drawn.trials > 1})
    levels = sorted({statistics.coverage(trials) for trials in drawn_over})
    band_words = " or ".join(f"{level} %" for level in levels) + " interval"
    parts = [f"Line: interquartile mean over trials; band: {band_words}."]
    if not drawn_over:
        parts = ["One trial: no interval can be drawn from a single seed."]
    if held := sum(drawn.held for drawn in bands):
        parts.append(f"{held} stopped early and keep{'s' * (held == 1)} the last value.")
    if failed := sum(drawn.failed for drawn in bands):
        parts.append(f"{failed} failed (not finite), left out.")
    return " ".join(parts)


def captioned(text: str, width: float = WIDTH) -> tuple[Any, Any]:
    """A figure with its caption written, and the axes above it."""
    lines = textwrap.wrap(text, round(110 * width / WIDTH))  # what fits the figure's width
    figure = style.new_figure(4.5 if width >= WIDTH else 3.6, width)
    style.caption(figure, "\n".join(lines))
    return figure, style.single_axes(figure, style.BELOW + 0.12 + 0.16 * len(lines))


def _frame_curves(axes: Any, title: str, target: float | None) -> None:
    """Add to curves what all pictures of curves have."""
    style.draw_target(axes, target)
    labels = ("environment steps", "greedy mean episode return")
    most = 10 * axes.figure.get_figwidth() / WIDTH
    style.frame(axes, title, *labels, x=style.steps_scale(axes.get_xlim()[1], most))
    # without a title there is room for it above, where it hides nothing
    above = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": 2, "borderpad": 0}
    style.legend(axes, **({} if title else above))
