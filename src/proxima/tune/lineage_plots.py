"""Pictures of a population: who copied whom, and the settings that led to its best member."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from proxima.report import style
from proxima.report.comparison import captioned
from proxima.report.style import BLUE, GREY, ORANGE, SOFT, VERMILLION, WIDTH, Scale
from proxima.tune.axes import Axis, axis_of, positions, short_names, spelled_at
from proxima.tune.lineage import Span, ancestry, ever, spans
from proxima.tune.panels import SIZE, colour_bar, panels, setting_scale, shades, title
from proxima.tune.results import SearchResult


def lineage_figure(result: SearchResult, path: str, width: float = WIDTH) -> Any:
    """Members over their training, coloured by a setting; thin lines join copies to their sources."""
    rows = {row.number: place for place, row in enumerate(result.configurations)}
    every = [span for row in result.configurations for span in spans(result, row)]
    words = (
        f"Row: a member; colour: {path}; thin line: a copy; orange: how the best one came about."
    )
    figure, axes = captioned(words, width)
    for copy in result.copies:
        ends = [rows[copy.source], rows[copy.member]]
        axes.plot([copy.steps] * 2, ends, color=GREY, linewidth=0.6, alpha=0.7, zorder=1)
    names = _draw_members(axes, rows, every, _axis(result, path))
    chosen = [row for row in result.configurations if row.number == result.chosen]
    best = [span for row in chosen for span in ancestry(result, row)]
    steps = [step for span in best for step in (span.start, span.end)]
    axes.plot(steps, np.repeat([rows[s.member] for s in best], 2), color=ORANGE, lw=1.8, zorder=4)
    x = style.steps_scale(1.01 * max(span.end for span in every), 10 * width / WIDTH)
    y = style.scale(-0.6, len(rows) - 0.4, most=10, whole=True)
    members = [str(list(rows)[int(tick)]) for tick in y.ticks]
    y = Scale(y.high, y.low, y.ticks, members)  # the first on top
    style.frame(axes, "", "environment steps of a training", "member", x=x, y=y)
    colour_bar(figure, style.LEFT, figure.get_figheight() - 0.22, names, "viridis")
    return figure


def _draw_members(
    axes: Any, rows: Mapping[int, int], every: Sequence[Span], axis: Axis
) -> tuple[str, str]:
    """A bar for each span, grey where its settings are not known; what the ends of the colours stand for."""
    values = [None if s.settings is None else s.settings.get(axis.path) for s in every]
    places = positions(axis, values)
    places[[s.settings is None for s in every]] = np.nan  # nothing is a choice of its own elsewhere
    known = places[np.isfinite(places)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)
    bars = [rows[s.member] for s in every], [s.start for s in every], [s.end for s in every]
    thick = 72 * 0.6 * axes.bbox.height / axes.figure.dpi / len(rows)  # points
    axes.hlines(*bars, color=SOFT, linewidth=thick, zorder=2)
    coloured = axes.hlines(*bars, linewidth=thick, zorder=3)
    shade = shades(np.ma.masked_invalid(places), low, high)
    coloured.set(array=shade, cmap="viridis", clim=(0, 1))
    return (spelled_at(axis, low), spelled_at(axis, high)) if len(known) else ("", "")


def ancestry_figure(result: SearchResult, paths: Sequence[str], width: float = WIDTH) -> Any:
    """A panel per setting: its value over the trainings that ended in the best member."""
    row = next(each for each in result.configurations if each.number == result.chosen)
    words = (
        "The settings over the training that ended in the best member; dot: where it became a copy."
    )
    figure, boxes = panels(len(paths), width, words, left=0.62, gap=0.66)
    x = style.steps_scale(1.02 * max(row.steps, 1), most=5)
    names = short_names(paths)
    for box, path in zip(boxes, paths, strict=True):
        axis = _axis(result, path)
        panel = style.add_axes(figure, box)
        _draw_descent(panel, axis, ancestry(result, row))
        y = setting_scale(axis, *style.span(positions(axis, ever(result, path))), 0.5, upright=True)
        panel.set(xlim=(x.low, x.high), ylim=(y.low, y.high))
        style.rule(figure, box, x, y, "", SIZE)
        title(figure, box, names[path])
    return figure


def _draw_descent(panel: Any, axis: Axis, descent: Sequence[Span]) -> None:
    """Steps from one value to the next, with a dot where each begins."""
    known = [(span, span.settings.get(axis.path)) for span in descent if span.settings is not None]
    level = positions(axis, [value for _, value in known])
    steps = [step for span, _ in known for step in (span.start, span.end)]
    panel.plot(steps, np.repeat(level, 2), color=BLUE)
    copied = np.array([span.start > 0 for span, _ in known], dtype=bool)
    panel.plot(np.array(steps[::2])[copied], level[copied], "o", color=VERMILLION, markersize=3.5)


def _axis(result: SearchResult, path: str) -> Axis:
    """The axis of all values that a setting ever had."""
    return axis_of(path, result.space.get(path, ""), ever(result, path))
