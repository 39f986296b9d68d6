"""Pictures of one trial: how it learnt, what it earns, what it does.

Figures are made without pyplot, which is slow to import and keeps global state.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Okabe and Ito's palette, told apart with any colour vision
BLUE, VERMILLION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, GREY, INK = "#E69F00", "#56B4E9", "#7F7F7F", "#222222"
COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, INK)

PANELS = {
    "loss/policy": "policy loss",
    "loss/value": "value loss",
    "train/entropy": "entropy (nats)",
    "train/approx_kl": "approximate KL (nats)",
    "train/clip_fraction": "clipped share",
    "train/explained_variance": "explained variance",
    "train/grad_norm": "gradient norm",
    "time/steps_per_second": "steps per second",
}
COLUMNS = 3
MOST_ACTION_ROWS = 6


def learning_curve(
    path: str | Path,
    rows: Sequence[Mapping[str, Any]],
    target: float | None = None,
    title: str = "Learning curve",
) -> None:
    """Draw a trial's metrics.jsonl rows: returns on top, what else was recorded below."""
    from matplotlib.ticker import EngFormatter

    panels = [key for key in PANELS if len(series(rows, key)[0])]
    times = _time_keys(rows)
    count = len(panels) + bool(times)
    lines = -(-count // COLUMNS)
    figure = new_figure(8, 3.6 + 1.75 * lines)
    grid = figure.add_gridspec(1 + lines, COLUMNS, height_ratios=[2.1] + [1] * lines)

    axes = figure.add_subplot(grid[0, :])
    lines_drawn = (
        ("episode/return", SKY, 1.2, "training episodes (exploring)"),
        ("eval/return_mean", BLUE, 2.0, "evaluation (greedy)"),
    )
    for key, colour, width, label in lines_drawn:
        steps, returns = series(rows, key)
        dots = "o" if len(steps) <= 60 else None
        if len(steps):
            axes.plot(
                steps, returns, color=colour, lw=width, marker=dots, ms=1 + width, label=label
            )
    draw_target(axes, target)
    style(axes, title, "environment steps", "mean episode return")
    steps_axis(axes)
    legend(axes)

    for place, key in enumerate(panels):
        panel = figure.add_subplot(grid[1 + place // COLUMNS, place % COLUMNS])
        steps, values = series(rows, key)
        lone = "o" if len(steps) == 1 else None
        panel.plot(steps, values, color=INK, linewidth=1.2, marker=lone, markersize=4)
        _small(panel, PANELS[key])
        if key == "time/steps_per_second":
            panel.yaxis.set_major_formatter(EngFormatter(sep=""))
    if times:
        place = len(panels)
        panel = figure.add_subplot(grid[1 + place // COLUMNS, place % COLUMNS])
        _time_split(panel, rows, times)
    save(figure, path)


def reward_plot(
    path: str | Path,
    evaluation: Mapping[str, Any],
    sampled: Mapping[str, Any] | None = None,
    random: Mapping[str, Any] | None = None,
    title: str = "Episode returns after training",
) -> None:
    """Draw every episode's return of the greedy, the sampled and the random policy, with means."""
    policies = {"greedy": evaluation, "sampled": sampled, "random": random}
    shown = {name: found["returns"] for name, found in policies.items() if found is not None}
    figure = new_figure(8, 1.2 + 0.85 * len(shown))
    axes = figure.add_subplot()
    for row, (name, returns) in enumerate(shown.items()):
        colour = {"greedy": BLUE, "sampled": GREEN, "random": GREY}[name]
        strip(axes, row, returns, colour, vertical=False)
        axes.text(
            1.02, row, describe(returns), transform=axes.get_yaxis_transform(), va="center", **SMALL
        )
    axes.set_yticks(range(len(shown)), list(shown))
    axes.set_ylim(len(shown) - 0.5, -0.5)
    style(axes, title, "episode return  (dot: episode, box: quartiles, diamond: mean)", "")
    axes.tick_params(axis="y", labelsize=11, length=0)
    _widen(axes, [value for returns in shown.values() for value in returns])
    save(figure, path)


def action_plot(
    path: str | Path,
    actions: ArrayLike,
    rewards: ArrayLike,
    action_kind: Literal["discrete", "continuous"],
    labels: Sequence[str] | None = None,
    title: str = "Actions of one greedy episode",
) -> None:
    """Draw one episode's actions over time with their histogram beside, and its return below.

    actions is (steps,) or (steps, dimensions); labels name the discrete actions or the dimensions.
    """
    array = np.asarray(actions)
    array = array.reshape(len(array), -1)
    rewards = np.asarray(rewards, dtype=float).ravel()
    rows = min(array.shape[1], MOST_ACTION_ROWS)
    if rows < array.shape[1]:
        title = f"{title} (first {rows} of {array.shape[1]} dimensions)"
    figure = new_figure(8, 2.9 + 1.35 * rows)
    grid = figure.add_gridspec(
        rows + 1, 2, width_ratios=[3.2, 1], height_ratios=[1.5 if rows == 1 else 1] * rows + [1]
    )
    returns = figure.add_subplot(grid[rows, 0])
    for row in range(rows):
        over_time = figure.add_subplot(grid[row, 0], sharex=returns)
        histogram = figure.add_subplot(grid[row, 1], sharey=over_time)
        name = "action" if rows == 1 else f"action {row}"
        if action_kind == "discrete":
            lanes = labels if rows == 1 else None
            _discrete_row(over_time, histogram, array[:, row].astype(int), lanes)
        else:
            name = name if labels is None else labels[row]
            _continuous_row(over_time, histogram, array[:, row].astype(float))
        style(over_time, title if row == 0 else "", "", name)
        style(histogram, "share of steps" if row == 0 else "", "", "")
        over_time.tick_params(labelbottom=False)
        histogram.tick_params(labelleft=False)
        _percent(histogram)
    returns.plot(np.arange(len(rewards)), np.cumsum(rewards), color=GREEN, linewidth=1.5)
    style(returns, "", "step of the episode", "return so far")
    corner = figure.add_subplot(grid[rows, 1])
    corner.axis("off")
    corner.text(0, 0.5, f"{len(rewards):,} steps\nreturn {number(rewards.sum())}", va="center")
    save(figure, path)


SMALL = {"fontsize": 9, "color": INK}


def new_figure(width: float, height: float) -> Any:
    """A white figure whose parts are laid out without overlap, in inches."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.09)
    return Figure(figsize=(width, height), dpi=150, layout=layout, facecolor="white")


def save(figure: Any, path: str | Path) -> None:
    """Write the figure as PNG, with the directories it needs."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="png")


def style(axes: Any, title: str, x_label: str, y_label: str) -> None:
    """Give axes the house look: few lines, left-bound title, labels in words."""
    axes.set_title(title, loc="left", fontsize=12, color=INK)
    axes.set_xlabel(x_label, fontsize=10, color=INK)
    axes.set_ylabel(y_label, fontsize=10, color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
    axes.tick_params(labelsize=9, color=GREY, labelcolor=INK)
    axes.grid(True, color="#E6E6E6", linewidth=0.7)
    axes.set_axisbelow(True)


def legend(axes: Any) -> None:
    """Name what was drawn, where there is room."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="best", fontsize=9, framealpha=0.9, edgecolor="none")


def steps_axis(axes: Any) -> None:
    """Write steps as 50k or 2M, from 0 on."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_xlim(left=0)


def draw_target(axes: Any, target: float | None) -> None:
    """A dashed line at the return that counts as solved."""
    if target is not None:
        label = f"target {number(target)}"
        axes.axhline(target, color=INK, linestyle=(0, (5, 3)), linewidth=1.2, label=label)


def series(
    rows: Sequence[Mapping[str, Any]], key: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The steps and values of one metric, where it was recorded and finite."""
    pairs = [(row["step"], row[key]) for row in rows if row.get(key) is not None]
    array = np.asarray(pairs, dtype=float).reshape(-1, 2)
    array = array[np.isfinite(array[:, 1])]
    return array[:, 0], array[:, 1]


def number(value: float, digits: int | None = None) -> str:
    """A number as people write it: no decimals where they say nothing."""
    if not np.isfinite(value):
        return "failed"
    digits = decimals(value) if digits is None else digits
    return f"{value:,.{digits}f}".replace("-", "−")


def decimals(value: float) -> int:
    """How many decimals of a number are worth reading."""
    if not np.isfinite(value) or value == round(value) or abs(value) >= 1000:
        return 0
    return 1 if abs(value) >= 10 else 2


def describe(returns: ArrayLike) -> str:
    """Mean and spread of some returns in a line, with what was left out."""
    array = np.asarray(returns, dtype=float)
    finite = array[np.isfinite(array)]
    lost = len(array) - len(finite)
    note = f"\n{lost} not finite, left out" if lost else ""
    if not len(finite):
        return f"no finite return{note}"
    if len(finite) > 1 and np.ptp(finite) == 0:
        return f"all {len(finite)} episodes {number(finite[0])}{note}"
    return f"mean {number(finite.mean())} ± {number(finite.std())}\nn = {len(finite)}{note}"


def strip(axes: Any, place: float, returns: ArrayLike, colour: str, vertical: bool) -> None:
    """Every finite return as a dot, the quartile box behind and the mean as a diamond in front."""
    values = np.asarray(returns, dtype=float)
    values = values[np.isfinite(values)]
    if not len(values):
        return
    # the golden ratio spreads any number of dots evenly, and the same way each time
    spread = place + 0.5 * ((np.arange(len(values)) * 0.618034) % 1 - 0.5)
    orientation = "vertical" if vertical else "horizontal"
    axes.boxplot(
        [values],
        positions=[place],
        widths=0.62,
        orientation=orientation,
        showfliers=False,
        manage_ticks=False,
        patch_artist=True,
        boxprops={"facecolor": colour, "alpha": 0.18, "edgecolor": colour},
        medianprops={"color": colour, "linewidth": 1.5},
        whiskerprops={"color": colour},
        capprops={"color": colour},
    )
    dots = (spread, values) if vertical else (values, spread)
    axes.scatter(*dots, s=11, color=colour, alpha=0.55, linewidths=0, zorder=3)
    mean = (place, values.mean()) if vertical else (values.mean(), place)
    axes.scatter(*mean, s=60, marker="D", color=colour, edgecolors="white", zorder=4)


def _time_keys(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The seconds spent per chunk by part: all of time/ but rates and sums."""
    keys = dict.fromkeys(key for row in rows for key in row if key.startswith("time/"))
    apart = ("per_second", "total", "elapsed")
    parts = [key for key in keys if not any(word in key for word in apart)]
    return [key for key in parts if series(rows, key)[1].any()]


def _time_split(axes: Any, rows: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> None:
    steps = [row["step"] for row in rows]
    seconds = np.asarray([[row.get(key) or 0.0 for row in rows] for key in keys], dtype=float)
    names = [key.removeprefix("time/").removesuffix("_seconds").replace("_", " ") for key in keys]
    colours = [COLOURS[place % len(COLOURS)] for place in range(len(keys))]
    edges = np.diff(steps, prepend=0)
    base = np.zeros(len(steps))
    for name, part, colour in zip(names, np.nan_to_num(seconds), colours, strict=True):
        axes.bar(steps, part, -edges, base, align="edge", color=colour, linewidth=0, label=name)
        base += part
    _small(axes, "seconds per chunk")
    axes.set_ylim(0, 1.5 * base.max())  # room for the names
    axes.legend(fontsize=7, ncols=2, frameon=False, loc="upper right", handlelength=1)


def _small(axes: Any, title: str) -> None:
    style(axes, title, "", "")
    axes.set_title(title, loc="left", fontsize=9.5, color=INK)
    axes.tick_params(labelsize=8)
    steps_axis(axes)
    axes.locator_params(nbins=4)


def _discrete_row(
    over_time: Any, histogram: Any, actions: NDArray[np.int64], labels: Sequence[str] | None
) -> None:
    known = len(labels) if labels is not None else 0
    lanes = np.arange(max(actions.max(initial=0) + 1, known, 2))
    over_time.scatter(np.arange(len(actions)), actions, marker="|", s=160, color=BLUE, linewidths=1)
    share = np.bincount(actions, minlength=len(lanes)) / max(len(actions), 1)
    histogram.barh(lanes, share, height=0.6, color=BLUE)
    if len(lanes) <= 18:
        names = [str(lane) for lane in lanes]
        names[:known] = list(labels or ())
        over_time.set_yticks(lanes, names)
    over_time.set_ylim(-0.6, len(lanes) - 0.4)


def _continuous_row(over_time: Any, histogram: Any, actions: NDArray[np.float64]) -> None:
    finite = actions[np.isfinite(actions)]
    over_time.plot(np.arange(len(actions)), actions, color=BLUE, linewidth=1.2)
    weights = np.full(len(finite), 1 / max(len(finite), 1))
    histogram.hist(finite, bins=25, weights=weights, orientation="horizontal", color=BLUE)


def _percent(axes: Any) -> None:
    from matplotlib.ticker import PercentFormatter

    axes.locator_params(axis="x", nbins=3)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))


def _widen(axes: Any, values: ArrayLike) -> None:
    """Leave room around the values, also where they are all one number."""
    array = np.asarray(values, dtype=float)
    array = array[np.isfinite(array)]
    if len(array):
        room = 0.06 * np.ptp(array) or max(1.0, 0.05 * abs(array[0]))
        axes.set_xlim(array.min() - room, array.max() + room)
