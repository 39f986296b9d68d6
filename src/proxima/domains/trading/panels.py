"""What pictures over time are made of: panels one below the other, their scales, and a rollout in them.

The key to the lines stands above the panels, where it cannot hide what it names. Everything drawn has a
bounded number of points, however many bars there are.
"""

from collections.abc import Sequence
from math import ceil, floor, log10
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxima.domains.trading.accounting import Floats
from proxima.domains.trading.rollouts import times
from proxima.report import style

if TYPE_CHECKING:
    import polars as pl

# inches: above all, of a line of the key, between panels, for the names of times at the bottom
TITLE, KEY_LINE, GAP, FOOT = 0.36, 0.22, 0.2, 0.3
SAMPLE = 0.26  # inches of line that a key shows
SIZE, LETTER = 9.0, 0.07  # of the key's letters, and about how many inches wide they are
FAINT = 0.3  # opacity of areas
MOST_POINTS = 2_000  # about two for each dot of a picture's width
MOST_STRIPES = 1_500  # bars whose weights are drawn one by one
MOST_TRADES = 150  # from which on weights one by one would be a barcode
BUNDLES = 100  # of bars, whose mean weight is drawn instead

# Steps of a time scale: numpy's units, about how many seconds one takes, how many make a step.
_UNITS = (
    ("s", 1.0, (1, 5, 15, 30)),
    ("m", 60.0, (1, 2, 5, 15, 30)),
    ("h", 3_600.0, (1, 3, 6, 12)),
    ("D", 86_400.0, (1, 2, 7, 14)),
    ("M", 30.44 * 86_400, (1, 3, 6)),
    ("Y", 365.25 * 86_400, tuple(n * 10**power for power in range(5) for n in (1, 2, 5))),
)
_STEPS = [(n, unit, n * seconds) for unit, seconds, counts in _UNITS for n in counts]


class Key(NamedTuple):
    """What something drawn is called."""

    name: str
    colour: str
    kind: Literal["line", "area", "mark"] = "line"
    style: Any = "-"  # the line's dashes or the mark's shape, as matplotlib writes them
    thick: float = 1.6
    opacity: float = FAINT  # of an area

    @property
    def width(self) -> float:
        """Inches that it takes, with the gap behind it."""
        return SAMPLE + 0.07 + LETTER * len(self.name) + 0.25


def new(
    title: str,
    keys: Sequence[Key],
    heights: Sequence[float],
    width: float = style.WIDTH,
    gaps: Sequence[float] | None = None,
) -> tuple[Any, list[Any]]:
    """A figure with its title and key written, and empty axes of these heights from the top down."""
    gaps = [GAP] * (len(heights) - 1) if gaps is None else gaps
    inside = width - style.LEFT - style.RIGHT
    lines: list[list[Key]] = [[]]
    for key in keys:
        used = sum(other.width for other in lines[-1])
        if used + key.width > inside + 0.15:  # some of the last one's gap may stick out
            lines.append([])
        lines[-1].append(key)
    above = TITLE + KEY_LINE * len(lines) + 0.08
    tall = above + sum(heights) + sum(gaps) + FOOT
    figure = style.new_figure(tall, width)
    style.write(figure, style.LEFT, tall - 0.26, title, 12)
    for number, line in enumerate(lines):
        _write_keys(figure, tall - TITLE - KEY_LINE * (number + 0.5), line)
    axes, top = [], tall - above
    for height, gap in zip(heights, [*gaps, FOOT], strict=True):
        axes.append(style.add_axes(figure, style.Box(style.LEFT, top - height, inside, height)))
        top -= height + gap
    return figure, axes


def _write_keys(figure: Any, middle: float, keys: Sequence[Key]) -> None:
    left = style.LEFT
    for key in keys:
        ends, colour = [left, left + SAMPLE], {"color": key.colour}
        if key.kind == "line":
            style.stroke(figure, ends, [middle] * 2, ls=key.style, linewidth=key.thick, **colour)
        elif key.kind == "area":
            area = {"alpha": key.opacity, "linewidth": 9, "solid_capstyle": "butt"}
            style.stroke(figure, ends, [middle] * 2, **colour, **area)
        else:
            mark = {"marker": key.style, "markersize": 6, "linestyle": "none"}
            style.stroke(figure, [left + SAMPLE / 2], [middle], **colour, **mark)
        style.write(figure, left + SAMPLE + 0.07, middle, key.name, SIZE, va="center_baseline")
        left += key.width


def frame(
    axes: Sequence[Any], labels: Sequence[str], x: style.Scale, scales: Sequence[style.Scale]
) -> None:
    """Draw the scales of panels that share the one across: only the lowest names its ticks."""
    for index, (panel, label, y) in enumerate(zip(axes, labels, scales, strict=True)):
        lowest = index == len(axes) - 1
        style.frame(panel, "", "", label, x=x if lowest else x._replace(names=()), y=y)


def draw_price(panel: Any, rollout: "pl.DataFrame", marks: bool, before: float) -> style.Scale:
    """The fill prices, shaded by the weight held; `before` is the target before the first bar."""
    from matplotlib.colors import to_rgb

    price, weight = rollout["fill_price"].to_numpy(), rollout["weight"].to_numpy()
    across, starts = bar_edges(rollout), _starts(rollout)
    y = style.scale(*style.span(price), most=6)
    mean = np.add.reduceat(weight, starts[:-1]) / np.diff(starts)
    # the root, so that small weights can be seen too; the panel of weights shows how small
    strength = FAINT * np.sqrt(np.abs(mean) / max(1.0, np.abs(weight).max(initial=0.0)))
    colours = np.array([to_rgb(style.VERMILLION), to_rgb(style.BLUE)])[(mean > 0).astype(int)]
    shades = np.concatenate([colours, strength[:, None]], axis=1)[None]
    panel.pcolormesh(across[starts], [y.low, y.high], shades, zorder=0.5)
    draw_line(panel, across, price, Key("", style.INK, thick=1.1))
    if marks:
        change = np.diff(rollout["target"], prepend=before)
        shapes = {"linestyle": "none", "markersize": 6, "markeredgecolor": "white", "zorder": 3}
        buys, sells = ("^", style.BLUE, change > 0), ("v", style.VERMILLION, change < 0)
        for shape, colour, traded in (buys, sells):
            where = across[:-1][traded], price[traded]
            panel.plot(*where, shape, color=colour, markeredgewidth=0.6, **shapes)
    return y


def draw_weight(panel: Any, rollout: "pl.DataFrame", colour: str) -> style.Scale:
    """The weight over time; of bundles of bars the mean, and palely from the least to the greatest."""
    weight, starts = rollout["weight"].to_numpy(), _starts(rollout)
    edges = bar_edges(rollout)[starts]
    mean = np.add.reduceat(weight, starts[:-1]) / np.diff(starts)
    if len(starts) <= len(weight):
        low, high = (part.reduceat(weight, starts[:-1]) for part in (np.minimum, np.maximum))
        ends = [np.append(part, part[-1]) for part in (low, high)]
        panel.fill_between(edges, *ends, step="post", color=colour, alpha=0.15, linewidth=0)
    panel.axhline(0, color=style.GREY, linewidth=0.8)
    # what `stairs` draws, in a tenth of its time
    panel.plot(np.repeat(edges, 2)[1:-1], np.repeat(mean, 2), color=colour, linewidth=1.1)
    largest = 1.1 * max(1.0, np.abs(weight).max(initial=0.0))
    return style.scale(-largest if weight.min(initial=0.0) < 0 else -0.1, largest, most=3)


def draw_rewards(panel: Any, across: Floats, rewards: Floats, colour: str) -> None:
    """What each bar earned, as a stroke from 0."""
    shown = thinned(rewards)
    panel.vlines(across[shown], 0, rewards[shown], color=colour, alpha=0.6, linewidth=0.8)


def draw_line(panel: Any, across: Floats, up: Floats, key: Key, alpha: float = 1.0) -> None:
    """A line in the style of its key."""
    shown = thinned(up)
    line = {"color": key.colour, "linestyle": key.style, "linewidth": key.thick, "alpha": alpha}
    panel.plot(across[shown], up[shown], **line)


def bar_edges(rollout: "pl.DataFrame") -> Floats:
    """Seconds at each bar, and where the last one ends, (T + 1,)."""
    at = seconds(times(rollout))
    step = np.median(np.diff(at)) if len(at) > 1 else 86_400.0
    return np.append(at, at[-1] + step)


def time_axis(rollout: "pl.DataFrame", width: float) -> style.Scale:
    """The scale across of panels in a figure of that width; a name the edge would cut is left out."""
    first, last = bar_edges(rollout)[[0, -1]].astype(np.int64).astype("M8[s]")
    inside = width - style.LEFT - style.RIGHT
    x = time_scale(first, last, most=inside / 0.85)
    right = [style.RIGHT + inside * (x.high - tick) / (x.high - x.low) for tick in x.ticks]
    names = [
        name if 9 * style.LETTER * len(name) / 2 < room else ""
        for name, room in zip(x.names, right, strict=True)
    ]
    return x._replace(names=names)


def seconds(time: NDArray[np.datetime64]) -> Floats:
    """Times as seconds since 1970, which is what a time scale counts in."""
    return time.astype("datetime64[us]").astype(np.int64) / 1e6


def time_scale(first: np.datetime64, last: np.datetime64, most: float) -> style.Scale:
    """A scale in seconds since 1970, named at round times, in at most so many steps."""
    low, high = seconds(np.array([first, last], dtype="datetime64[us]"))
    if high <= low:
        low, high = low - 43_200.0, high + 43_200.0
    fitting = (step for step in _STEPS if step[2] >= (high - low) / most)
    count, unit, _ = next(fitting, _STEPS[-1])
    edges = np.array([low, high]).astype(np.int64).astype("M8[s]").astype(f"M8[{unit}]")
    begin, end = edges.astype(np.int64).tolist()
    offset = 1970 if unit == "Y" else 0  # numpy counts years from 1970, people from 0
    counts = range(-(-(begin + offset) // count) * count - offset, end + 1, count)
    stamps = np.array(counts, dtype=np.int64).astype(f"M8[{unit}]")
    stamps = stamps[seconds(stamps) >= low]
    room = 0.01 * (high - low)
    return style.Scale(low - room, high + room, seconds(stamps).tolist(), _named(stamps, unit))


def _named(stamps: NDArray[np.datetime64], unit: str) -> list[str]:
    """Days are named without hours, hours without the year, seconds without the day."""
    if unit in "YMD":
        return [str(stamp) for stamp in stamps]
    if unit == "s":
        return [str(stamp)[-8:] for stamp in stamps]
    return [str(stamp)[5:].replace("T", " ") for stamp in stamps.astype("M8[m]")]


def shares_scale(low: float, high: float) -> style.Scale:
    """A scale of logarithms to base ten, named with what they are of: equal steps, equal shares."""
    decades = high - low
    steps: tuple[float, ...] = (1, 2, 5) if decades > 1 else (1, 1.5, 2, 3, 5, 7)
    if decades > 3:
        steps = (1,)
    every = max(1, ceil(decades / 8))
    powers = range(floor(low / every) * every, ceil(high) + 1, every)
    ticks = [power + log10(step) for power in powers for step in steps]
    ticks = [tick for tick in ticks if low <= tick <= high]
    return style.Scale(low, high, ticks, [_power_of_ten(tick) for tick in ticks])


def _power_of_ten(logarithm: float) -> str:
    if abs(logarithm) > 5:
        return f"1e{round(logarithm)}".replace("-", "−")
    value = 10.0**logarithm
    return style.spell([value], value)[0] if value > 999 else f"{value:.3g}"


def thinned(values: Floats, most: int = MOST_POINTS) -> NDArray[np.int64]:
    """Indices to draw of a long line: the first and last, the least and greatest of each bundle."""
    size = -(-2 * len(values) // most)
    if size <= 2:
        return np.arange(len(values))
    whole = len(values) // size * size
    bundles = values[:whole].reshape(-1, size)
    starts = np.arange(0, whole, size)
    extremes = np.stack([bundles.argmin(axis=1), bundles.argmax(axis=1)]) + starts
    return np.unique(np.concatenate([[0], extremes.ravel(), [len(values) - 1]]))


def _starts(rollout: "pl.DataFrame") -> NDArray[np.int64]:
    """Where the bars or bundles of bars start whose weights are drawn, and the end of the last."""
    bars = len(rollout)
    trades = np.count_nonzero(np.diff(rollout["target"]))
    bundles = bars if bars <= MOST_STRIPES and trades <= MOST_TRADES else min(bars, BUNDLES)
    return np.linspace(0, bars, bundles + 1).astype(np.int64)
