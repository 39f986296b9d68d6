"""What a rollout frame looks like in axes: prices, weights and rewards over time.

All have a bounded number of points, however many bars there are.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from proxima.domains.trading.panels import FAINT, Key
from proxima.domains.trading.rollouts import Floats, column, times
from proxima.domains.trading.scales import seconds, thinned, time_scale
from proxima.report.style import (
    BLUE,
    GREY,
    INK,
    LEFT,
    LETTER,
    RIGHT,
    VERMILLION,
    Scale,
    scale,
    span,
)

if TYPE_CHECKING:
    import polars as pl

MOST_STRIPES = 1_500  # bars whose weights are drawn one by one
MOST_TRADES = 150  # from which on weights one by one would be a barcode
BUNDLES = 100  # of bars, whose mean weight is drawn instead


def draw_price(panel: Any, frame: "pl.DataFrame", marks: bool, before: float) -> Scale:
    """The fill prices, shaded by the weight held from each to the next.

    Trades are marked if asked for; `before` is the target before the first bar.
    """
    price, weight = column(frame, "fill_price"), column(frame, "weight")
    across = bar_edges(frame)
    y = scale(*span(price), most=6)
    starts = _starts(frame)
    mean = np.add.reduceat(weight, starts[:-1]) / np.diff(starts)
    # the root, so that small weights can be seen too; the panel of weights shows how small
    strength = FAINT * np.sqrt(np.abs(mean) / max(1.0, np.abs(weight).max(initial=0.0)))
    colours = np.array([_rgb(VERMILLION), _rgb(BLUE)])[(mean > 0).astype(int)]
    shades = np.concatenate([colours, strength[:, None]], axis=1)[None]
    panel.pcolormesh(across[starts], [y.low, y.high], shades, zorder=0.5)
    shown = thinned(price)
    panel.plot(across[shown], price[shown], color=INK, linewidth=1.1)
    if marks:
        change = np.diff(column(frame, "target"), prepend=before)
        style = {"linestyle": "none", "markersize": 6, "markeredgecolor": "white", "zorder": 3}
        for shape, colour, traded in (("^", BLUE, change > 0), ("v", VERMILLION, change < 0)):
            where = across[:-1][traded], price[traded]
            panel.plot(*where, shape, color=colour, markeredgewidth=0.6, **style)
    return y


def draw_weight(panel: Any, frame: "pl.DataFrame", colour: str) -> Scale:
    """The weight over time; of bundles of bars the mean, and palely from the least to the greatest."""
    weight, across = column(frame, "weight"), bar_edges(frame)
    starts = _starts(frame)
    edges = across[starts]
    mean = np.add.reduceat(weight, starts[:-1]) / np.diff(starts)
    low, high = (part.reduceat(weight, starts[:-1]) for part in (np.minimum, np.maximum))
    if len(starts) <= len(weight):
        ends = [np.append(part, part[-1]) for part in (low, high)]
        panel.fill_between(edges, *ends, step="post", color=colour, alpha=0.15, linewidth=0)
    panel.axhline(0, color=GREY, linewidth=0.8)
    # what `stairs` draws, in a tenth of its time
    panel.plot(np.repeat(edges, 2)[1:-1], np.repeat(mean, 2), color=colour, linewidth=1.1)
    largest = 1.1 * max(1.0, np.abs(weight).max(initial=0.0))
    return scale(-largest if weight.min(initial=0.0) < 0 else -0.1, largest, most=3)


def draw_rewards(panel: Any, across: Floats, rewards: Floats, colour: str) -> None:
    """What each bar earned, as a stroke from 0."""
    shown = thinned(rewards)
    style = {"color": colour, "alpha": 0.6, "linewidth": 0.8}
    panel.vlines(across[: len(rewards)][shown], 0, rewards[shown], **style)


def draw_line(panel: Any, across: Floats, up: Floats, key: Key, alpha: float = 1.0) -> None:
    """A line in the style of its key."""
    shown = thinned(up)
    style = {"color": key.colour, "linestyle": key.style, "linewidth": key.thick, "alpha": alpha}
    panel.plot(across[: len(up)][shown], up[shown], **style)


def bar_edges(frame: "pl.DataFrame") -> Floats:
    """Seconds at each bar, and where the last one ends, (T + 1,)."""
    at = seconds(times(frame))
    step = np.median(np.diff(at)) if len(at) > 1 else 86_400.0
    return np.append(at, at[-1] + step)


def time_axis(frame: "pl.DataFrame", width: float) -> Scale:
    """The scale across of panels in a figure of that width; a name the edge would cut is left out."""
    first, last = bar_edges(frame)[[0, -1]].astype(np.int64).astype("M8[s]")
    inside = width - LEFT - RIGHT
    x = time_scale(first, last, most=inside / 0.85)
    right = [RIGHT + inside * (x.high - tick) / (x.high - x.low) for tick in x.ticks]
    names = [
        name if 9 * LETTER * len(name) / 2 < room else ""
        for name, room in zip(x.names, right, strict=True)
    ]
    return x._replace(names=names)


def _starts(frame: "pl.DataFrame") -> NDArray[np.int64]:
    """Where the bars or bundles of bars start whose weights are drawn, and the end of the last."""
    bars = len(frame)
    trades = np.count_nonzero(np.diff(column(frame, "target")))
    bundles = bars if bars <= MOST_STRIPES and trades <= MOST_TRADES else min(bars, BUNDLES)
    return np.linspace(0, bars, bundles + 1).astype(np.int64)


def _rgb(colour: str) -> tuple[float, ...]:
    return tuple(int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5))
