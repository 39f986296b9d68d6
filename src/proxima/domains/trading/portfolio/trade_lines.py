"""Answers about several assets as lines of 80 columns, for people."""

from collections.abc import Mapping
from typing import Any

from proxima.domains.trading.trade_lines import day, row

WIDTH = 80
# What a line has before the targets, and how wide.
COLUMNS = {"bar": 10, "equity": 10, "log ret": 7, "orders": 6, "turnover": 8, "cost": 7}
ROOM = WIDTH - sum(COLUMNS.values()) - len(COLUMNS) - 1  # for the targets
HEADER = f"{row(COLUMNS, COLUMNS.values())}  targets, %"


def line(answer: Mapping[str, Any]) -> str:
    """A bar in 80 columns, where its numbers are of a usual size; of the targets those with most weight."""
    account, orders = answer["account"], answer["orders"].values()
    moved = sum(order["units"] * order["price"] for order in orders)
    cells = [
        day(answer["time"]),
        f"{account['equity']:.2f}",
        "–" if account["log_return"] is None else f"{account['log_return']:+.4f}",
        f"{len(orders)}",
        f"{moved / account['equity']:.4f}" if orders else "",
        f"{sum(order['cost'] for order in orders):.2f}" if orders else "",
    ]
    return f"{row(cells, COLUMNS.values())}  {_targets(answer)}".rstrip()


def _targets(answer: Mapping[str, Any]) -> str:
    """The largest targets that there is room for."""
    if answer["ruined"] or answer["targets"] is None:
        return "ruined" if answer["ruined"] else "–"
    largest = sorted(answer["targets"].items(), key=lambda item: -abs(item[1]))
    text = ""
    for asset, weight in largest:
        number = f" {round(100 * weight)}"
        name = asset if len(asset) + len(number) <= ROOM else f"{asset[: ROOM - len(number) - 1]}…"
        added = f"{', ' if text else ''}{name}{number}"
        if len(text) + len(added) > ROOM:
            break
        text += added
    return text
