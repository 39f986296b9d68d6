"""Pictures of a search: its progress, what each setting did, what mattered, and learning curves."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxima.report import style
from proxima.report.comparison import captioned
from proxima.report.style import (
    BLUE,
    COLOURS,
    GREY,
    INK,
    ORANGE,
    SKY,
    VERMILLION,
    WIDTH,
    Box,
    Scale,
)
from proxima.tune.axes import Axis, axes_of, column, positions, short_names
from proxima.tune.effects import (
    Importance,
    Pair,
    Slice,
    best_so_far,
    better,
    pair_means,
    ranks,
    values_of,
)
from proxima.tune.panels import (
    SIZE,
    colour_bar,
    outside_words,
    panels,
    setting_scale,
    shades,
    shorten,
    title,
    value_words,
    window,
)
from proxima.tune.results import Configuration, SearchResult

MOST_BARS = 20
MOST_PAIRS = 6
MOST_CURVES, MOST_CURVES_NARROW = 5, 3  # that are drawn in colour
MOST_LETTERS, MOST_LETTERS_NARROW = 47, 36  # of a label beside the axes; the edge would cut more
MOST_GREY = 500  # curves that are drawn behind them
DASHES = (0, (4, 3))


def best_figure(result: SearchResult, own: float | None = None, width: float = WIDTH) -> Any:
    """The best value over the search's environment steps; `own`: what the scenario's own settings earn."""
    values, best = values_of(result), best_so_far(result)
    finished = [each.finished for each in result.configurations]
    low, high = style.span(window(values, better(result)))
    words = "Line: the best value so far. Dot: a configuration, when its value was known."
    words += " Dashed: on new seeds." if own is not None else ""
    label, up = _upward(value_words(result.objective, result.metric), width)
    figure, axes = captioned(up + words + outside_words(values, low, high), width)
    axes.plot(finished, values, "o", color=GREY, markersize=3.6, alpha=0.5, markeredgewidth=0)
    if len(best.steps):
        steps = [*best.steps, max(result.steps, best.steps[-1])]
        level = [*best.values, best.values[-1]]
        axes.step(steps, level, where="post", color=BLUE, linewidth=2.2, label="best so far")
    if own is not None:
        low, high = min(low, own), max(high, own)
        name = f"the scenario's own: {style.number(own)}"
        axes.axhline(own, color=INK, linestyle=DASHES, linewidth=1.2, label=name)
    last = 1.03 * max(result.steps, *finished, 1)
    x = style.steps_scale(last, 10 * width / WIDTH)
    y = style.scale(low, high, most=8)
    style.frame(axes, "", "environment steps of the search", label, x=x, y=y)
    _legend_above(axes, columns=2)
    return figure


def curves_figure(result: SearchResult, width: float = WIDTH) -> Any:
    """The learning curves of the best few configurations in colour over others in grey."""
    rows = [result.configurations[index] for index in ranks(result)]
    rows = [row for row in rows if row.curve]
    chosen_first = sorted(rows, key=lambda row: row.number != result.chosen)
    most = MOST_CURVES if width >= WIDTH else MOST_CURVES_NARROW
    best = chosen_first[:most]
    others = rows[:: -(-len(rows) // MOST_GREY)]  # evenly over good and bad ones
    broken = [row.curve[-1] for row in rows if row.state == "broken"]
    words = "Grey: other configurations." if len(rows) > len(best) else ""
    words += " Cross: where one broke down." if broken else ""
    sign = -1.0 if result.direction == "minimise" else 1.0  # of the metric, not of the value
    points = np.array([value for row in rows for _, value in row.curve], dtype=float)
    low, high = style.span(window(points, sign))
    ends = np.array([row.curve[-1][1] for row in rows], dtype=float)
    label, up = _upward(result.metric, width)
    figure, axes = captioned(up + words + outside_words(ends, low, high), width)
    gap = (np.nan, np.nan)  # between two curves, so that all are one stroke
    grey = [point for row in others for point in (*row.curve, gap)]
    axes.plot(*zip(*grey, strict=True), color=GREY, linewidth=0.7, alpha=0.35)
    _draw_best(axes, best)
    marks = {"marker": "X", "color": VERMILLION, "markersize": 5, "linestyle": "none"}
    axes.plot([steps for steps, _ in broken], [value for _, value in broken], **marks)
    x = style.steps_scale(1.03 * max(row.curve[-1][0] for row in rows), 10 * width / WIDTH)
    y = style.scale(low, high, most=8)
    style.frame(axes, "", "environment steps of a training", label, x=x, y=y)
    _legend_above(axes, columns=MOST_CURVES, reverse=True)
    return figure


def _upward(label: str, width: float) -> tuple[str, str]:
    """What the values are as a label beside the axes, or, if it is too long, at the start of the caption."""
    most = MOST_LETTERS if width >= WIDTH else MOST_LETTERS_NARROW
    return (label, "") if len(label) <= most else ("", f"Up: {label}. ")


def _draw_best(axes: Any, best: Sequence[Configuration]) -> None:
    """Curves in colour, the first on top of the others."""
    for place, row in reversed(list(enumerate(best))):
        label = f"{'configuration ' * (place == 0)}{row.number}"
        line = {"linewidth": 2.4 if place == 0 else 1.4, "color": COLOURS[place], "label": label}
        lone = "o" if len(row.curve) == 1 else None
        axes.plot(*zip(*row.curve, strict=True), marker=lone, **line)


def _legend_above(axes: Any, columns: int, **options: Any) -> None:
    """Where it hides nothing."""
    above = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderpad": 0.2}
    above |= {"columnspacing": 0.9, "handlelength": 1.5, "handletextpad": 0.5}
    style.legend(axes, ncols=columns, **above, **options)


def slices_figure(
    result: SearchResult, found: Mapping[str, Sequence[Slice]], width: float = WIDTH
) -> Any:
    """A panel per setting: every configuration's value, and the mean in each bin with its interval."""
    values = values_of(result)
    low, high = style.span(window(values, better(result)))
    ends = [end for each in found.values() for s in each for end in (s.low, s.high)]
    known = [low, high, *(end for end in ends if end is not None)]
    low, high = min(known), max(known)
    words = (
        f"Up: {value_words(result.objective, result.metric)}. Grey dot: a configuration; blue: mean of a bin "
        "and its interval; orange: the chosen one; dashed: the scenario's own value"
    )
    words += "; cross: broke down." if np.isnan(values).any() else "."
    words += outside_words(values, low, high)
    figure, boxes = panels(len(found), width, words, left=0.62, gap=0.28)
    y = style.scale(low, high, most=5)
    names = short_names(found)
    axes = {axis.path: axis for axis in axes_of(result)}
    for box, axis in zip(boxes, (axes[path] for path in found), strict=True):
        first = box.left == boxes[0].left  # of a row: the others have the same scale
        scale = y if first else y._replace(names=())
        _slice_panel(figure, box, result, axis, found[axis.path], scale)
        title(figure, box, names[axis.path])
    return figure


def _slice_panel(
    figure: Any, box: Box, result: SearchResult, axis: Axis, found: Sequence[Slice], y: Scale
) -> None:
    panel = style.add_axes(figure, box)
    places = positions(axis, column(result, axis.path))
    own = positions(axis, [result.own.get(axis.path)])
    x = setting_scale(axis, *style.span([*places, *own]), box.width)
    beside = places + _spread(len(places)) if axis.kind == "choice" else places
    worst = y.low + (0.04 if better(result) > 0 else 0.96) * (y.high - y.low)
    _draw_configurations(panel, result, beside, worst)
    if np.isfinite(own[0]):
        panel.axvline(own[0], color=INK, linestyle=DASHES, linewidth=0.9)
    _draw_means(panel, found, line="none" if axis.kind == "choice" else "-")
    panel.set(xlim=(x.low, x.high), ylim=(y.low, y.high))
    style.rule(figure, box, x, y, "", SIZE)


def _draw_configurations(
    panel: Any, result: SearchResult, places: NDArray[np.float64], worst: float
) -> None:
    """A dot for each, the chosen one as a diamond, and those that broke down as crosses at the worst end."""
    values = values_of(result)
    dots = {"linestyle": "none", "markeredgewidth": 0}
    panel.plot(places, values, marker="o", color=GREY, markersize=3, alpha=0.4, **dots)
    broken = places[np.isnan(values)]
    crosses = {"marker": "X", "color": VERMILLION, "markersize": 4, "alpha": 0.7}
    panel.plot(broken, np.full(len(broken), worst), **crosses, **dots)
    chosen = [k for k, row in enumerate(result.configurations) if row.number == result.chosen]
    edge = {"markeredgecolor": "white", "markeredgewidth": 0.8, "linestyle": "none", "zorder": 5}
    panel.plot(places[chosen], values[chosen], "D", color=ORANGE, markersize=6.5, **edge)


def _draw_means(panel: Any, found: Sequence[Slice], line: str) -> None:
    shown = [each for each in found if each.mean is not None]
    marks = {"marker": "o", "markersize": 4.6, "linewidth": 1.4, "color": BLUE, "zorder": 4}
    panel.plot([s.place for s in shown], [s.mean for s in shown], linestyle=line, **marks)
    sure = [each for each in shown if each.low is not None]
    ends = [s.low for s in sure], [s.high for s in sure]
    panel.vlines([s.place for s in sure], *ends, color=BLUE, linewidth=2.2, alpha=0.55)


def _spread(count: int) -> NDArray[np.float64]:
    """Small offsets that keep dots of one choice apart; the golden ratio spreads any number evenly."""
    return 0.4 * ((np.arange(0.0, count) * 0.618034) % 1 - 0.5)


def importance_figure(found: Importance, width: float = WIDTH) -> Any:
    """A bar per setting: the share of the values' variance that it explains on its own."""
    shares = dict(list(found.shares.items())[:MOST_BARS])
    names = short_names(found.shares)
    words = "Left of the dashed line a share is not told apart from chance."
    left = min(0.2 + 9 * style.LETTER * max(len(names[path]) for path in shares), 0.42 * width)
    height = 0.27 * len(shares)
    below = style.BELOW + 0.28
    figure = style.new_figure(below + height + 0.12, width)
    style.caption(figure, words)
    axes = style.add_axes(figure, Box(left, below, width - left - 0.55, height))
    rows = range(len(shares))
    beyond = [share > found.chance for share in shares.values()]
    axes.barh(rows, shares.values(), height=0.62, color=[BLUE if b else SKY for b in beyond])
    axes.axvline(found.chance, color=INK, linestyle=DASHES, linewidth=1.1)
    last = max(0.1, found.chance, *shares.values())
    letters = {"fontsize": 9, "va": "center_baseline", "color": INK}
    for row, share in enumerate(shares.values()):
        axes.text(share + 0.01 * last, row, f"{100 * share:.0f} %", **letters)
    x = style.scale(0.0, 1.06 * last, most=6 * width / WIDTH + 1)
    x = x._replace(names=[f"{100 * tick:.3g} %" for tick in x.ticks])
    labels = [shorten(names[path], left - 0.15, 9, tail=True) for path in shares]
    y = Scale(len(shares) - 0.5, -0.5, rows, labels)
    style.frame(axes, "", "share of the variance explained alone", x=x, y=y)
    return figure


def pairs_figure(result: SearchResult, pairs: Sequence[Pair], width: float = WIDTH) -> Any:
    """Heat maps of the mean value over two settings each, all in one scale of colours."""
    axes = {axis.path: axis for axis in axes_of(result)}
    cells = [pair_means(result, axes[pair.first], axes[pair.second]) for pair in pairs]
    means = np.concatenate([each[2].ravel() for each in cells])
    low, high = window(means, better(result))
    cmap = "viridis" if better(result) > 0 else "viridis_r"
    words = "Colour: mean value of the configurations in a cell, brighter is better; white: none was there."
    figure, boxes = panels(len(pairs), width, words, left=0.62, gap=0.66, foot=0.42)
    colour_bar(figure, 0.12, 0.5, [style.number(low), style.number(high)], cmap)
    names = short_names(axes)
    for box, pair, (across, up, mean) in zip(boxes, pairs, cells, strict=True):
        panel = style.add_axes(figure, box)
        shade = shades(np.ma.masked_invalid(mean), low, high)
        panel.pcolormesh(across.edges, up.edges, shade, cmap=cmap, vmin=0, vmax=1)
        x = setting_scale(axes[pair.first], across.edges[0], across.edges[-1], box.width)
        y = setting_scale(axes[pair.second], up.edges[0], up.edges[-1], 0.5, upright=True)
        panel.set(xlim=(x.low, x.high), ylim=(y.low, y.high))
        style.rule(figure, box, x, y, "", SIZE)
        title(figure, box, names[pair.second], mark="↑ ")
        label = shorten(names[pair.first], box.width, 9, tail=True) + " →"
        place = {"ha": "right", "va": "top"}
        style.write(figure, box.left + box.width, box.bottom - 0.2, label, 9, **place)
    return figure
