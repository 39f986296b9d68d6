"""`proxima trade`: bars in, a line for each out, and a state on disk that every restart goes on from."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from proxima.core.errors import ProximaError
from proxima.core.paths import usable_path
from proxima.domains.trading.arriving import Batch, read_batches, read_lines
from proxima.domains.trading.config import TradingEnvConfig
from proxima.domains.trading.splits import moment_of
from proxima.domains.trading.trade_state import is_state
from proxima.domains.trading.use import FILE_BARS, Settings, follow, load_usable, open_state
from proxima.run.lock import locked
from proxima.train.devices import use_compilation_cache

Write = Callable[[str], Any]
FILLS = {"next_open": "at next open", "next_close": "at next close", "same_close": "at this close"}


class Options(NamedTuple):
    """What the command line says."""

    capital: float | None = None
    begin: str | None = None
    past: Path | None = None
    fresh: bool = False
    any_gap: bool = False
    json: bool = False


def trade_bars(
    trial: Path, bars: str, state: Path | None, options: Options, out: Write, err: Write
) -> bool:
    """Follows the policy of a trial over a file or lines of bars; False: Ctrl-C ended it."""
    settings = _settings(options)
    batches = _batches(bars)
    use_compilation_cache()
    usable = load_usable(trial)
    directory = trial / "trade" if state is None else state
    known, told = 0, False
    try:
        _make(directory)
        with locked(directory):
            is_new = not is_state(directory)
            opened = open_state(usable, directory, settings)
            err(_begins(opened.saved, directory, is_new) + "\n")
            for batch in batches:
                opened, answers, old = follow(usable, directory, opened, batch, options.any_gap)
                known += old
                for answer in answers:
                    if options.json:
                        out(json.dumps(answer, allow_nan=False) + "\n")
                        continue
                    if not told:
                        out(_header(usable.reader.account) + "\n")
                        told = True
                    out(_line(answer) + "\n")
    except KeyboardInterrupt:
        err(f"Stopped. The same command goes on from {directory}\n")
        return False
    if known:
        err(f"{known:,} bars were known already and are the same.\n")
    return True


def _settings(options: Options) -> Settings:
    if options.capital is not None and not 0 < options.capital < float("inf"):
        raise ProximaError(
            f"--capital {options.capital:g}: is no amount of money; give more than 0"
        )
    if options.fresh and (options.past is not None or options.begin is not None):
        raise ProximaError("--fresh: trades without the run's data; leave out --past and --from")
    begin = None
    if options.begin is not None:
        begin = moment_of(options.begin)
        if begin is None:
            raise ProximaError(
                f"--from {options.begin}: is not a time such as 2019-01-31 or 2019-01-31T15:00:00Z"
            )
    return Settings(options.capital, begin, options.past, options.fresh, options.any_gap)


def _batches(bars: str) -> Iterable[Batch]:
    """A file is read whole before anything is traded; lines are waited for."""
    if bars == "-":
        return read_lines(_input())
    return list(read_batches(Path(usable_path(bars)), FILE_BARS))


def _input() -> Iterator[bytes]:
    """Lines as they come: reading ahead would keep the last ones back."""
    while line := sys.stdin.buffer.readline():
        yield line


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as failure:
        raise ProximaError(
            f"{directory}: cannot write there ({failure.strerror}); choose another place by --state"
        ) from failure


def _begins(saved: Any, directory: Path, is_new: bool) -> str:
    past = f"{saved.past:,} bars of past" if saved.past else "no past"
    if is_new:
        return f"Begins flat with {saved.trader.capital:,.10g} and {past}; state in {directory}"
    return f"Goes on after {saved.bars:,} bars, with {past}; state in {directory}"


COLUMNS = (10, 9, 6, 14, 7, 9, 10, 10)
NAMES = ("bar", "close", "target", "order", "cost", "units", "cash", "equity")


def _header(env: TradingEnvConfig) -> str:
    names = [FILLS[env.fill] if name == "order" else name for name in NAMES]
    return _row(names)


def _line(answer: Mapping[str, Any]) -> str:
    """A bar in a line of 80 columns, where numbers are of a usual size."""
    order, account = answer["order"], answer["account"]
    target = "–" if answer["target"] is None else f"{answer['target']:+.4g}"
    words, cost = "", ""
    if order is not None:
        words, cost = f"{order['side']} {order['units']:.5g}", f"{order['cost']:,.2f}"
    money = (f"{account[name]:,.2f}" for name in ("cash", "equity"))
    cash, equity = money
    return _row(
        [
            _day(answer["time"]),
            f"{answer['close']:,.6g}",
            target,
            "ruined" if answer["ruined"] else words,
            cost,
            f"{account['units']:.5g}",
            cash,
            equity,
        ]
    )


def _row(cells: Iterable[str]) -> str:
    first, *others = zip(cells, COLUMNS, strict=True)
    return " ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)])


def _day(stamp: str) -> str:
    """A time without what is zero."""
    return stamp.removesuffix("Z").removesuffix(":00").removesuffix("T00:00").replace("T", " ")
