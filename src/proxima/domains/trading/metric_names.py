"""What trading metrics are called, and how their values are written."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from proxima.report.html import Content
from proxima.report.numbers import Write, figure, share, with_interval


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


def writer(metric: str) -> Write:
    """How a metric's values are written."""
    return share if METRICS[metric].share else figure


def metric_rows(
    agent: Mapping[str, Mapping[str, Any]], references: Sequence[Mapping[str, float | None]]
) -> list[list[Content]]:
    """A row for each metric: its name, the agent's, then that of each reference."""
    known = [metric for metric in METRICS if metric in agent]
    return [
        [
            METRICS[metric].name,
            with_interval(agent[metric], writer(metric)),
            *(writer(metric)(reference.get(metric)) for reference in references),
        ]
        for metric in known
    ]
