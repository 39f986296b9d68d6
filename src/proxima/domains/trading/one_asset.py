"""A policy that trades one asset, in use: how its bars are read, answered and told."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from proxima.domains.trading.arriving import new_bars, read_file, read_lines, run_bars, times
from proxima.domains.trading.live_account import Settled
from proxima.domains.trading.recipe import Reader, bad_value, read_recipe, see
from proxima.domains.trading.stepping import Act, Answer, Bar
from proxima.domains.trading.trade_lines import header, line
from proxima.domains.trading.trade_state import NO_BARS, named
from proxima.domains.trading.trader import Trader, arrive
from proxima.domains.trading.use import Bars, Operations, Usable, load_usable, rows_seen
from proxima.run.files import plain


def load(directory: Path) -> Usable[Reader, Trader]:
    """The policy in a directory, of a trial or by itself."""
    return load_usable(directory, read_recipe, operations)


def operations(reader: Reader, act: Act) -> Operations[Trader]:
    """What is done with bars of one asset."""
    return Operations(
        recipe=reader.recipe,
        trader=Trader,
        new_trader=Trader,
        no_bars=NO_BARS,
        first_prices=("open",),
        closes=("close",),
        first_seen=lambda frame: see(reader, frame).ready,
        run_bars=partial(run_bars, reader.recipe.data),
        read_file=read_file,
        read_lines=read_lines,
        new_bars=lambda past, batch, spacing, remedy: new_bars(
            past, batch, spacing, reader.needs_volume, remedy
        ),
        answers=partial(_answers_as_json, reader, act),
        header=header(reader.account),
        line=line,
    )


def answers(
    reader: Reader, act: Act, trader: Trader, bars: Bars
) -> Iterator[tuple[Trader, Answer[float, Settled]]]:
    """The trader and its answer after each new bar."""
    frame = bars.frame
    seen = see(reader, frame, bars.first)
    bad = bad_value(reader, seen, max(seen.ready, bars.first))
    stamps, opens, closes = times(frame), frame["open"].to_numpy(), frame["close"].to_numpy()
    for row, features in rows_seen(bars, seen, bad, reader.account.window):
        bar = Bar(stamps[row], float(opens[row]), float(closes[row]))
        trader, answer = arrive(reader, act, trader, bar, features)
        yield trader, answer


def _answers_as_json(
    reader: Reader, act: Act, trader: Trader, bars: Bars
) -> Iterator[tuple[Trader, dict[str, Any]]]:
    for after, answer in answers(reader, act, trader, bars):
        yield after, as_json(answer, after.capital)


def as_json(answer: Answer[float, Settled], capital: float) -> dict[str, Any]:
    """An answer as one object of JSON."""
    settled = None
    if answer.settled is not None:
        decision, figures = answer.settled
        equity = capital * float(np.exp(figures.log_value))
        settled = {"time": decision.time, **figures._asdict(), "equity": equity}
    content = named(answer._replace(settled=None)) | {"settled": settled}
    for name in ("order", "fill"):
        if content[name] is not None:
            content[name] = with_side(content[name])
    result: dict[str, Any] = plain(content)
    return result


def with_side(order: Mapping[str, Any]) -> dict[str, Any]:
    """An order that says whether to buy or to sell, and how many."""
    side = "buy" if order["units"] > 0 else "sell"
    return {"side": side, **order, "units": abs(order["units"])}
