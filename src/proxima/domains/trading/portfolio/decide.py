"""A loaded policy on raw bars of several assets."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from proxima.core.errors import ProximaError
from proxima.domains.trading.accounting import Floats
from proxima.domains.trading.arriving import Batch
from proxima.domains.trading.decide import BarPolicy, Memory, last_window, unknown_state
from proxima.domains.trading.ohlcv import INDEX_NAMES, PRICES, time_expression, value_words
from proxima.domains.trading.portfolio.arriving import batch_of
from proxima.domains.trading.portfolio.env import observation, targets_of
from proxima.domains.trading.portfolio.panel import SYMBOL, SYMBOL_NAMES, find_columns, panel_of
from proxima.domains.trading.portfolio.recipe import PanelReader, bad_value, see
from proxima.domains.trading.portfolio.trader import PanelTrader
from proxima.domains.trading.portfolio.use import operations
from proxima.domains.trading.stepping import Act
from proxima.domains.trading.tables import WHERE, names_in, table_of

IN_WORDS = "cash and units by asset, or weights by asset"


def bar_policy(
    reader: PanelReader, act: Act, has_memory: bool, weights: str
) -> BarPolicy[PanelTrader]:
    """A policy that decides on bars of several assets."""
    return BarPolicy(
        operations=operations(reader, act),
        read=lambda raw, timed: read_table(reader, raw),
        decide=partial(_decide, reader, act),
        target="targets",
        held=IN_WORDS,
        has_memory=has_memory,
        weights=weights,
    )


def is_panel(raw: Any, assets: tuple[str, ...]) -> bool:
    """Whether these are bars and no observations: every asset has a column, or a column names them."""
    names = [name.strip() for name in names_in(raw)]
    small = {name.lower() for name in names}
    wide = bool(assets) and set(assets) <= set(names)
    return wide or bool(small & set(SYMBOL_NAMES) and set(PRICES) <= small)


def read_table(reader: PanelReader, raw: Any) -> Batch:
    """The bars of a data frame, a mapping of columns or an Arrow table, long or wide."""
    table = table_of(raw)
    if table is None or table.is_empty():
        raise ProximaError(f"{WHERE}: there are no bars")
    numbered = [
        name
        for name, kind in table.schema.items()
        if name.strip().lower() in INDEX_NAMES and kind.is_integer()
    ]
    table = table.drop(numbered)  # the index that pandas makes up
    names, kinds = table.columns, table.dtypes

    def holds_time(place: int) -> bool:
        return kinds[place].is_temporal() or isinstance(kinds[place], pl.String)

    places = find_columns(WHERE, names, holds_time).places
    frame = table.select(
        time_expression(WHERE, names[place], kinds[place])
        if column == "time"
        else pl.col(names[place])
        .cast(pl.String if column == SYMBOL else pl.Float64, strict=False)
        .alias(column)
        for column, place in places.items()
    )
    panel = panel_of(WHERE, frame, lambda row, column: value_words(frame, row, column))
    return batch_of(reader, WHERE, panel)


def _decide(
    reader: PanelReader, act: Act, frame: pl.DataFrame, state: Any, memory: Memory
) -> dict[str, float]:
    """The target weights at the last close, for who holds this."""
    account, recipe = reader.account, reader.recipe
    seen = see(reader, frame, frame.height - 1)
    bad = bad_value(reader, seen, seen.first)
    features = last_window(seen, bad, (frame.height, account.window, recipe.bars))
    closes = frame.select(reader.of("close")).tail(1).to_numpy()[0]
    weights = held_weights(state, reader.assets, closes).astype(np.float32)
    rows = {name: values[None] for name, values in observation(features, weights).items()}
    actions, _ = act(rows, memory)
    (target,) = targets_of(np.asarray(actions), account)
    return dict(zip(reader.assets, target.tolist(), strict=True))


def held_weights(state: Any, assets: tuple[str, ...], closes: Floats) -> Floats:
    """The weights of what is held: nothing, by asset, or of cash and units at the closes."""
    if state is None:
        return np.zeros(len(assets))
    if not isinstance(state, Mapping) or set(state) not in ({"weights"}, {"cash", "units"}):
        raise unknown_state(IN_WORDS, state)
    if "weights" in state:
        return _amounts(state, "weights", assets)
    worth = _amounts(state, "units", assets) * closes
    try:
        value = float(state["cash"]) + float(worth.sum())
    except (TypeError, ValueError) as error:
        raise unknown_state(IN_WORDS, state) from error
    if not 0 < value < float("inf"):
        raise ProximaError("state: cash and units are worth nothing together")
    return worth / value


def _amounts(state: Mapping[str, Any], name: str, assets: tuple[str, ...]) -> Floats:
    """Amounts by asset, 0 of those that are not named."""
    content = state[name]
    if not isinstance(content, Mapping):
        raise unknown_state(IN_WORDS, state)
    for asset in content:
        if asset not in assets:
            raise ProximaError(f"state.{name}: {asset!r} is no asset that the policy trades")
    try:
        amounts = np.array([float(content.get(asset, 0.0)) for asset in assets])
    except (TypeError, ValueError) as error:
        raise unknown_state(IN_WORDS, state) from error
    if not np.isfinite(amounts).all():
        raise unknown_state(IN_WORDS, state)
    return amounts
