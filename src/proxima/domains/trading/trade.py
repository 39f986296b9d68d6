"""`proxima trade`: bars in, a line for each out, and a state on disk that every restart goes on from."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from proxima.core.errors import ProximaError
from proxima.core.paths import usable_path
from proxima.domains.trading import one_asset, trade_state
from proxima.domains.trading.arriving import Batch
from proxima.domains.trading.stepping import T
from proxima.domains.trading.trade_state import Opened, Saved
from proxima.domains.trading.use import (
    Bars,
    Operations,
    R,
    Settings,
    Taken,
    Usable,
    amount_of_money,
    moment_given,
    open_state,
    take,
)
from proxima.run.lock import locked
from proxima.track.registry import describe_exported
from proxima.train.devices import use_compilation_cache

Write = Callable[[str], Any]
SAVED_TOGETHER = 1_000  # bars of a file; of lines each is saved


class Options(NamedTuple):
    """What the command line says."""

    capital: float | None = None
    begin: str | None = None
    past: Path | None = None
    fresh: bool = False
    any_gap: bool = False
    json: bool = False


def trade_bars(
    policy: Path, bars: str, state: Path | None, options: Options, out: Write, err: Write
) -> bool:
    """Follows an exported policy over a file or lines of bars; False: Ctrl-C or its reader ended it."""
    settings = _settings(options)
    use_compilation_cache()
    usable = _load(policy)
    batches = _batches(usable.operations, bars)
    directory = _usual_place(policy) if state is None else state
    tell = _teller(usable.operations, options.json, out)
    known, came = 0, False
    try:
        _make(directory)
        with locked(directory):
            opened = open_state(usable, directory, settings)
            err(_begins(opened.saved, directory) + "\n")
            for batch in batches:
                came = True
                taken = take(usable, opened, batch, options.any_gap)
                known += taken.known
                if taken.again is not None:
                    tell(taken.again)
                opened = _follow(usable, directory, opened, taken, batch, tell)
    except KeyboardInterrupt:
        err(f"Stopped. The same command goes on from {directory}\n")
        return False
    except BrokenPipeError:
        err(f"Nobody reads the answers any more. The same command goes on from {directory}\n")
        return False
    if not came:
        err("No bars came.\n")
    if known:
        words = "1 bar was" if known == 1 else f"{known:,} bars were"
        err(f"{words} known already, with the same values: not traded again.\n")
    return True


def _load(policy: Path) -> Usable[Any, Any]:
    """The policy with what is done for one asset, or for several where it says that it trades those."""
    raw = describe_exported(policy).get("raw")
    if isinstance(raw, Mapping) and raw.get("domain") == "portfolio":
        from proxima.domains.trading.portfolio import use

        return use.load(policy)
    return one_asset.load(policy)


def _follow(
    usable: Usable[R, T],
    directory: Path,
    opened: Opened[T],
    taken: Taken,
    batch: Batch,
    tell: Callable[[Mapping[str, Any]], None],
) -> Opened[T]:
    """Tells the answers to new bars and saves what was told, whatever ends it.

    An answer is told before it is saved: after a kill it may be told twice, the same both times, never lost.
    """
    saved, first = taken.first, taken.first  # rows of the first bar that is not saved, and not told
    trader, answer = opened.saved.trader, None

    def save() -> None:
        nonlocal opened, saved
        if answer is not None and saved < first:
            unsaved = taken.bars.slice(saved, first - saved)
            opened = trade_state.save(directory, opened, unsaved, trader, answer)
            saved = first

    begin = opened.saved.begin
    bars = Bars(
        taken.bars,
        first,
        lambda new: batch.bar(taken.known + new),
        None if begin is None else np.datetime64(begin),
    )
    try:
        for after, content in usable.operations.answers(trader, bars):
            tell(content)
            trader, answer, first = after, content, first + 1
            if first - saved == SAVED_TOGETHER:
                save()
    finally:
        save()
    return opened


def _teller(
    operations: Operations[T], as_objects: bool, out: Write
) -> Callable[[Mapping[str, Any]], None]:
    """Writes an answer as a line; below a header, where people read it."""
    has_header = as_objects

    def tell(answer: Mapping[str, Any]) -> None:
        nonlocal has_header
        if not has_header:
            out(operations.header + "\n")
            has_header = True
        text = json.dumps(answer, allow_nan=False) if as_objects else operations.line(answer)
        out(text + "\n")

    return tell


def _settings(options: Options) -> Settings:
    capital = options.capital
    if capital is not None:
        capital = amount_of_money(capital, "--capital")
    if options.fresh and (options.past is not None or options.begin is not None):
        raise ProximaError("--fresh: trades without the run's data; leave out --past and --from")
    begin = None if options.begin is None else moment_given(options.begin, "--from")
    return Settings(capital, begin, options.past, options.fresh)


def _batches(operations: Operations[T], bars: str) -> Iterable[Batch]:
    """A file is read whole before anything is traded; lines are waited for."""
    if bars == "-":
        return operations.read_lines(_input())
    return [operations.read_file(Path(usable_path(bars)))]


def _input() -> Iterator[bytes]:
    """Lines as they come: reading ahead would keep the last ones back."""
    while line := sys.stdin.buffer.readline():
        yield line


def _usual_place(policy: Path) -> Path:
    """The directory of the account where none is named: beside a trial's policy, within any other."""
    return (policy.parent if policy.name == "policy" else policy) / "trade"


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as failure:
        raise ProximaError(
            f"{directory}: cannot write there ({failure.strerror}); choose another place by --state"
        ) from failure


def _begins(saved: Saved[T], directory: Path) -> str:
    past = f"{saved.past:,} bars of past" if saved.past else "no past"
    if saved.bars == 0:
        return f"Begins flat with {saved.trader.capital:,.10g} and {past}; state in {directory}"
    return f"Goes on after {saved.bars:,} bars, with {past}; state in {directory}"
