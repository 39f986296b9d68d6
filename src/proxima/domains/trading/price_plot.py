"""A picture of prices over time, with the splits as shaded stretches."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxima.domains.trading.scales import seconds, shares_scale, thinned, time_scale
from proxima.report.style import (
    ABOVE,
    BELOW,
    BLUE,
    GREY,
    INK,
    ORANGE,
    VERMILLION,
    caption,
    frame,
    new_figure,
    save,
    scale,
    single_axes,
    span,
)

SHADES = {"train": BLUE, "validation": ORANGE, "test": VERMILLION}
MOST_POINTS = 12_000  # of the line: it may swing many times within a dot's width
LOGARITHMIC = 20.0  # highest over lowest price from which on equal steps are equal shares


def price_plot(
    path: str | Path,
    time: NDArray[np.datetime64],
    close: NDArray[np.float64],
    splits: Mapping[str, tuple[Any, Any]],
    title: str = "Prices",
) -> None:
    """Draw the closes, and shade each split from its first to its last time."""
    figure = new_figure(ABOVE + 3.2 + BELOW + 0.15)
    axes = single_axes(figure, BELOW + 0.15)
    drawn = thinned(close, MOST_POINTS)
    shares = close.max() / close.min() > LOGARITHMIC
    up = np.log10(close[drawn]) if shares else close[drawn]
    axes.plot(seconds(time[drawn]), up, color=INK, linewidth=0.9)
    low, high = span(up)
    room = 0.08 * (high - low)  # for the splits' names
    for name, ends in splits.items():
        first, last = seconds(np.array(ends, dtype="datetime64[us]"))
        shade = SHADES.get(name, GREY)
        axes.axvspan(first, last, color=shade, alpha=0.13, linewidth=0, zorder=0.5)
        middle = ((first + last) / 2, high + room / 2)
        axes.text(*middle, name, color=INK, fontsize=9, ha="center", va="center")
    y = shares_scale(low, high + room) if shares else scale(low, high + room, most=8)
    frame(axes, title, "", "close", x=time_scale(time[0], time[-1], most=7.0), y=y)
    if splits:
        caption(figure, "Rows between two shaded stretches belong to neither.")
    save(figure, path)
