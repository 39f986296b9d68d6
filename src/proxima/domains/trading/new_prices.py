"""A trained policy on prices that its run has never seen: the figures of a closing evaluation."""

from pathlib import Path

import numpy as np

from proxima.domains.domain import DataFigures
from proxima.domains.trading import metrics
from proxima.domains.trading.arriving import times
from proxima.domains.trading.judge import (
    account_of,
    account_trades,
    assess,
    returns_of,
    stretch_references,
)
from proxima.domains.trading.market import Market
from proxima.domains.trading.one_asset import answers, load
from proxima.domains.trading.rollouts import REFERENCES
from proxima.domains.trading.trader import Trader
from proxima.domains.trading.unseen import (
    Figures,
    Stretch,
    check_decisions,
    figure_lines,
    find_stretch,
    year_for,
)
from proxima.run.results import to_json

SHOWN = {
    "log_return": "log return",
    "total_return": "return",
    "sharpe": "Sharpe",
    "max_drawdown": "drawdown",
    "trades": "trades",
    "win_rate": "win rate",
    "turnover": "turnover",
}


def evaluate_prices(directory: Path, path: Path) -> DataFigures:
    """An exported policy on a file of prices, beside others on the same bars."""
    usable = load(directory)
    env = usable.reader.account
    stretch = find_stretch(usable, path)
    year, notes = year_for(usable.operations, stretch)
    market = _market(stretch, env.window)
    steps = len(returns_of(market, env)) if len(market.close) > 2 else 0
    check_decisions(path, stretch, steps, env.fill)
    followed = answers(usable.reader, usable.act, Trader(1.0), stretch.to_follow)
    targets = [answer.target for _, answer in followed if answer.target is not None]
    done = account_of(market, env, np.array(targets[:steps]))
    compared = stretch_references(market, env, year)
    sheet = metrics.tear_sheet(done, account_trades(market, env, done), year.bars)
    result = assess(done, sheet, False, compared)
    content = {
        "policy": str(usable.directory),
        "data": str(path),
        "decisions": steps,
        "first": str(market.time[env.window - 1]),
        "last": str(market.time[-1]),
        "past": stretch.past,
        "notes": [*stretch.notes, *notes],
        "periods_per_year": year.bars,
        **to_json(result),
        "references": to_json(compared),
    }
    others = {
        name.replace("perfect ", ""): compared[key]
        for key, name in REFERENCES.items()
        if compared[key] is not None
    }
    chance = compared.random["log_return"].mean
    figures = Figures(SHOWN, result.agent, others, chance, result.too_good)
    return DataFigures(content, list(figure_lines(content, figures)))


def _market(stretch: Stretch, window: int) -> Market:
    """The new bars from the first decision's window on; nothing here looks at features."""
    start = stretch.first - window + 1
    frame = stretch.bars.slice(start)
    prices = {name: frame[name].to_numpy() for name in frame.columns if name != "time"}
    empty = np.zeros((frame.height, 0), np.float32)
    return Market(time=times(frame), **prices, features=empty)
