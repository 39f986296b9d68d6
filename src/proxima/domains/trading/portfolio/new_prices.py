"""A trained portfolio on prices that its run has never seen: the figures of a closing evaluation."""

from pathlib import Path

import numpy as np

from proxima.domains.domain import DataFigures
from proxima.domains.trading import unseen
from proxima.domains.trading.arriving import times
from proxima.domains.trading.portfolio.assess import (
    account_of,
    assess,
    compare_stretch,
    references_of,
    returns_of,
)
from proxima.domains.trading.portfolio.data import Stretch
from proxima.domains.trading.portfolio.recipe import PanelReader
from proxima.domains.trading.portfolio.results import NAMES
from proxima.domains.trading.portfolio.trader import new_trader
from proxima.domains.trading.portfolio.use import answers, load
from proxima.domains.trading.unseen import Figures, check_decisions, figure_lines
from proxima.run.results import to_json

SHOWN = {
    "log_return": "log return",
    "total_return": "return",
    "sharpe": "Sharpe",
    "max_drawdown": "drawdown",
    "turnover": "turnover",
}


def evaluate_panel(directory: Path, path: Path) -> DataFigures:
    """An exported policy on a file of its assets' prices, beside others on the same bars."""
    usable = load(directory)
    reader, env = usable.reader, usable.reader.account
    newer = unseen.find_stretch(usable, path)
    year, notes = unseen.year_for(usable.operations, newer)
    stretch = _stretch(reader, newer)
    steps = len(returns_of(stretch, env)) if len(stretch.close) > 2 else 0
    check_decisions(path, newer, steps, env.fill)
    flat = new_trader(1.0, len(reader.assets))
    followed = answers(reader, usable.act, flat, newer.to_follow)
    targets = [answer.target for _, answer in followed if answer.target is not None]
    done = account_of(stretch, env, np.array(targets[:steps]))
    compared = references_of(reader.assets, [compare_stretch(stretch, env)], year)
    result = assess(reader.assets, done, compared, year)
    content = {
        "policy": str(usable.directory),
        "data": str(path),
        "decisions": steps,
        "first": str(stretch.time[env.window - 1]),
        "last": str(stretch.time[-1]),
        "past": newer.past,
        "notes": [*newer.notes, *notes],
        "periods_per_year": year.bars,
        **to_json(result),
        "references": to_json(compared),
    }
    others = {NAMES[key]: sheet for key, sheet in compared.rules.items()}
    figures = Figures(SHOWN, result.agent, others, compared.random.mean, result.too_good)
    return DataFigures(content, list(figure_lines(content, figures)))


def _stretch(reader: PanelReader, newer: unseen.Stretch) -> Stretch:
    """The new bars from the first decision's window on; nothing here looks at features."""
    frame = newer.bars.slice(newer.first - reader.account.window + 1)
    closes = frame.select(reader.of("close")).to_numpy()
    opens = frame.select(reader.of("open")).to_numpy() if "open" in reader.fields else closes
    empty = np.zeros((*closes.shape, 0), np.float32)
    return Stretch(times(frame), opens, closes, empty)
