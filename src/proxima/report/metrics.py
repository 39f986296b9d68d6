"""What trading metrics are called, and how their values are written."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple

from proxima.report.html import Content, Markup, join, tag

NOTHING = "–"
SPACE = "\u00a0"  # at which no line breaks


class Metric(NamedTuple):
    """A metric's name for people, and whether its values are shares."""

    name: str
    share: bool = False


METRICS = {
    "log_return": Metric("Log return"),
    "total_return": Metric("Total return", share=True),
    "cagr": Metric("Growth a year", share=True),
    "sharpe": Metric("Sharpe ratio"),
    "sortino": Metric("Sortino ratio"),
    "calmar": Metric("Calmar ratio"),
    "max_drawdown": Metric("Maximum drawdown", share=True),
    "volatility": Metric("Volatility a year", share=True),
    "var_5": Metric("Value at risk, 5 %, a bar", share=True),
    "omega": Metric("Omega ratio"),
    "profit_factor": Metric("Profit factor"),
    "tail_ratio": Metric("Tail ratio"),
    "psr": Metric("Probability of Sharpe > 0", share=True),
    "hit_rate": Metric("Bars won while invested", share=True),
    "trades": Metric("Trades"),
    "holding_time": Metric("Bars held"),
    "turnover": Metric("Turnover a bar"),
    "exposure_long": Metric("Time long", share=True),
    "exposure_short": Metric("Time short", share=True),
    "exposure_flat": Metric("Time flat", share=True),
}


def figure(value: float | None) -> str:
    """A number in three digits or so: 0.021, 2.71, 1,234, 3.1e9; a dash for none."""
    if value is None or not isfinite(value):
        return NOTHING
    size = abs(value)
    if size >= 1e6 or 0 < size < 0.0005:
        text = f"{value:.2g}".replace("e+0", "e").replace("e+", "e").replace("e-0", "e-")
    elif size >= 1000 or value == round(value):
        text = f"{value:,.0f}"
    else:
        digits = 3 if size < 1 else 2 if size < 10 else 1
        text = f"{value:.{digits}f}"
    return text.replace("-", "−")


def share(value: float | None) -> str:
    """A share in percent, and from a hundredfold on as a factor: 1.23 %, −8 %, ×250."""
    if value is None or not isfinite(value):
        return NOTHING
    if value >= 99:
        return f"×{figure(round(1 + value) if value < 1e6 else value)}"
    percent = 100 * value
    digits = (
        0 if abs(percent) >= 100 or percent == round(percent) else 1 if abs(percent) >= 1 else 2
    )
    return f"{round(percent, digits) + 0.0:,.{digits}f}{SPACE}%".replace("-", "−")  # no −0.00


def spoken(metric: str, value: float | None) -> str:
    """A metric's value as people write it."""
    return share(value) if metric in METRICS and METRICS[metric].share else figure(value)


def between(metric: str, found: Mapping[str, Any]) -> Markup:
    """An interquartile mean and, smaller, its interval."""
    middle = spoken(metric, found["iqm"])
    return (
        join([middle, " ", tag("small", interval(metric, found))])
        if has_interval(found)
        else join([middle])
    )


def interval(metric: str, found: Mapping[str, Any]) -> str:
    """The ends of an interval, in brackets."""
    return f"[{spoken(metric, found['low'])},{SPACE}{spoken(metric, found['high'])}]"


def has_interval(found: Mapping[str, Any]) -> bool:
    """Whether there were enough trials for one."""
    return found["low"] is not None


def metric_rows(
    agent: Mapping[str, Mapping[str, Any]], references: Sequence[Mapping[str, float | None]]
) -> list[list[Content]]:
    """A row for each metric: its name, the agent's, then that of each reference."""
    known = [metric for metric in METRICS if metric in agent]
    return [
        [
            METRICS[metric].name,
            between(metric, agent[metric]),
            *(spoken(metric, each.get(metric)) for each in references),
        ]
        for metric in known
    ]
