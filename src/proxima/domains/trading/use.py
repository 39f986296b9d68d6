"""Trained policies in use: the answers to bars that continue a past, which may be on disk.

`proxima trade`, `proxima evaluate --data` and a loaded policy's `step` are all loops over answers. What
differs between one asset and several is in `Operations`: one_asset.py has those of one, portfolio/use.py
those of several.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from proxima.core.errors import ProximaError
from proxima.domains.trading import trade_state
from proxima.domains.trading.arriving import ANY_GAP, Batch, times
from proxima.domains.trading.market import Spacing, spacing_of
from proxima.domains.trading.recipe import RunData, Seen
from proxima.domains.trading.splits import moment_of
from proxima.domains.trading.stepping import Act, T
from proxima.domains.trading.trade_state import Opened, Saved
from proxima.run.files import RunFiles
from proxima.run.read import make_run_importable, read_info
from proxima.track.registry import ABOUT, load_exported

CAPITAL = 10_000.0

R = TypeVar("R")


class Bars(NamedTuple):
    """Bars to trade on, after a past."""

    frame: pl.DataFrame  # all of them
    first: int  # row of the first that is new
    where: Callable[[int], str]  # which of the new ones, from 0 → where it is, for errors
    begin: np.datetime64 | None = None  # those before this time are looked at and not traded on


class AnyRecipe(Protocol):
    """What a policy says of itself, whatever it trades."""

    @property
    def bars(self) -> int: ...
    @property
    def data(self) -> RunData: ...
    @property
    def periods_per_year(self) -> float: ...
    @property
    def periods_from(self) -> str: ...


class Operations(NamedTuple, Generic[T]):
    """What differs between trading one asset and several in one account."""

    recipe: AnyRecipe
    trader: type[T]
    new_trader: Callable[[float], T]  # with so much cash, and nothing else
    no_bars: pl.DataFrame
    first_prices: tuple[str, ...]  # columns of opens, or of closes where there are no others
    closes: tuple[str, ...]
    first_seen: Callable[[pl.DataFrame], int]  # row of the first bar that can be decided at
    run_bars: Callable[[Iterable[Path], Path | None], pl.DataFrame]  # of the run, read again
    read_file: Callable[[Path], Batch]
    read_lines: Callable[[Iterable[bytes]], Iterator[Batch]]
    # The past, a batch, how far apart bars are, and how to ask for any gap → those that continue the past.
    new_bars: Callable[[pl.DataFrame | None, Batch, Spacing | None, str], pl.DataFrame]
    # The trader and its answer, as JSON has it, after each new bar.
    answers: Callable[[T, Bars], Iterator[tuple[T, dict[str, Any]]]]
    header: str  # above lines for people
    line: Callable[[Mapping[str, Any]], str]  # an answer in 80 columns


class Usable(NamedTuple, Generic[R, T]):
    """An exported trading policy that can be followed from raw bars on."""

    directory: Path
    reader: R
    act: Act
    weights: str  # their SHA-256
    places: tuple[Path, ...]  # where paths of the run's scenario begin
    operations: Operations[T]


def load_usable(
    directory: Path,
    read: Callable[[Mapping[str, Any], str], R],
    operations: Callable[[R, Act], Operations[T]],
) -> Usable[R, T]:
    """The policy in a directory, of a trial or by itself, whose recipe is read and followed in these ways."""
    make_run_importable(directory)
    loaded = load_exported(directory)
    reader = read(loaded.about, str(directory / ABOUT))
    files = RunFiles(directory.resolve().parent.parent)
    noted = read_info(files).directories if files.info.is_file() else ()
    places = (Path(), *(Path(each) for each in noted))
    weights = loaded.about["weights_sha256"]
    used = operations(reader, loaded.step)
    return Usable(directory, reader, loaded.step, weights, places, used)


def past_of(
    usable: Usable[R, T], given: Path | None = None, until: np.datetime64 | None = None
) -> pl.DataFrame:
    """The bars of the run, those before a time where one is given."""
    frame = usable.operations.run_bars(usable.places, given)
    if until is None:
        return frame
    kept = frame.head(int(np.searchsorted(times(frame), until)))
    if kept.is_empty():
        raise ProximaError(
            f"--from {until}: the run's data begins at {times(frame)[0]}, so there is no bar before; "
            "--fresh trades without a past"
        )
    return kept


def rows_seen(
    bars: Bars, seen: Seen, bad: tuple[int, str] | None, window: int
) -> Iterator[tuple[int, NDArray[np.float32] | None]]:
    """The row of each new bar and what the policy sees there, None while it only looks on.

    `bad` is the first row in which a feature is no finite number, and the feature's name.
    """
    frame, first = bars.frame, bars.first
    begin = 0 if bars.begin is None else int(np.searchsorted(times(frame), bars.begin))
    for row in range(first, frame.height):
        if bad is not None and row == bad[0]:
            raise ProximaError(
                f"{bars.where(row - first)}: the feature {bad[1]} is no finite number there, so the policy "
                "cannot see; a volume or price that does not change within its window does this"
            )
        yield row, seen.window(row, window) if row >= max(seen.ready, begin) else None


class Settings(NamedTuple):
    """How a trading begins; None: as it did, or the default where it begins now."""

    capital: float | None = None
    until: np.datetime64 | None = None  # the run's bars before this time are the past
    past: Path | None = None  # the file in which the run's bars are now
    fresh: bool = False  # without a past


def open_state(usable: Usable[R, T], directory: Path, settings: Settings) -> Opened[T]:
    """The state in a directory, begun there where it is not."""
    if not trade_state.is_state(directory):
        return _begin(usable, directory, settings)
    operations = usable.operations
    opened = trade_state.read(directory, operations.trader, operations.no_bars)
    problem = _disagreement(usable, directory, opened.saved, settings)
    if problem is None:
        return opened
    if opened.saved.bars == 0:  # its first bars were refused, so nothing is lost
        return _begin(usable, directory, settings)
    raise ProximaError(problem)


def _begin(usable: Usable[R, T], directory: Path, settings: Settings) -> Opened[T]:
    operations = usable.operations
    past = operations.no_bars
    if not settings.fresh:
        past = past_of(usable, settings.past, settings.until)
    capital = CAPITAL if settings.capital is None else settings.capital
    begin = None if settings.until is None else str(settings.until)
    spacing = spacing_of(times(past)) or operations.recipe.data.spacing
    trader = operations.new_trader(capital)
    return trade_state.create(
        directory, trade_state.Start(usable.weights, past, spacing, begin, trader)
    )


def _disagreement(
    usable: Usable[R, T], directory: Path, saved: Saved[T], settings: Settings
) -> str | None:
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


def take(usable: Usable[R, T], opened: Opened[T], batch: Batch, any_gap: bool = False) -> Taken:
    """The bars of a batch that continue what is known; an error where they do not."""
    past, spacing = opened.bars, None if any_gap else opened.saved.spacing
    new = usable.operations.new_bars(past, batch, spacing, ANY_GAP)
    known = batch.frame.height - new.height
    answer = opened.saved.answer
    is_last = bool(known) and times(batch.frame)[known - 1] == times(past)[-1]
    again = answer if is_last and answer is not None else None
    return Taken(pl.concat([past, new]).rechunk(), past.height, known, again)
