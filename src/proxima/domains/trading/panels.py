"""A picture of panels one below the other: title, key to the lines, panels, one scale of time.

The key stands in lines above the panels, where it cannot hide what it names.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from proxima.report.style import (
    LEFT,
    RIGHT,
    WIDTH,
    Box,
    Scale,
    add_axes,
    frame,
    new_figure,
    stroke,
    write,
)

# inches: above all, of a line of the key, between panels, for the names of times at the bottom
TITLE, KEY_LINE, GAP, FOOT = 0.36, 0.22, 0.2, 0.3
SAMPLE = 0.26  # inches of line that a key shows
SIZE = 9.0  # of the key's letters
FAINT = 0.3  # opacity of areas


class Key(NamedTuple):
    """What something drawn is called."""

    name: str
    colour: str
    kind: Literal["line", "area", "mark"] = "line"
    style: Any = "-"
    """The line's dashes or the mark's shape, as matplotlib writes them."""
    thick: float = 1.6


def new_panels(
    title: str,
    keys: Sequence[Key],
    heights: Sequence[float],
    width: float = WIDTH,
    gaps: Sequence[float] | None = None,
) -> tuple[Any, list[Any]]:
    """A figure with its title and key written, and empty axes of these heights from the top down."""
    gaps = [GAP] * (len(heights) - 1) if gaps is None else gaps
    lines = _lines(keys, width - LEFT - RIGHT)
    above = TITLE + KEY_LINE * len(lines) + 0.08
    tall = above + sum(heights) + sum(gaps) + FOOT
    figure = new_figure(tall, width)
    write(figure, LEFT, tall - 0.26, title, 12)
    for number, line in enumerate(lines):
        _write_keys(figure, tall - TITLE - KEY_LINE * (number + 0.5), line)
    axes, top = [], tall - above
    for height, gap in zip(heights, [*gaps, FOOT], strict=True):
        axes.append(add_axes(figure, Box(LEFT, top - height, width - LEFT - RIGHT, height)))
        top -= height + gap
    return figure, axes


def frame_panels(
    axes: Sequence[Any], labels: Sequence[str], x: Scale, scales: Sequence[Any]
) -> None:
    """Draw the scales of panels that share the one across: only the lowest names its ticks."""
    for index, (panel, label, y) in enumerate(zip(axes, labels, scales, strict=True)):
        lowest = index == len(axes) - 1
        frame(panel, "", "", label, x=x if lowest else x._replace(names=()), y=y)


def _lines(keys: Sequence[Key], width: float) -> list[list[Key]]:
    """Keys in lines of at most so many inches."""
    lines: list[list[Key]] = []
    used = width
    for key in keys:
        if used + _width(key) > width + 0.25:  # the gap after the last one may stick out
            lines.append([])
            used = 0.0
        lines[-1].append(key)
        used += _width(key)
    return lines


def _width(key: Key) -> float:
    """Inches that a key takes, with the gap behind it."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(size=SIZE)
    points, _, _ = text_to_path.get_text_width_height_descent(key.name, font, ismath=False)
    return SAMPLE + 0.07 + points / 72 + 0.25


def _write_keys(figure: Any, middle: float, keys: Sequence[Key]) -> None:
    left = LEFT
    for key in keys:
        ends = [left, left + SAMPLE]
        if key.kind == "line":
            stroke(figure, ends, [middle] * 2, color=key.colour, ls=key.style, linewidth=key.thick)
        elif key.kind == "area":
            style = {"color": key.colour, "alpha": FAINT, "solid_capstyle": "butt"}
            stroke(figure, ends, [middle] * 2, linewidth=9, **style)
        else:
            style = {"color": key.colour, "marker": key.style, "markersize": 6, "linestyle": "none"}
            stroke(figure, [left + SAMPLE / 2], [middle], **style)
        write(figure, left + SAMPLE + 0.07, middle, key.name, SIZE, va="center_baseline")
        left += _width(key)
