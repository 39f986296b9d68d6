"""Answers as lines of 80 columns, for people."""

from collections.abc import Iterable, Mapping
from typing import Any

from proxima.domains.trading.config import TradingEnvConfig

# What a line has, and how wide: 80 in all.
COLUMNS = {
    "bar": 10,
    "close": 7,
    "target": 7,
    "order": 12,
    "cost": 6,
    "units": 7,
    "cash": 8,
    "equity": 8,
    "log ret": 7,
}
FILLS = {"next_open": "at the open", "next_close": "at the close", "same_close": "at once"}


def header(env: TradingEnvConfig) -> str:
    """What stands above the lines of one asset."""
    names = [FILLS[env.fill] if name == "order" else name for name in COLUMNS]
    return row(names, COLUMNS.values())


def line(answer: Mapping[str, Any]) -> str:
    """A bar in 80 columns, where its numbers are of a usual size."""
    order, account = answer["order"], answer["account"]
    words, cost = "", ""
    if order is not None:
        words, cost = f"{order['side']} {order['units']:.4g}", f"{order['cost']:.2f}"
    return row(
        [
            day(answer["time"]),
            f"{answer['close']:.6g}",
            _signed(answer["target"]),
            "ruined" if answer["ruined"] else words,
            cost,
            _units(account["units"]),
            f"{account['cash']:.2f}",
            f"{account['equity']:.2f}",
            "–" if account["log_return"] is None else f"{account['log_return']:+.4f}",
        ],
        COLUMNS.values(),
    )


def _units(units: float) -> str:
    """Five digits, or four where a sign takes the room of one; many are whole, without an exponent."""
    if abs(units) >= 10_000:
        return f"{units:.0f}"
    digits = f"{units:.5g}"
    return digits if len(digits) <= COLUMNS["units"] else f"{units:.4g}"


def _signed(target: float | None) -> str:
    return "–" if target is None else f"{target:+.4g}" if target else "0"


def row(cells: Iterable[str], widths: Iterable[int]) -> str:
    """Cells side by side, the first to the left and the others to the right."""
    first, *others = zip(cells, widths, strict=True)
    return " ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)])


def day(stamp: str) -> str:
    """A time without what is zero."""
    return stamp.removesuffix("Z").removesuffix(":00").removesuffix("T00:00").replace("T", " ")
