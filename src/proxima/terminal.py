"""Standard output and error as a run uses them: a reader that is slow, gone or full is not its problem.

    Output(stream, waits=False)   progress: what the reader does not take at once is dropped
    Output(stream, waits=True)    results: waits for a slow reader; none at all is no error

A screen shows progress in the way that suits where it goes: a terminal gets lines that are redrawn, a
notebook one line that is overwritten, everything else (a file, a pipe) a line per tenth of the way or
per minute, and one for each thing that is done after training.
"""

import io
import os
import select
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

# What a pipe takes at once if it takes anything.
PIECE = getattr(select, "PIPE_BUF", 512)
# Milliseconds for a reader that has kept up so far: a terminal may be busy for a moment.
PATIENCE = 100
LOG_SECONDS = 60.0  # after which a log gets a line though little has been done
NOTEBOOK_SECONDS = 0.1  # a browser redraws no more often
# Names are no markup.
PLAIN: dict[str, Any] = dict.fromkeys(("markup", "emoji", "highlight", "force_jupyter"), False)


class Output(io.TextIOBase):
    """A stream to write to that never raises, and (not `waits`) never blocks."""

    def __init__(self, stream: TextIO | None, waits: bool) -> None:
        self.stream = stream  # None: closed before the program was started
        self.waits = waits
        self._keeps_up = True

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return (self.stream and self.stream.encoding) or "utf-8"

    def isatty(self) -> bool:
        """Whether a person is looking."""
        with suppress(ValueError):  # closed
            return self.stream is not None and self.stream.isatty()
        return False

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        """Writes as much as can be."""
        with suppress(OSError, ValueError):  # gone, full or closed
            self._send(text)
        return len(text)

    def _send(self, text: str) -> None:
        if self.stream is None:
            return
        descriptor = _descriptor(self.stream)
        if descriptor is None:
            self.stream.write(text)
            self.stream.flush()
            return
        # Past the stream's own buffer, which would try again at the end of the program.
        if self.waits:
            self.stream.flush()
        content = text.encode(self.encoding, "replace")
        for start in range(0, len(content), PIECE):
            if not self.waits and not self._takes_more(descriptor):
                return
            piece = content[start : start + PIECE]
            while piece:
                piece = piece[os.write(descriptor, piece) :]

    def _takes_more(self, descriptor: int) -> bool:
        if sys.platform == "win32":  # cannot be asked
            return True
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT)
        self._keeps_up = bool(poll.poll(PATIENCE if self._keeps_up else 0))
        return self._keeps_up


def _descriptor(stream: TextIO) -> int | None:
    """Of a real file; a notebook's or a test's stream has none of its own."""
    if not isinstance(stream, io.TextIOWrapper):
        return None
    try:
        return stream.fileno()
    except io.UnsupportedOperation:
        return None


def plain_console(stderr: bool = False) -> Console:
    """Prints text as it is, without reading markup into it."""
    return Console(stderr=stderr, **PLAIN)


def run_console(stderr: bool = False) -> Console:
    """For the results of a run, which has succeeded whether or not anybody reads them."""
    output: Any = Output(sys.stderr if stderr else sys.stdout, waits=True)
    return Console(file=output, **PLAIN)


def keep_output() -> None:
    """Standard output is Python's alone from now on; what libraries write to it goes to standard error."""
    sys.stdout.flush()
    own = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = os.fdopen(own, "w", encoding=sys.stdout.encoding)


class ProgressLine(NamedTuple):
    """How far something has come."""

    of: Any  # a run, or a stage of a trial
    fraction: float
    ended: bool
    plain: str  # all in a line, for files and notebooks
    line: Text  # for a terminal
    details: Text = Text()  # below it
    is_busy: bool = False  # with work of unknown length: something moves to show that it goes on


class Screen(NamedTuple):
    """Where progress is shown."""

    say: Callable[[str], None]
    show: Callable[[ProgressLine], None]
    close: Callable[[], None]


def open_screen(console: Console, waiting: str) -> Screen:
    """The screen of a console; `waiting` is shown until there is progress."""
    file: Any = console.file
    output: Any = Output(file.stream if isinstance(file, Output) else file, waits=False)
    if in_notebook():
        return _notebook(output)
    own = Console(file=output, force_terminal=console.is_terminal, **PLAIN)
    return _terminal(own, waiting) if console.is_terminal else _log(own)


def _terminal(console: Console, waiting: str) -> Screen:
    live = Live(
        Text(waiting, style="dim"),
        console=console,
        transient=True,
        refresh_per_second=8,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    live.start()
    return Screen(
        say=lambda text: console.print(text, soft_wrap=True),
        show=lambda progress: live.update(_drawn(progress)),
        close=live.stop,
    )


def _drawn(progress: ProgressLine) -> Any:
    """The lines of a terminal, one below the other."""
    if not progress.is_busy:
        return Group(progress.line, progress.details)
    from rich.spinner import Spinner

    return Spinner("dots", progress.line)


def _log(console: Console) -> Screen:
    of: Any = None  # what the last line was about
    fraction, then = 0.0, 0.0  # how far that was, and when

    def show(progress: ProgressLine) -> None:
        nonlocal of, fraction, then
        now = time.monotonic()
        has_moved = progress.fraction >= fraction + 0.1 or now >= then + LOG_SECONDS
        if progress.ended or progress.of != of or has_moved:
            of, fraction, then = progress.of, progress.fraction, now
            console.print(progress.plain, soft_wrap=True)

    return Screen(lambda text: console.print(text, soft_wrap=True), show, lambda: None)


def _notebook(output: Output) -> Screen:
    """One output that is replaced; its last line of training stays, and a saved notebook has that alone."""
    from IPython.display import display

    handle: Any = None
    of: Any = None  # what the line is about
    last, then = "", 0.0  # the last line of training, and when one was shown

    def replace(text: str) -> None:
        nonlocal handle
        data = {"text/plain": text}
        if handle is None:
            handle = display(data, raw=True, display_id=True)
        else:
            handle.update(data, raw=True)

    def show(progress: ProgressLine) -> None:
        nonlocal of, last, then
        last = last if progress.is_busy else progress.plain
        now = time.monotonic()
        if progress.ended or progress.of != of or now >= then + NOTEBOOK_SECONDS:
            of, then = progress.of, now
            replace(progress.plain)

    def close() -> None:
        if handle is not None and last:
            replace(last)

    def say(text: str) -> None:
        output.write(f"{text}\n")

    return Screen(say, show, close)


def in_notebook() -> bool:
    """Whether this is the kernel of a notebook."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and "IPKernelApp" in shell.config
