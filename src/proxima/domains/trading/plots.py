"""Pictures of prices, and of rollouts over them: what was held, what it made of the money, how steadily.

Functions that take rollout frames (see rollouts.py) return a figure for `style.save` or `style.png`.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from proxima.domains.trading import panels
from proxima.domains.trading.accounting import Floats, log_value
from proxima.domains.trading.metrics import drawdowns
from proxima.domains.trading.rollouts import REFERENCES, Rollouts, rolling_sharpe
from proxima.report import style
from proxima.report.comparison import MOST_LINES
from proxima.report.statistics import SPREAD

if TYPE_CHECKING:
    import polars as pl

KEYS = {
    "buy_and_hold": panels.Key(REFERENCES["buy_and_hold"], style.INK, style=(0, (6, 1.5))),
    "momentum": panels.Key(REFERENCES["momentum"], style.ORANGE, style=(0, (3, 1.2))),
    "model": panels.Key(REFERENCES["model"], style.PURPLE, style=(0, (6, 1.5, 1.2, 1.5))),
    "foresight": panels.Key(REFERENCES["foresight"], style.GREEN, style=(0, (1.2, 1.2))),
}
SPLIT_COLOURS = {"train": style.BLUE, "validation": style.ORANGE, "test": style.VERMILLION}
MOST_BARS = 300  # from which on a stretch of the bars is also shown larger
ZOOM_BARS = 150
MOST_SHADED = 400  # points along the edge of a shade
MOST_NAMED = 8  # folds with room for more than their number
MOST_MARKS = 60  # trades that can be marked one by one
# Highest over lowest value, and price, from which on equal steps are equal shares.
LOGARITHMIC, LOGARITHMIC_PRICE = 4.0, 20.0
MOST_PRICES = 12_000  # of a line of closes: it may swing many times within a dot's width
DWARFED = 2.5  # times the other lines' range beyond which perfect foresight leaves the picture


def draw(make: Callable[..., Any], path: Path, *frames: "pl.DataFrame") -> None:
    """Write the figure that one of these functions makes of rollout frames."""
    style.save(make(*frames), path)


def price_plot(
    path: str | Path,
    time: NDArray[np.datetime64],
    close: Floats,
    splits: Mapping[str, tuple[Any, Any]],
    title: str = "Prices",
) -> None:
    """Draw the closes, and shade each split from its first to its last time."""
    figure = style.new_figure(style.ABOVE + 3.2 + style.BELOW + 0.15)
    axes = style.single_axes(figure, style.BELOW + 0.15)
    shown = panels.thinned(close, MOST_PRICES)
    shares = close.max() / close.min() > LOGARITHMIC_PRICE
    up = np.log10(close[shown]) if shares else close[shown]
    axes.plot(panels.seconds(time[shown]), up, color=style.INK, linewidth=0.9)
    low, high = style.span(up)
    room = 0.08 * (high - low)  # for the splits' names
    shade_splits(axes, splits, high + room / 2)
    y = panels.shares_scale(low, high + room) if shares else style.scale(low, high + room, most=8)
    style.frame(axes, title, "", "close", x=panels.time_scale(time[0], time[-1], most=7.0), y=y)
    if splits:
        style.caption(figure, "Rows between two shaded stretches belong to neither.")
    style.save(figure, path)


def shade_splits(axes: Any, splits: Mapping[str, tuple[Any, Any]], height: float) -> None:
    """Shade each split from its first to its last time, and name it at this height."""
    for name, ends in splits.items():
        first, last = panels.seconds(np.array(ends, dtype="datetime64[us]"))
        axes.axvspan(first, last, color=SPLIT_COLOURS[name], alpha=0.13, linewidth=0, zorder=0.5)
        middle = ((first + last) / 2, height)
        axes.text(*middle, name, color=style.INK, fontsize=9, ha="center", va="center")


def actions_over_price(
    rollout: "pl.DataFrame", title: str = "Position over price", width: float = style.WIDTH
) -> Any:
    """Draw prices with what was held behind them, the weight below, and of many bars some larger."""
    zoomed = len(rollout) > MOST_BARS
    bars = ZOOM_BARS if width >= style.WIDTH else ZOOM_BARS // 2
    stretch = rollout.slice((len(rollout) - bars) // 2, bars) if zoomed else rollout
    trades = np.count_nonzero(np.diff(stretch["target"]))
    marks = bool(trades <= MOST_MARKS * width / style.WIDTH)
    keys = [
        panels.Key("price at fill", style.INK),
        panels.Key("long", style.BLUE, "area"),
        panels.Key("short", style.VERMILLION, "area"),
    ]
    if marks:
        keys.append(panels.Key("buy", style.BLUE, "mark", "^"))
        keys.append(panels.Key("sell", style.VERMILLION, "mark", "v"))
    heights, gaps = ([2.1, 0.8, 2.1], [panels.GAP, 0.65]) if zoomed else ([2.3, 0.9], [panels.GAP])
    figure, axes = panels.new(title, keys, heights, width, gaps)
    y = panels.draw_price(axes[0], rollout, marks and not zoomed, before=0.0)
    weights = panels.draw_weight(axes[1], rollout, style.BLUE)
    panels.frame(axes[:2], ["price", "weight"], panels.time_axis(rollout, width), [y, weights])
    if zoomed:
        y = panels.draw_price(axes[2], stretch, marks, before=stretch["target"][0])
        panels.frame(axes[2:], ["price"], panels.time_axis(stretch, width), [y])
        heading = f"The {len(stretch)} bars in the middle"
        style.write(figure, style.LEFT, panels.FOOT + heights[2] + 0.08, heading, 10)
    return figure


def equity_and_drawdown(
    rollouts: Rollouts,
    bold: int,
    width: float = style.WIDTH,
    named: Mapping[str, panels.Key] = KEYS,
) -> Any:
    """Draw what became of 1: every trial thin, one bold, the references dashed; drawdowns below.

    Logarithmic once the highest value is some times the lowest. Perfect foresight leaves the picture
    at the top where keeping it in would press the other lines flat.
    """
    references = {
        name: log_value(frame["log_return"]) for name, frame in rollouts.references.items()
    }
    agents = {trial: log_value(frame["log_return"]) for trial, frame in rollouts.trials.items()}
    low, high, leaves = _range([*agents.values()], references)
    shares = np.exp(high - low) > LOGARITHMIC
    keys = _trial_keys(rollouts, bold, f" {_times(agents[bold][-1])}")
    for name, value in references.items():
        note = " (off the scale)" if leaves and name == "foresight" else ""
        keys.append(named[name]._replace(name=f"{named[name].name} {_times(value[-1])}{note}"))
    figure, (top, bottom) = panels.new("Value and drawdown", keys, [2.6, 1.1], width)

    def up(value: Floats) -> Floats:
        with np.errstate(over="ignore"):  # of foresight that leaves the picture
            return value / np.log(10) if shares else np.exp(value)

    longest = max(rollouts.trials.values(), key=len)
    across = panels.bar_edges(longest)
    _draw_borders((top, bottom), across, rollouts.borders)
    for name, value in references.items():
        panels.draw_line(top, across, up(value), named[name])
    _draw_trials(top, across, {trial: up(value) for trial, value in agents.items()}, bold)
    if "buy_and_hold" in references:
        fall = 100 * drawdowns(references["buy_and_hold"])
        panels.draw_line(bottom, across, fall, named["buy_and_hold"])
    falls = {trial: 100 * drawdowns(value) for trial, value in agents.items()}
    _draw_trials(bottom, across, falls, bold)
    floor, ceiling = up(np.array([low, high])).tolist()
    y = panels.shares_scale(floor, ceiling) if shares else style.scale(floor, ceiling, most=7)
    y = y._replace(names=["×" + name for name in y.names])
    depth = style.scale(min(bottom.get_ylim()[0], -1.0), 0.0, most=3.5)
    x = panels.time_axis(longest, width)
    panels.frame([top, bottom], ["value", "drawdown, %"], x, [y, depth])
    return figure


def rolling_sharpe_plot(
    rollouts: Rollouts,
    window: int,
    bold: int,
    width: float = style.WIDTH,
    named: Mapping[str, panels.Key] = KEYS,
    beside: Sequence[str] = ("buy_and_hold", "momentum"),
) -> Any:
    """Draw the annualised Sharpe ratio of the last `window` bars: trials, and some references beside."""
    shown = [name for name in beside if name in rollouts.references]

    def sharpe(rollout: "pl.DataFrame") -> Floats:
        return rolling_sharpe(rollout["log_return"], window, rollouts.periods_per_year)

    keys = _trial_keys(rollouts, bold) + [named[name] for name in shown]
    figure, (panel,) = panels.new(f"Sharpe ratio over {window} bars", keys, [1.8], width)
    longest = max(rollouts.trials.values(), key=len)
    across = panels.bar_edges(longest)[1:]
    panel.axhline(0, color=style.GREY, linewidth=0.8)
    _draw_borders((panel,), across, rollouts.borders)
    for name in shown:
        panels.draw_line(panel, across, sharpe(rollouts.references[name]), named[name])
    agents = {trial: sharpe(rollout) for trial, rollout in rollouts.trials.items()}
    _draw_trials(panel, across, agents, bold)
    low, high = panel.get_ylim()
    y = style.scale(low, high, most=5)
    panels.frame([panel], ["annualised"], panels.time_axis(longest, width), [y])
    return figure


def reward_plot(
    deterministic: "pl.DataFrame", random: "pl.DataFrame", width: float = style.WIDTH
) -> Any:
    """Draw what each bar earned under the trained and under a random policy, one above the other."""
    rewards, keys = _rewards(deterministic, random)
    figure, axes = panels.new("Log return of every bar", keys, [1.3, 1.3], width)
    y = style.scale(*style.span(np.concatenate(rewards)), most=4)
    for panel, reward, key in zip(axes, rewards, keys, strict=True):
        panels.draw_rewards(panel, panels.bar_edges(deterministic), reward, key.colour)
    panels.frame(axes, ["deterministic", "random"], panels.time_axis(deterministic, width), [y, y])
    return figure


def compare_rollouts(
    deterministic: "pl.DataFrame", random: "pl.DataFrame", width: float = style.WIDTH
) -> Any:
    """Draw rewards, their sums and the weights held of two rollouts over the same bars."""
    rewards, keys = _rewards(deterministic, random)
    title = "Deterministic against random rollout"
    figure, axes = panels.new(title, keys, [1.1, 1.5, 0.7, 0.7], width)
    across = panels.bar_edges(deterministic)
    for reward, key in reversed(list(zip(rewards, keys, strict=True))):  # the trained one in front
        panels.draw_rewards(axes[0], across, reward, key.colour)
        panels.draw_line(axes[1], across, log_value(reward), key)
    weights = [
        panels.draw_weight(panel, rollout, key.colour)
        for panel, rollout, key in zip(axes[2:], (deterministic, random), keys, strict=True)
    ]
    per_bar = style.scale(*style.span(np.concatenate(rewards)), most=4)
    low, high = axes[1].get_ylim()
    sums = style.scale(low, high, most=5)
    labels = ["per bar", "log return, sum", "weight", "weight"]
    panels.frame(axes, labels, panels.time_axis(deterministic, width), [per_bar, sums, *weights])
    return figure


def _rewards(
    deterministic: "pl.DataFrame", random: "pl.DataFrame"
) -> tuple[list[Floats], list[panels.Key]]:
    """The log returns of the trained and the random policy, and what they are called, with their sums."""
    rewards = [rollout["log_return"].to_numpy() for rollout in (deterministic, random)]
    names = ("deterministic", style.BLUE), ("random", style.GREY)
    keys = [
        panels.Key(f"{name}: sum {earned.sum():+.3g}".replace("-", "−"), colour)
        for (name, colour), earned in zip(names, rewards, strict=True)
    ]
    return rewards, keys


def _draw_trials(panel: Any, across: Floats, lines: Mapping[int, Floats], bold: int) -> None:
    """Every trial's line thin, or many as shades, and one trial's line bold."""
    if len(lines) > MOST_LINES:
        _draw_spread(panel, across, [*lines.values()])
    else:
        thin = panels.Key("", style.BLUE, thick=0.7)
        for line in (line for trial, line in lines.items() if trial != bold):
            panels.draw_line(panel, across, line, thin, alpha=0.55)
    panels.draw_line(panel, across, lines[bold], panels.Key("", style.BLUE, thick=2.0))


def _draw_spread(panel: Any, across: Floats, lines: Sequence[Floats]) -> None:
    """Shades from 5 % to 95 % and from 25 % to 75 % of the lines that are as long as the longest."""
    longest = max(map(len, lines))
    values = np.stack([line for line in lines if len(line) == longest])
    values = values[:, np.isfinite(values).any(axis=0)]
    across = across[longest - values.shape[1] : longest]
    shown = np.unique(np.linspace(0, values.shape[1] - 1, MOST_SHADED).astype(int))
    low, first, third, high = np.nanpercentile(values[:, shown], SPREAD, axis=0)
    for ends, alpha in (((low, high), 0.13), ((first, third), 0.22)):
        panel.fill_between(across[shown], *ends, color=style.BLUE, alpha=alpha, linewidth=0)


def _draw_borders(axes: Sequence[Any], across: Floats, borders: Sequence[int]) -> None:
    """Where another fold begins: lines through all axes, and the folds' names at the top of the first."""
    if not borders:
        return
    for panel in axes:
        for border in borders:
            panel.axvline(
                across[border], color=style.GREY, linewidth=0.9, linestyle=(0, (2, 2)), zorder=0.5
            )
    edges = [0, *borders, len(across) - 1]
    for fold, (first, last) in enumerate(pairwise(edges)):
        middle, upper = (across[first] + across[last]) / 2, axes[0].get_xaxis_transform()
        text = f"fold {fold}" if len(edges) <= MOST_NAMED + 1 else str(fold)
        axes[0].text(
            middle,
            0.985,
            text,
            transform=upper,
            fontsize=7.5,
            color=style.GREY,
            ha="center",
            va="top",
        )


def _trial_keys(rollouts: Rollouts, bold: int, note: str = "") -> list[panels.Key]:
    """What the bold trial, or walk, and the others are called."""
    one, trials = "walk" if rollouts.borders else "trial", len(rollouts.trials)
    keys = [panels.Key(f"{one} {bold}{note}", style.BLUE, thick=2.2)]
    if trials > MOST_LINES:
        return [*keys, panels.Key(f"90 % and half of the {one}s", style.BLUE, "area")]
    return [*keys, panels.Key(f"other {one}s", style.BLUE, thick=0.7)] if trials > 1 else keys


def _range(agents: Sequence[Floats], references: Mapping[str, Floats]) -> tuple[float, float, bool]:
    """The least and greatest log value to show, and whether perfect foresight leaves the picture."""
    lines = [*agents, *(value for name, value in references.items() if name != "foresight")]
    low, high = style.span(np.concatenate(lines))
    best = references.get("foresight", np.zeros(1)).max()
    if best <= high:
        return low, high, False
    leaves = bool(best - low > DWARFED * (high - low))
    return low, high + 0.25 * (high - low) if leaves else style.span([low, best])[1], leaves


def _times(log_value: float) -> str:
    """A growth as a factor: ×1.05, ×320, ×3.2e8."""
    power = log_value / np.log(10)
    if abs(power) < 5:
        return f"×{float(f'{10**power:.3g}'):,g}"
    whole = int(np.floor(power))
    return f"×{10 ** (power - whole):.1f}e{whole}".replace("-", "−")
