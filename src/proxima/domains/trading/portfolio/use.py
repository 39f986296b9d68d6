"""A policy that trades several assets in one account, in use: how its bars are read, answered and told."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from proxima.domains.trading.arriving import times
from proxima.domains.trading.one_asset import with_side
from proxima.domains.trading.portfolio.arriving import new_bars, read_file, read_lines, read_past
from proxima.domains.trading.portfolio.recipe import PanelReader, bad_value, read_recipe, see
from proxima.domains.trading.portfolio.trade_lines import HEADER, line
from proxima.domains.trading.portfolio.trader import (
    Amounts,
    PanelSettled,
    PanelTrader,
    arrive,
    new_trader,
)
from proxima.domains.trading.stepping import Act, Answer, Bar, Order
from proxima.domains.trading.use import Bars, Operations, Usable, load_usable, rows_seen
from proxima.run.files import plain


def load(directory: Path) -> Usable[PanelReader, PanelTrader]:
    """The policy in a directory, of a trial or by itself."""
    return load_usable(directory, read_recipe, operations)


def operations(reader: PanelReader, act: Act) -> Operations[PanelTrader]:
    """What is done with bars of several assets."""
    return Operations(
        recipe=reader.recipe,
        trader=PanelTrader,
        new_trader=partial(new_trader, assets=len(reader.assets)),
        no_bars=reader.no_bars,
        first_prices=tuple(reader.of("open" if "open" in reader.fields else "close")),
        closes=tuple(reader.of("close")),
        first_seen=lambda frame: see(reader, frame).ready,
        run_bars=partial(read_past, reader),
        read_file=partial(read_file, reader),
        read_lines=partial(read_lines, reader),
        new_bars=partial(new_bars, reader),
        answers=partial(_answers_as_json, reader, act),
        header=HEADER,
        line=line,
    )


def answers(
    reader: PanelReader, act: Act, trader: PanelTrader, bars: Bars
) -> Iterator[tuple[PanelTrader, Answer[Amounts, PanelSettled]]]:
    """The trader and its answer after each new bar."""
    frame = bars.frame
    seen = see(reader, frame, bars.first)
    bad = bad_value(reader, seen, max(seen.ready, bars.first))
    stamps, closes = times(frame), frame.select(reader.of("close")).to_numpy()
    # without opens nothing is filled there
    opens = frame.select(reader.of("open")).to_numpy() if "open" in reader.fields else closes
    for row, features in rows_seen(bars, seen, bad, reader.account.window):
        bar = Bar(stamps[row], tuple(opens[row].tolist()), tuple(closes[row].tolist()))
        trader, answer = arrive(reader, act, trader, bar, features)
        yield trader, answer


def _answers_as_json(
    reader: PanelReader, act: Act, trader: PanelTrader, bars: Bars
) -> Iterator[tuple[PanelTrader, dict[str, Any]]]:
    for after, answer in answers(reader, act, trader, bars):
        yield after, as_json(answer, after.capital, reader.assets)


def as_json(
    answer: Answer[Amounts, PanelSettled], capital: float, assets: Sequence[str]
) -> dict[str, Any]:
    """An answer as one object of JSON, amounts by asset."""

    def by_asset(amounts: Amounts) -> dict[str, float]:
        return dict(zip(assets, amounts, strict=True))

    account, settled = answer.account, None
    if answer.settled is not None:
        decision, figures = answer.settled
        settled = {"time": decision.time, **figures._asdict()} | {
            "weight": by_asset(figures.weight),
            "contribution": by_asset(figures.contribution),
            "equity": capital * float(np.exp(figures.log_value)),
        }
    result: dict[str, Any] = plain(
        {
            "time": answer.time,
            "closes": by_asset(answer.close),
            "targets": None if answer.target is None else by_asset(answer.target),
            "orders": _orders(answer.order, assets),
            "fills": _orders(answer.fill, assets),
            "account": {
                "cash": account.cash,
                "units": by_asset(account.units),
                "equity": account.equity,
                "weights": by_asset(account.weight),
                "log_return": account.log_return,
            },
            "settled": settled,
            "ruined": answer.ruined,
        }
    )
    return result


def _orders(order: Order[Amounts] | None, assets: Sequence[str]) -> dict[str, dict[str, Any]]:
    """An order for each asset of which something is to be traded."""
    if order is None:
        return {}
    each = zip(assets, order.units, order.price, order.cost, strict=True)
    return {
        asset: with_side({"units": units, "price": price, "cost": cost})
        for asset, units, price, cost in each
        if units
    }
