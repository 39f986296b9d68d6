"""How every picture looks: colours, positions, scales, words, and the file it becomes.

Positions are fixed in inches and ticks are plain lines and words. Matplotlib's own layout measures
every label several times over, which took most of the time of a picture. Figures are made without
pyplot, which is slow to import and keeps global state.
"""

from collections.abc import Sequence
from io import BytesIO
from math import ceil, floor, isfinite, log10
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Okabe and Ito's palette, distinct with any colour vision
BLUE, VERMILLION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, GREY, INK = "#E69F00", "#56B4E9", "#7F7F7F", "#222222"
COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, INK)
SOFT = "#E6E6E6"  # grid lines

WIDTH = 8.0  # of a figure, in inches
NARROW = 4.2  # of one that is read on a phone
DOTS = 150  # per inch
# room around axes, in inches: title above, step names and their label below
LEFT, RIGHT, ABOVE, BELOW = 0.78, 0.15, 0.36, 0.5
MOST_DECIMALS = 5
LETTER = 0.0089  # width of a letter of size 1, in inches


class Box(NamedTuple):
    """A rectangle of a figure, in inches."""

    left: float
    bottom: float
    width: float
    height: float


class Scale(NamedTuple):
    """One direction of axes: what it spans and where it is named."""

    low: float
    high: float
    ticks: Sequence[float]
    names: Sequence[str]


def new_figure(height: float, width: float = WIDTH) -> Any:
    """A white figure; width and height are in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=DOTS, facecolor="white")


def add_axes(figure: Any, box: Box) -> Any:
    """Axes to draw in; `frame` draws what is around them once they are filled."""
    wide, tall = figure.get_size_inches()
    left, bottom, width, height = box
    axes = figure.add_axes((left / wide, bottom / tall, width / wide, height / tall))
    axes.set_axis_off()
    axes.set_title("", y=1.0)  # keeps matplotlib from searching for a free spot, which costs time
    return axes


def single_axes(figure: Any, bottom: float = BELOW) -> Any:
    """Axes that fill the figure above some room."""
    width, height = figure.get_size_inches()
    return add_axes(figure, Box(LEFT, bottom, width - LEFT - RIGHT, height - bottom - ABOVE))


def save(figure: Any, path: str | Path) -> None:
    """Write the figure as PNG, with the directories it needs."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_bytes(png(figure))


def png(figure: Any, dots: int = DOTS) -> bytes:
    """The figure as the content of a PNG file, with so many dots per inch."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure.set_dpi(dots)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    content = BytesIO()
    image = _indexed(np.asarray(canvas.buffer_rgba()))
    image.save(content, format="PNG", compress_level=3, dpi=(dots, dots))
    return content.getvalue()


def frame(
    axes: Any,
    title: str = "",
    x_label: str = "",
    y_label: str = "",
    x: Scale | None = None,
    y: Scale | None = None,
) -> None:
    """Draw the scales around filled axes; one that is not given follows from what was drawn."""
    bounds, (wide, tall) = axes.get_position(), axes.figure.get_size_inches()
    box = Box(bounds.x0 * wide, bounds.y0 * tall, bounds.width * wide, bounds.height * tall)
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    x = scale(left, right, most=box.width / 0.6) if x is None else x
    y = scale(low, high, most=max(4.0, box.height / 0.38)) if y is None else y
    axes.set(xlim=(x.low, x.high), ylim=(y.low, y.high))
    rule(axes.figure, box, x, y, title)
    middle = (box.left + box.width / 2, box.bottom + box.height / 2)
    if x_label:
        write(axes.figure, middle[0], box.bottom - 0.23, x_label, 10, ha="center", va="top")
    if y_label:
        beside = box.left - 0.14 - 9 * LETTER * max(map(len, y.names), default=0)
        beside = max(0.18, beside)  # the height of its letters, so that the edge does not cut them
        letters = {"rotation": 90, "ha": "right", "va": "center"}
        write(axes.figure, beside, middle[1], y_label, 10, **letters)


def rule(figure: Any, box: Box, x: Scale, y: Scale, title: str, size: float = 9.0) -> None:
    """Draw grid, edges, names of the ticks and title of a box; without names a scale still has its grid."""
    left, bottom, width, height = box
    across, up = inches(box, x, y, x.ticks, y.ticks)
    gap = np.array([0, 1, np.nan])  # a line per tick, all in one stroke
    grid = {"color": SOFT, "linewidth": 0.7, "zorder": -1}  # below the axes
    stroke(figure, np.repeat(across, 3), np.tile(bottom + height * gap, len(across)), **grid)
    stroke(figure, np.tile(left + width * gap, len(up)), np.repeat(up, 3), **grid)
    corners = [left, left, left + width], [bottom + height, bottom, bottom]
    stroke(figure, *corners, color=GREY, linewidth=0.8)
    for tick, name in zip(across, x.names, strict=False):
        write(figure, tick, bottom - 0.06, name, size, ha="center", va="top")
    for tick, name in zip(up, y.names, strict=False):
        write(figure, left - 0.07, tick, name, size, ha="right", va="center_baseline")
    write(figure, left, bottom + height + 0.08, title, 1.2 * size if size < 9 else 12)


def inches(
    box: Box, x: Scale, y: Scale, across: ArrayLike, up: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Where in the figure values are that a box shows."""
    right = (np.asarray(across, dtype=float) - x.low) / (x.high - x.low)
    above = (np.asarray(up, dtype=float) - y.low) / (y.high - y.low)
    return box.left + box.width * right, box.bottom + box.height * above


def stroke(figure: Any, x: ArrayLike, y: ArrayLike, **options: Any) -> None:
    """A line through points in inches."""
    from matplotlib.lines import Line2D

    figure.add_artist(Line2D(x, y, transform=figure.dpi_scale_trans, **options))


def write(figure: Any, x: float, y: float, text: str, size: float = 9.0, **options: Any) -> None:
    """Words at a point in inches."""
    if text:
        defaults = {"color": INK, "fontsize": size, "transform": figure.dpi_scale_trans}
        figure.text(x, y, text, **defaults | options)


def scale(low: float, high: float, most: float, whole: bool = False) -> Scale:
    """Round numbers between low and high, in at most so many steps of 1, 2 or 5 times 10ⁿ."""
    least = (high - low) / max(most, 2)
    power = 10.0 ** floor(log10(least))
    step = next(n * power for n in (1, 2, 5, 10) if n * power >= 0.999 * least)
    step = max(1.0, step) if whole else step
    # the nudge keeps a tick that rounding put just outside
    counts = range(ceil(low / step - 1e-6), floor(high / step + 1e-6) + 1)
    ticks = [count * step for count in counts]
    return Scale(low, high, ticks, spell(ticks, step))


def spell(ticks: Sequence[float], step: float) -> list[str]:
    """Ticks of a scale as people write them: 0.05, 400, 20k, 1.5M, 2e−6."""
    largest = max(map(abs, ticks), default=0.0)
    if largest >= 1e15 or step < 1e-4:
        digits = max(0, floor(log10(max(largest, step))) - floor(log10(step)))
        names = [f"{tick:.{digits}e}".replace("e-0", "e-").replace("e+", "e") for tick in ticks]
    else:
        thousands = max(0, floor(log10(largest)) // 3) if largest >= 10_000 else 0
        unit = 1000.0**thousands
        digits = max(0, -floor(log10(step / unit) + 1e-9))
        letter = ("", "k", "M", "G", "T")[thousands]
        names = [f"{tick / unit:,.{digits}f}{letter}" for tick in ticks]
    written = zip(ticks, names, strict=True)
    return ["0" if tick == 0 else name.replace("-", "−") for tick, name in written]


def steps_scale(last: float, most: float = 10.0) -> Scale:
    """The scale of environment steps: from 0 on, in whole steps."""
    return scale(0.0, last, most, whole=True)


def span(values: ArrayLike) -> tuple[float, float]:
    """The least and greatest finite value with a little room, also where they are one number."""
    array = np.asarray(values, dtype=float)
    array = array[np.isfinite(array)]
    if not len(array):
        return 0.0, 1.0
    low, high = float(array.min()), float(array.max())
    size = max(abs(low), abs(high))
    # rounding errors are not worth a scale of their own
    room = 0.05 * (high - low) if high - low > 1e-4 * size else 0.05 * (size or 1.0)
    return low - room, high + room


def legend(axes: Any, **options: Any) -> None:
    """Name what was drawn, where there is room."""
    if axes.get_legend_handles_labels()[0]:
        defaults = {"loc": "best", "fontsize": 9, "framealpha": 0.9, "edgecolor": "none"}
        axes.legend(labelcolor=INK, **defaults | options)


def caption(figure: Any, text: str) -> None:
    """Say below the axes how to read them."""
    write(figure, 0.12, 0.1, text, 8.5, color="#555555", va="bottom")


def draw_target(axes: Any, target: float | None) -> None:
    """A dashed line at the return that counts as solved."""
    if target is not None:
        label = f"target {number(target)}"
        axes.axhline(target, color=INK, linestyle=(0, (5, 3)), linewidth=1.2, label=label)


def strip(axes: Any, position: float, returns: ArrayLike, colour: str, vertical: bool) -> None:
    """Every finite return as a dot, the quartile box behind and the mean as a diamond in front."""
    values = np.asarray(returns, dtype=float)
    values = values[np.isfinite(values)]
    if not len(values):
        return
    # the golden ratio spreads any number of dots evenly, and the same way each time
    spread = position + 0.5 * ((np.arange(len(values)) * 0.618034) % 1 - 0.5)
    first, median, third = np.percentile(values, [25, 50, 75])
    reach = 1.5 * (third - first)  # Tukey's whiskers: to the last dot within it
    low = values[values >= first - reach].min()
    high = values[values <= third + reach].max()
    left, right, gap = position - 0.31, position + 0.31, np.nan

    def put(across: ArrayLike, up: ArrayLike) -> tuple[ArrayLike, ArrayLike]:
        return (across, up) if vertical else (up, across)

    box = put([left, right, right, left], [first, first, third, third])
    axes.fill(*box, color=colour, alpha=0.18, linewidth=0.8, zorder=1.5)
    caps = (position - 0.15, position + 0.15)
    whiskers = put(
        [*caps, gap, position, position, gap, position, position, gap, *caps],
        [low, low, gap, low, first, gap, third, high, gap, high, high],
    )
    axes.plot(*whiskers, color=colour, linewidth=1.0)
    axes.plot(*put([left, right], [median, median]), color=colour, linewidth=1.5)
    dots = {"color": colour, "linestyle": "none", "markeredgewidth": 0}
    axes.plot(*put(spread, values), marker="o", markersize=3.4, alpha=0.55, zorder=3, **dots)
    dots |= {"markeredgecolor": "white", "markeredgewidth": 1.0}
    axes.plot(*put([position], [values.mean()]), marker="D", markersize=7.7, zorder=4, **dots)


def number(value: float, digits: int | None = None) -> str:
    """A number as people write it: no decimals where they say nothing."""
    if not isfinite(value):
        return "failed"
    digits = decimals(value) if digits is None else digits
    text = f"{value:,.{digits}f}"
    if value != 0 and not text.strip("-0."):  # 0.00 would say that there is nothing
        text = f"{value:.2g}"
    return text.replace("-", "−")


def decimals(value: float) -> int:
    """How many decimals of a number are worth reading."""
    if not isfinite(value) or value == round(value) or abs(value) >= 1000:
        return 0
    if abs(value) >= 10:
        return 1
    return min(max(2, 1 - floor(log10(abs(value)))), MOST_DECIMALS)


def _indexed(pixels: NDArray[np.uint8]) -> Any:
    """The (height, width, 4) picture with its 256 commonest colours: half the file and the time.

    Pictures have some hundred colours, nearly all of them shades on the edges of letters.
    """
    from PIL import Image

    packed = np.ascontiguousarray(pixels).view(np.uint32)[..., 0]
    drawn = packed != 0xFFFFFFFF  # most of a picture is white, which is not worth sorting
    values = packed[drawn]
    colours, counts = np.unique(values, return_counts=True)
    channels = colours.view(np.uint8).reshape(-1, 4)[:, :3].astype(np.float32)
    common = np.vstack([channels[np.argsort(counts)[-255:]], np.full((1, 3), 255, np.float32)])
    nearest = (np.square(common).sum(axis=1) - 2 * channels @ common.T).argmin(axis=1)
    indices = np.full(packed.shape, len(common) - 1, dtype=np.uint8)
    indices[drawn] = nearest.astype(np.uint8)[np.searchsorted(colours, values)]
    image = Image.fromarray(indices)
    image.putpalette(common.astype(np.uint8).tobytes())
    return image
