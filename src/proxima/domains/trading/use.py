"""Trained policies in use: the answers to bars that continue a past, which may be on disk.

`proxima trade`, `proxima evaluate --data` and a loaded policy's `step` are all loops over `answers`.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from proxima.core.errors import ProximaError
from proxima.domains.trading import trade_state
from proxima.domains.trading.arriving import (
    Batch,
    new_bars,
    run_bars,
    times,
)
from proxima.domains.trading.market import spacing_of
from proxima.domains.trading.recipe import Reader, bad_value, read_recipe, see
from proxima.domains.trading.splits import moment_of
from proxima.domains.trading.trade_state import NO_BARS, Opened, Saved
from proxima.domains.trading.trader import Act, Answer, Bar, Trader, arrive
from proxima.run.files import RunFiles, plain
from proxima.run.read import make_run_importable, read_info
from proxima.track.registry import ABOUT, load_exported

CAPITAL = 10_000.0


class Usable(NamedTuple):
    """An exported trading policy that can be followed from raw bars on."""

    directory: Path
    reader: Reader
    act: Act
    weights: str  # their SHA-256
    places: tuple[Path, ...]  # where paths of the run's scenario begin


def load_usable(directory: Path) -> Usable:
    """The policy in a directory, of a trial or by itself."""
    make_run_importable(directory)
    loaded = load_exported(directory)
    reader = read_recipe(loaded.about, str(directory / ABOUT))
    files = RunFiles(directory.resolve().parent.parent)
    noted = read_info(files).directories if files.info.is_file() else ()
    places = (Path(), *(Path(each) for each in noted))
    return Usable(directory, reader, loaded.step, loaded.about["weights_sha256"], places)


def past_of(
    usable: Usable, given: Path | None = None, until: np.datetime64 | None = None
) -> pl.DataFrame:
    """The bars of the run, those before a time where one is given."""
    frame = run_bars(usable.reader.recipe.data, usable.places, given)
    if until is None:
        return frame
    kept = frame.head(int(np.searchsorted(times(frame), until)))
    if kept.is_empty():
        raise ProximaError(
            f"--from {until}: the run's data begins at {times(frame)[0]}, so there is no bar before; "
            "--fresh trades without a past"
        )
    return kept


class Bars(NamedTuple):
    """Bars to trade on, after a past."""

    frame: pl.DataFrame  # all of them
    first: int  # row of the first that is new
    source: str  # of the new ones, for errors
    rows_before: int  # of the source
    begin: np.datetime64 | None = None  # those before this time are looked at and not traded on


def answers(
    reader: Reader, act: Act, trader: Trader, bars: Bars
) -> Iterator[tuple[Trader, Answer]]:
    """The trader and its answer after each new bar."""
    frame, first, window = bars.frame, bars.first, reader.account.window
    seen = see(reader, frame, first)
    bad = bad_value(reader, seen, max(seen.ready, first))
    stamps, opens, closes = times(frame), frame["open"].to_numpy(), frame["close"].to_numpy()
    begin = 0 if bars.begin is None else int(np.searchsorted(stamps, bars.begin))
    for row in range(first, frame.height):
        if bad is not None and row == bad[0]:
            where = f"{bars.source}: row {bars.rows_before + row - first + 1:,}"
            raise ProximaError(
                f"{where}: the feature {bad[1]} is no finite number there, so the policy cannot see; a "
                "volume or price that does not change within its window does this"
            )
        features = seen.window(row, window) if row >= max(seen.ready, begin) else None
        bar = Bar(stamps[row], float(opens[row]), float(closes[row]))
        trader, answer = arrive(reader, act, trader, bar, features)
        yield trader, answer


class Settings(NamedTuple):
    """How a trading begins; None: as it did, or the default where it begins now."""

    capital: float | None = None
    until: np.datetime64 | None = None  # the run's bars before this time are the past
    past: Path | None = None  # the file in which the run's bars are now
    fresh: bool = False  # without a past


def open_state(usable: Usable, directory: Path, settings: Settings) -> Opened:
    """The state in a directory, begun there where it is not."""
    if not trade_state.is_state(directory):
        return _begin(usable, directory, settings)
    opened = trade_state.read(directory)
    problem = _disagreement(usable, directory, opened.saved, settings)
    if problem is None:
        return opened
    if opened.saved.bars == 0:  # its first bars were refused, so nothing is lost
        return _begin(usable, directory, settings)
    raise ProximaError(problem)


def _begin(usable: Usable, directory: Path, settings: Settings) -> Opened:
    past = NO_BARS if settings.fresh else past_of(usable, settings.past, settings.until)
    capital = CAPITAL if settings.capital is None else settings.capital
    begin = None if settings.until is None else str(settings.until)
    spacing = spacing_of(times(past)) or usable.reader.recipe.data.spacing
    start = trade_state.Start(usable.weights, past, spacing, begin, capital)
    return trade_state.create(directory, start)


def _disagreement(usable: Usable, directory: Path, saved: Saved, settings: Settings) -> str | None:
    """Why a state cannot be gone on from as the settings say, in words."""
    if saved.policy != usable.weights:
        return (
            f"{directory}: was begun with another policy than {usable.directory} has now; choose another "
            "--state to begin anew, or put the policy back"
        )
    begun = saved.trader.capital
    for name, differs in (
        ("--capital", settings.capital is not None and settings.capital != begun),
        ("--from", settings.until is not None and str(settings.until) != saved.begin),
        ("--fresh", settings.fresh and saved.past > 0),
    ):
        if differs:
            return (
                f"{name}: the trading in {directory} has begun already, with {saved.past:,} bars of past "
                f"and a capital of {begun:g}; leave it out to go on, or begin anew with another --state"
            )
    return None


def amount_of_money(value: float, name: str) -> float:
    """A capital that somebody gave under this name."""
    if not 0 < value < float("inf"):
        raise ProximaError(f"{name} {value:g}: is no amount of money; give more than 0")
    return value


def moment_given(text: str, name: str) -> np.datetime64:
    """A time that somebody gave under this name."""
    moment = moment_of(text)
    if moment is None:
        raise ProximaError(
            f"{name} {text}: is not a time such as 2019-01-31 or 2019-01-31T15:00:00Z"
        )
    return moment


class Taken(NamedTuple):
    """The new bars of a batch, after the past that is known."""

    bars: pl.DataFrame  # past and new
    first: int  # row of the first new one
    known: int  # bars of the batch that had been taken before
    # The answer to the last of them, where the batch has no earlier ones: nobody may have got it.
    again: Mapping[str, Any] | None


def take(usable: Usable, opened: Opened, batch: Batch, any_gap: bool = False) -> Taken:
    """The bars of a batch that continue what is known; an error where they do not."""
    past, spacing = opened.bars, None if any_gap else opened.saved.spacing
    new = new_bars(past, batch, spacing, usable.reader.needs_volume)
    known = batch.frame.height - new.height
    answer = opened.saved.answer
    is_last = bool(known) and times(batch.frame)[known - 1] == times(past)[-1]
    again = answer if is_last and answer is not None else None
    return Taken(pl.concat([past, new]).rechunk(), past.height, known, again)


def as_json(answer: Answer, capital: float) -> dict[str, Any]:
    """An answer as one object of JSON."""
    settled = None
    if answer.settled is not None:
        decision, figures = answer.settled
        equity = capital * float(np.exp(figures.log_value))
        settled = {"time": decision.time, **figures._asdict(), "equity": equity}
    content = trade_state.named(answer._replace(settled=None)) | {"settled": settled}
    for name in ("order", "fill"):
        if content[name] is not None:
            units = content[name].pop("units")
            side = "buy" if units > 0 else "sell"
            content[name] = {"side": side, "units": abs(units), **content[name]}
    result: dict[str, Any] = plain(content)
    return result
