"""Pictures of portfolios: prices, what was held over time, and what each asset added."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from proxima.domains.trading import panels
from proxima.domains.trading.accounting import Floats
from proxima.domains.trading.plots import LOGARITHMIC_PRICE, shade_splits
from proxima.domains.trading.portfolio.results import Attribution
from proxima.report import style

if TYPE_CHECKING:
    import polars as pl

# Dashes tell the lines apart where colours repeat.
KEYS = {
    "buy_and_hold": panels.Key("uniform buy and hold", style.INK, style=(0, (6, 1.5))),
    "rebalanced": panels.Key("uniform rebalanced", style.GREY, style=(0, (3, 1.2))),
    "anticor": panels.Key("Anticor", style.ORANGE, style=(0, (1.2, 1.2)), thick=1.2),
    "olmar": panels.Key("OLMAR", style.VERMILLION, style=(0, (3, 1.2)), thick=1.2),
    "newton": panels.Key("online Newton step", style.SKY, style=(0, (6, 1.5)), thick=1.2),
    "expected": panels.Key("best expected return", style.PURPLE, style=(0, (6, 1.5, 1.2, 1.5))),
    "best_asset": panels.Key(
        "best asset (hindsight)", style.PURPLE, style=(0, (3, 1.2)), thick=1.2
    ),
    "best_constant": panels.Key(
        "best constant weights (hindsight)", style.GREEN, style=(0, (6, 1.5))
    ),
    "foresight": panels.Key("perfect foresight", style.GREEN, style=(0, (1.2, 1.2))),
}
MOST_NAMED = 7  # assets with a colour of their own
MOST_BUNDLES = 400  # of bars, whose mean weights are drawn
MOST_BARS = 24  # assets in a picture of contributions; of more, those with the largest parts
COLOURS = (
    *(style.BLUE, style.VERMILLION, style.GREEN, style.PURPLE, style.ORANGE, style.SKY),
    "#8C564B",
)
OTHERS, CASH = "#A6A6A6", "#DCDCDC"
STRONG = 0.75  # opacity of areas
NOTHING = 1e-12  # of a log return


def write(draw: Callable[[], Any], path: Path) -> None:
    """Write the figure that a function makes."""
    style.save(draw(), path)


def weights_over_time(
    rollout: "pl.DataFrame",
    assets: Sequence[str],
    width: float = style.WIDTH,
    title: str = "Weights over time",
) -> Any:
    """Draw what was held: areas on top of each other, longs above 0 and shorts below, cash in grey.

    The assets with the largest weights have names; all others are one area.
    """
    held = rollout["weight"].to_numpy()
    starts = np.unique(np.linspace(0, len(held), min(len(held), MOST_BUNDLES) + 1).astype(int))
    mean = np.add.reduceat(held, starts[:-1], axis=0) / np.diff(starts)[:, None]
    largest = np.argsort(-np.abs(held).mean(axis=0), kind="stable")
    named, rest = largest[:MOST_NAMED], largest[MOST_NAMED:]
    layers = [
        (assets[index], colour, mean[:, [index]])
        for index, colour in zip(named, COLOURS, strict=False)
    ]
    if len(rest):
        layers.append((f"{len(rest)} others", OTHERS, mean[:, rest]))
    cash = 1 - mean.sum(axis=1)
    long_only = bool((held >= 0).all())
    keys = [panels.Key(name, colour, "area", opacity=STRONG) for name, colour, _ in layers]
    if long_only:
        keys.append(panels.Key("cash", CASH, "area", opacity=STRONG))
    figure, (panel,) = panels.new(title, keys, [2.6], width)
    across = panels.bar_edges(rollout)[starts]
    above, below = np.zeros(len(mean)), np.zeros(len(mean))
    for _, colour, parts in layers:
        above = _stack(panel, across, above, np.maximum(parts, 0).sum(axis=1), colour)
        below = _stack(panel, across, below, np.minimum(parts, 0).sum(axis=1), colour)
    if long_only:
        above = _stack(panel, across, above, cash, CASH)
    else:
        panel.axhline(0, color=style.INK, linewidth=0.8)
    low, high = min(0.0, float(below.min())), max(1.0, float(above.max()))
    panels.frame(
        [panel], ["weight"], panels.time_axis(rollout, width), [style.scale(low, high, most=6)]
    )
    return figure


def prices_over_time(
    time: NDArray[np.datetime64],
    closes: Floats,
    assets: Sequence[str],
    splits: Mapping[str, tuple[Any, Any]],
    title: str,
) -> Any:
    """Draw the closes (T, n), each 1 at the start, and shade the splits.

    Those that moved furthest have names; all others are grey.
    """
    scaled = closes / closes[:1]
    shares = float(scaled.max() / scaled.min()) > LOGARITHMIC_PRICE
    up = np.log10(scaled) if shares else scaled
    furthest = np.argsort(-np.abs(np.log(scaled[-1])), kind="stable")
    named, rest = furthest[:MOST_NAMED], furthest[MOST_NAMED:]
    lines = [
        (column, panels.Key(assets[column], colour, thick=0.9))
        for column, colour in zip(named, COLOURS, strict=False)
    ]
    other = panels.Key(f"{len(rest)} others", style.GREY, thick=0.5)
    keys = [key for _, key in lines] + ([other] if len(rest) else [])
    figure, (panel,) = panels.new(title, keys, [3.2], style.WIDTH)
    across = panels.seconds(time)
    for column, key in [*((column, other) for column in rest), *lines]:
        panels.draw_line(panel, across, up[:, column], key)
    low, high = style.span(up)
    room = 0.08 * (high - low)  # for the splits' names
    shade_splits(panel, splits, high + room / 2)
    y = panels.shares_scale(low, high + room) if shares else style.scale(low, high + room, most=8)
    x = panels.time_scale(time[0], time[-1], most=7.0)
    panels.frame([panel], ["close, 1 at the start"], x, [y])
    return figure


def _stack(panel: Any, across: Floats, base: Floats, size: Floats, colour: str) -> Floats:
    """An area of that size upon what is drawn already; where it ends."""
    top = base + size
    if np.any(size != 0):
        edges = np.append(top, top[-1:]), np.append(base, base[-1:])
        panel.fill_between(across, *edges, step="post", color=colour, alpha=STRONG, linewidth=0)
    return top


def contributions(parts: Attribution, width: float = style.WIDTH, title: str = "") -> Any:
    """Draw what each asset added to the log return, largest first, then costs and interest."""
    added = {name: value or 0.0 for name, value in parts.assets.items()}
    shown = sorted(added, key=lambda name: -abs(added[name]))[:MOST_BARS]
    shown.sort(key=lambda name: -added[name])
    rows = [(name, added[name]) for name in shown]
    if len(added) > len(shown):
        others = sum(value for name, value in added.items() if name not in shown)
        rows.append((f"{len(added) - len(shown)} others", others))
    taken = {"costs": parts.costs or 0.0, "interest": parts.interest or 0.0}
    rows += [(name, value) for name, value in taken.items() if abs(value) > NOTHING]
    names, values = [name for name, _ in rows], np.array([value for _, value in rows])
    height = 0.19 * len(rows) + 0.2
    figure = style.new_figure(style.ABOVE + height + style.BELOW, width)
    longest = max(len(name) for name in names)
    left = min(0.45 * width, 0.25 + 9 * style.LETTER * longest)
    axes = style.add_axes(figure, style.Box(left, style.BELOW, width - left - style.RIGHT, height))
    down = -np.arange(len(rows), dtype=float)
    colours = [style.BLUE if value >= 0 else style.VERMILLION for value in values]
    axes.barh(down, values, height=0.7, color=colours)
    axes.axvline(0, color=style.INK, linewidth=0.8)
    x = style.scale(*style.span(np.append(values, 0.0)), most=7)
    y = style.Scale(down[-1] - 0.6, 0.6, down[::-1].tolist(), names[::-1])
    style.frame(
        axes, title or "What each asset added to the log return", "log return", "", x=x, y=y
    )
    return figure
