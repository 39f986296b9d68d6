"""How pages and the console write numbers: a value in a few digits, an interval, the first of many."""

from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any

from proxima.core.records import Record
from proxima.report.html import Content, Markup, join, tag

NOTHING = "–"
SPACE = "\u00a0"  # at which no line breaks
MOST_ITEMS = 8  # of a list in a sentence

Write = Callable[[float | None], str]


def brief(value: float | None) -> str:
    """A number on the console, with as many digits as its size asks for: 493.6, but 0.0312."""
    if value is None or not isfinite(value):
        return NOTHING
    return f"{value + 0.0:.1f}" if abs(value) >= 10 or value == 0 else f"{value:.3g}"  # no -0.0


def signed(value: float | None) -> str:
    """A difference on the console, with its sign."""
    return f"{'+' if value is not None and value > 0 else ''}{brief(value)}"


def figure(value: float | None) -> str:
    """A number in three digits or so: 0.0013, 0.021, 2.71, 1,234, 3.1e9; a dash for none."""
    if value is None or not isfinite(value):
        return NOTHING
    size = abs(value)
    if size >= 1e6 or 0 < size < 0.0005:
        text = f"{value:.2g}".replace("e+0", "e").replace("e+", "e").replace("e-0", "e-")
    elif size >= 1000 or value == round(value):
        text = f"{value:,.0f}"
    else:
        digits = 4 if size < 0.01 else 3 if size < 1 else 2 if size < 10 else 1
        text = f"{value:.{digits}f}"
    return text.replace("-", "−")


def share(value: float | None) -> str:
    """A share in percent, and from a hundredfold on as a factor: 1.23 %, −8 %, ×250."""
    if value is None or not isfinite(value):
        return NOTHING
    if value >= 99:
        return f"×{figure(round(1 + value) if value < 1e6 else value)}"
    percent = 100 * value
    size = abs(percent)
    if 0 < size < 0.01:  # 0.00 would say that there is none
        return f"{figure(percent)}{SPACE}%"
    digits = 1 if size >= 1 else 2 if size >= 0.1 else 3
    if size >= 100 or percent == round(percent):
        digits = 0
    return f"{round(percent, digits) + 0.0:,.{digits}f}{SPACE}%".replace("-", "−")  # no −0.00


def has_interval(aggregate: Record) -> bool:
    """Whether there were enough trials for one."""
    return aggregate["low"] is not None


def interval(aggregate: Record, write: Write = figure) -> str:
    """The ends of an interval, in brackets."""
    return f"[{write(aggregate['low'])},{SPACE}{write(aggregate['high'])}]"


def with_interval(aggregate: Record, write: Write = figure) -> Markup:
    """An interquartile mean and, smaller, its interval."""
    parts: list[Content] = [write(aggregate["iqm"])]
    if has_interval(aggregate):
        parts += [" ", tag("small", interval(aggregate, write))]
    return join(parts)


def first_few(items: Sequence[Any], most: int = MOST_ITEMS) -> str:
    """Items in a sentence: all of a few, of many the first and how many more there are."""
    shown = items if len(items) <= most else items[: most - 1]
    more = f" and {len(items) - len(shown)} more" if len(items) > len(shown) else ""
    return ", ".join(map(str, shown)) + more
