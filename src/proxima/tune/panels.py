"""What the pictures of a search share: panels in rows, scales of settings, and the range of values."""

import textwrap
from collections.abc import Sequence
from math import ceil, floor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxima.report import style
from proxima.report.style import LETTER, WIDTH, Box, Scale
from proxima.tune.axes import Axis, spelled

TALL, BETWEEN = 1.35, 0.62  # inches: of a panel, and from it to the next one below
SIZE, TITLE_SIZE = 8.0, 9.6  # of letters around a panel, and above it
MOST_TICKS = 6
OBJECTIVES = {
    "final": "final {}",
    "best": "best {}",
    "area": "mean of {} over training",
    "steps_to_target": "steps until {} reached its target",
}


def value_words(objective: str, metric: str) -> str:
    """What a configuration's value is."""
    return OBJECTIVES.get(objective, f"{objective} of {{}}").format(metric)


def panels(
    count: int, width: float, words: str, left: float, gap: float, foot: float = 0.0
) -> tuple[Any, list[Box]]:
    """A figure with room for so many panels in rows, and its caption below them.

    left, gap: room before the first panel of a row, and between two; foot: room above the caption.
    """
    # No row with a single panel where that can be.
    columns = 2 if width < WIDTH or count in (1, 2, 4) else 3
    rows = -(-count // columns)
    lines = textwrap.wrap(words, round(110 * width / WIDTH))
    below = 0.28 + 0.16 * len(lines) + foot
    figure = style.new_figure(below + rows * (TALL + BETWEEN) - 0.06, width)
    style.caption(figure, "\n".join(lines))
    wide = (width - left - 0.15 - gap * (columns - 1)) / columns
    boxes = []
    for index in range(count):
        row, column = divmod(index, columns)
        bottom = below + (rows - 1 - row) * (TALL + BETWEEN) + 0.24
        boxes.append(Box(left + column * (wide + gap), bottom, wide, TALL))
    return figure, boxes


def title(figure: Any, box: Box, name: str, mark: str = "") -> None:
    """The name of a setting above its panel, after a mark; of a long one the end."""
    room = box.width + 0.2 - TITLE_SIZE * LETTER * len(mark)
    text = mark + shorten(name, room, TITLE_SIZE, tail=True)
    style.write(figure, box.left, box.bottom + box.height + 0.07, text, TITLE_SIZE)


def shorten(text: str, inches: float, size: float = SIZE, tail: bool = False) -> str:
    """As much of a text as fits a width; its end rather than its beginning with `tail`."""
    most = max(2, int(inches / (size * LETTER)))
    if len(text) <= most:
        return text
    return f"…{text[len(text) - most + 1 :]}" if tail else f"{text[: most - 1]}…"


def setting_scale(axis: Axis, low: float, high: float, room: float, upright: bool = False) -> Scale:
    """The scale of a setting between two places on its axis.

    room: inches that there are for the names: of all together, or upright for each.
    """
    if axis.kind == "choice":
        count = len(axis.choices)
        each = room if upright else room / count
        names = [shorten(spelled(choice), each) for choice in axis.choices]
        return Scale(-0.5, count - 0.5, range(count), names)
    scales = [_number_scale(axis, low, high, most) for most in range(MOST_TICKS, 1, -1)]
    fitting = (
        scale for scale in scales if len(scale.ticks) > 1 and (upright or _fits(scale, room))
    )
    return next(fitting, _ends(scales[0]))


def _fits(scale: Scale, room: float) -> bool:
    return sum(len(name) + 2 for name in scale.names) * SIZE * LETTER <= room


def _ends(scale: Scale) -> Scale:
    """The scale with its first and last tick alone."""
    ends = sorted({0, len(scale.ticks) - 1}) if len(scale.ticks) else []
    return scale._replace(
        ticks=[scale.ticks[end] for end in ends], names=[scale.names[end] for end in ends]
    )


def _number_scale(axis: Axis, low: float, high: float, most: int) -> Scale:
    if axis.kind == "log":
        return log_scale(low, high, most)
    return style.scale(low, high, most, whole=axis.kind == "int")


def log_scale(low: float, high: float, most: float) -> Scale:
    """Powers of ten between two logarithms; between close ones also 2 and 5 times such."""
    powers = range(ceil(low - 1e-9), floor(high + 1e-9) + 1)
    ticks = [(1, power) for power in powers]
    if len(ticks) < 2:
        spread = range(floor(low), ceil(high) + 1)
        ticks = [(digit, power) for power in spread for digit in (1, 2, 5)]
    inside = [(d, p) for d, p in ticks if low - 1e-9 <= np.log10(d) + p <= high + 1e-9]
    every = max(1, ceil(len(inside) / max(most, 2)))
    shown = inside[::every]
    names = [_power_words(digit, power) for digit, power in shown]
    return Scale(low, high, [float(np.log10(d) + p) for d, p in shown], names)


def _power_words(digit: int, power: int) -> str:
    if -2 <= power <= 3:
        return f"{digit * 10.0**power:g}"
    return f"{digit}e{power}".replace("-", "−")


def window(values: NDArray[np.float64], sign: float) -> tuple[float, float]:
    """The range of values worth drawing: the good end whole, the bad end without outliers (Tukey's fence)."""
    known = sign * values[np.isfinite(values)]
    if not len(known):
        return 0.0, 1.0
    first, third = np.percentile(known, [25, 75])
    kept = known[known >= first - 1.5 * (third - first)]
    return float((sign * kept).min()), float((sign * kept).max())


def outside_words(values: NDArray[np.float64], low: float, high: float) -> str:
    """How many values a picture leaves out, in a sentence; nothing where it shows all."""
    count = int(((values < low) | (values > high)).sum())
    return f" {count} far worse: outside the picture." if count else ""


def shades(values: Any, low: float, high: float, levels: int = 24) -> Any:
    """Values as shares of a range in so many levels; a picture keeps only 256 colours."""
    share = np.clip((values - low) / max(high - low, 1e-12), 0.0, 1.0)
    return np.round(share * (levels - 1)) / (levels - 1)


def colour_bar(figure: Any, left: float, bottom: float, ends: Sequence[str], cmap: str) -> None:
    """A small bar of all colours, with what its two ends stand for."""
    style.write(figure, left, bottom + 0.06, ends[0], SIZE, va="center_baseline")
    start = left + SIZE * LETTER * len(ends[0]) + 0.08
    bar = style.add_axes(figure, Box(start, bottom, 1.5, 0.12))
    bar.pcolormesh(np.linspace(0, 1, 25)[None, :-1], cmap=cmap, vmin=0, vmax=1)
    style.write(figure, start + 1.58, bottom + 0.06, ends[1], SIZE, va="center_baseline")
