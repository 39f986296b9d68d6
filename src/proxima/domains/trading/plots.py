"""Pictures of rollouts over prices: what was held, what it made of the money, how steadily.

Every function takes rollout frames (see rollouts.py) and returns a figure for `style.save` or
`style.png`. All have a bounded number of points, however many bars there are.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from proxima.domains.trading.bars import (
    bar_edges,
    draw_line,
    draw_price,
    draw_rewards,
    draw_weight,
    time_axis,
)
from proxima.domains.trading.panels import FOOT, GAP, Key, frame_panels, new_panels
from proxima.domains.trading.rollouts import (
    Floats,
    column,
    drawdown,
    log_value,
    rolling_sharpe,
)
from proxima.domains.trading.scales import shares_scale
from proxima.report.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    LEFT,
    ORANGE,
    PURPLE,
    VERMILLION,
    WIDTH,
    save,
    scale,
    span,
    write,
)

if TYPE_CHECKING:
    import polars as pl

# How references are called and drawn, in the order in which they are named.
REFERENCES = {
    "buy_and_hold": Key("buy and hold", INK, style=(0, (6, 1.5))),
    "momentum": Key("momentum", ORANGE, style=(0, (3, 1.2))),
    "model": Key("model-optimal", PURPLE, style=(0, (6, 1.5, 1.2, 1.5))),
    "foresight": Key("perfect foresight", GREEN, style=(0, (1.2, 1.2))),
    "random": Key("random", GREY),
}
MOST_BARS = 300  # from which on a stretch of the bars is also shown larger
ZOOM_BARS = 150
MOST_LINES = 20  # trials whose lines are drawn one by one
MOST_SHADED = 400  # points along the edge of a shade
MOST_MARKS = 60  # trades that can be marked one by one
LOGARITHMIC = 4.0  # highest over lowest value from which on equal steps are equal shares
DWARFED = 2.5  # times the other lines' range beyond which perfect foresight leaves the picture


def draw(make: Callable[..., Any], path: Path, *frames: "pl.DataFrame") -> None:
    """Write the figure that one of these functions makes of rollout frames."""
    save(make(*frames), path)


def actions_over_price(
    frame: "pl.DataFrame", title: str = "Position over price", width: float = WIDTH
) -> Any:
    """Draw prices with what was held behind them, the weight below, and of many bars some larger."""
    zoomed = len(frame) > MOST_BARS
    stretch = _middle(frame, ZOOM_BARS if width >= WIDTH else ZOOM_BARS // 2)
    marks = _marks_fit(stretch if zoomed else frame, width)
    keys = [
        Key("price at fill", INK),
        Key("long", BLUE, "area"),
        Key("short", VERMILLION, "area"),
        *([Key("buy", BLUE, "mark", "^"), Key("sell", VERMILLION, "mark", "v")] if marks else []),
    ]
    heights, gaps = ([2.1, 0.8, 2.1], [GAP, 0.65]) if zoomed else ([2.3, 0.9], [GAP])
    figure, panels = new_panels(title, keys, heights, width, gaps)
    y = draw_price(panels[0], frame, marks and not zoomed, before=0.0)
    weights = draw_weight(panels[1], frame, BLUE)
    frame_panels(panels[:2], ["price", "weight"], time_axis(frame, width), [y, weights])
    if zoomed:
        y = draw_price(panels[2], stretch, marks, before=column(stretch, "target")[0])
        frame_panels(panels[2:], ["price"], time_axis(stretch, width), [y])
        heading = f"The {len(stretch)} bars in the middle"
        write(figure, LEFT, FOOT + heights[2] + 0.08, heading, 10)
    return figure


def equity_and_drawdown(
    trials: Mapping[int, "pl.DataFrame"],
    references: Mapping[str, "pl.DataFrame"],
    bold: int,
    title: str = "Value and drawdown",
    width: float = WIDTH,
) -> Any:
    """Draw what became of 1: every trial thin, one bold, the references dashed; drawdowns below.

    Logarithmic once the highest value is some times the lowest. Perfect foresight leaves the picture
    at the top where keeping it in would press the other lines flat.
    """
    values = {name: log_value(column(frame, "log_return")) for name, frame in references.items()}
    agents = {trial: log_value(column(frame, "log_return")) for trial, frame in trials.items()}
    low, high, leaves = _range([*agents.values()], values)
    shares = np.exp(high - low) > LOGARITHMIC
    keys = _trial_keys(f"trial {bold} {_times(agents[bold][-1])}", len(trials))
    for name in values:
        note = " (off the scale)" if leaves and name == "foresight" else ""
        ending = f"{REFERENCES[name].name} {_times(values[name][-1])}{note}"
        keys.append(REFERENCES[name]._replace(name=ending))
    figure, (top, bottom) = new_panels(title, keys, [2.6, 1.1], width)

    def up(value: Floats) -> Floats:
        with np.errstate(over="ignore"):  # of foresight that leaves the picture
            return value / np.log(10) if shares else np.exp(value)

    across = bar_edges(_longest(trials))
    for name, value in values.items():
        draw_line(top, across, up(value), REFERENCES[name])
    _draw_trials(top, across, {trial: up(value) for trial, value in agents.items()}, bold)
    if "buy_and_hold" in values:
        draw_line(
            bottom, across, 100 * drawdown(values["buy_and_hold"]), REFERENCES["buy_and_hold"]
        )
    falls = {trial: 100 * drawdown(value) for trial, value in agents.items()}
    _draw_trials(bottom, across, falls, bold)
    floor, ceiling = up(np.array([low, high])).tolist()
    y = shares_scale(floor, ceiling) if shares else scale(floor, ceiling, most=7)
    y = y._replace(names=["×" + name for name in y.names])
    depth = scale(min(bottom.get_ylim()[0], -1.0), 0.0, most=3.5)
    labels = ["value", "drawdown, %"]
    frame_panels([top, bottom], labels, time_axis(_longest(trials), width), [y, depth])
    return figure


def rolling_sharpe_plot(
    trials: Mapping[int, "pl.DataFrame"],
    references: Mapping[str, "pl.DataFrame"],
    periods_per_year: float,
    window: int,
    bold: int,
    title: str = "",
    width: float = WIDTH,
) -> Any:
    """Draw the annualised Sharpe ratio of the last `window` bars: trials, buy and hold, momentum."""
    shown = {name: references[name] for name in ("buy_and_hold", "momentum") if name in references}
    keys = _trial_keys(f"trial {bold}", len(trials))
    keys += [REFERENCES[name] for name in shown]
    title = title or f"Sharpe ratio over {window} bars"
    figure, (panel,) = new_panels(title, keys, [1.8], width)

    def sharpe(frame: "pl.DataFrame") -> Floats:
        return rolling_sharpe(column(frame, "log_return"), window, periods_per_year)

    across = bar_edges(_longest(trials))[1:]
    panel.axhline(0, color=GREY, linewidth=0.8)
    for name, frame in shown.items():
        draw_line(panel, across, sharpe(frame), REFERENCES[name])
    _draw_trials(panel, across, {trial: sharpe(frame) for trial, frame in trials.items()}, bold)
    low, high = panel.get_ylim()
    y = scale(low, high, most=5)
    frame_panels([panel], ["annualised"], time_axis(_longest(trials), width), [y])
    return figure


def reward_plot(
    deterministic: "pl.DataFrame",
    random: "pl.DataFrame",
    title: str = "Log return of every bar",
    width: float = WIDTH,
) -> Any:
    """Draw what each bar earned under the trained and under a random policy, one above the other."""
    keys = [_described("deterministic", BLUE, deterministic), _described("random", GREY, random)]
    figure, panels = new_panels(title, keys, [1.3, 1.3], width)
    rewards = [column(frame, "log_return") for frame in (deterministic, random)]
    y = scale(*span(np.concatenate(rewards)), most=4)
    for panel, reward, key in zip(panels, rewards, keys, strict=True):
        draw_rewards(panel, bar_edges(deterministic)[:-1], reward, key.colour)
    frame_panels(panels, ["deterministic", "random"], time_axis(deterministic, width), [y, y])
    return figure


def compare_rollouts(
    deterministic: "pl.DataFrame",
    random: "pl.DataFrame",
    title: str = "Deterministic against random rollout",
    width: float = WIDTH,
) -> Any:
    """Draw rewards, their sums and the weights held of two rollouts over the same bars."""
    keys = [_described("deterministic", BLUE, deterministic), _described("random", GREY, random)]
    figure, panels = new_panels(title, keys, [1.1, 1.5, 0.7, 0.7], width)
    across = bar_edges(deterministic)
    pair = list(zip((deterministic, random), keys, strict=True))
    for frame, key in reversed(pair):  # the trained one in front
        draw_rewards(panels[0], across[:-1], column(frame, "log_return"), key.colour)
        draw_line(panels[1], across, log_value(column(frame, "log_return")), key)
    weights = [
        draw_weight(panel, frame, key.colour)
        for panel, (frame, key) in zip(panels[2:], pair, strict=True)
    ]
    low, high = panels[1].get_ylim()
    sums = scale(low, high, most=5)
    rewards = scale(*span(_both(deterministic, random, "log_return")), most=4)
    labels = ["per bar", "log return, sum", "weight", "weight"]
    frame_panels(panels, labels, time_axis(deterministic, width), [rewards, sums, *weights])
    return figure


def _draw_trials(panel: Any, across: Floats, lines: Mapping[int, Floats], bold: int) -> None:
    """Every trial's line thin, or many as shades, and one trial's line bold."""
    if len(lines) > MOST_LINES:
        _draw_spread(panel, across, [*lines.values()])
    else:
        for trial, line in lines.items():
            if trial != bold:
                draw_line(panel, across, line, Key("", BLUE, thick=0.7), alpha=0.55)
    draw_line(panel, across, lines[bold], Key("", BLUE, thick=2.0))


def _draw_spread(panel: Any, across: Floats, lines: Sequence[Floats]) -> None:
    """Shades from 5 % to 95 % and from 25 % to 75 % of the lines that are as long as the longest."""
    longest = max(map(len, lines))
    values = np.stack([line for line in lines if len(line) == longest])
    values = values[:, np.isfinite(values).any(axis=0)]
    across = across[longest - values.shape[1] : longest]
    shown = np.unique(np.linspace(0, values.shape[1] - 1, MOST_SHADED).astype(int))
    low, first, third, high = np.nanpercentile(values[:, shown], (5, 25, 75, 95), axis=0)
    for ends, alpha in (((low, high), 0.13), ((first, third), 0.22)):
        panel.fill_between(across[shown], *ends, color=BLUE, alpha=alpha, linewidth=0)


def _trial_keys(name: str, trials: int) -> list[Key]:
    """What the bold trial and the others are called."""
    keys = [Key(name, BLUE, thick=2.2)]
    if trials > MOST_LINES:
        return [*keys, Key("90 % and half of the trials", BLUE, "area")]
    return [*keys, Key("other trials", BLUE, thick=0.7)] if trials > 1 else keys


def _longest(trials: Mapping[int, "pl.DataFrame"]) -> "pl.DataFrame":
    return max(trials.values(), key=len)


def _range(agents: Sequence[Floats], references: Mapping[str, Floats]) -> tuple[float, float, bool]:
    """The least and greatest log value to show, and whether perfect foresight leaves the picture."""
    lines = [*agents, *(value for name, value in references.items() if name != "foresight")]
    low, high = span(np.concatenate(lines))
    best = references.get("foresight", np.zeros(1)).max()
    if best <= high:
        return low, high, False
    leaves = bool(best - low > DWARFED * (high - low))
    return low, high + 0.25 * (high - low) if leaves else span([low, best])[1], leaves


def _described(name: str, colour: str, frame: "pl.DataFrame") -> Key:
    total = column(frame, "log_return").sum()
    return Key(f"{name}: sum {total:+.3g}".replace("-", "−"), colour)


def _both(first: "pl.DataFrame", second: "pl.DataFrame", name: str) -> Floats:
    return np.concatenate([column(first, name), column(second, name)])


def _times(log_value: float) -> str:
    """A growth as a factor: ×1.05, ×320, ×3.2e8."""
    power = log_value / np.log(10)
    if abs(power) < 5:
        return f"×{float(f'{10**power:.3g}'):,g}"
    whole = int(np.floor(power))
    return f"×{10 ** (power - whole):.1f}e{whole}".replace("-", "−")


def _middle(frame: "pl.DataFrame", bars: int) -> "pl.DataFrame":
    return frame.slice(max(0, (len(frame) - bars) // 2), bars)


def _marks_fit(frame: "pl.DataFrame", width: float) -> bool:
    trades = np.count_nonzero(np.diff(column(frame, "target")))
    return bool(trades <= MOST_MARKS * width / WIDTH)
