"""Signals that ask a run to stop: Ctrl-C, SIGTERM of a supervisor, SIGHUP of a terminal that closes.

    with raising():                     building and finishing: a signal is a KeyboardInterrupt
        with interruptible() as asked:  training: the first one is remembered until the loop asks, or
                                        (at once) raised too, where the loop could save nothing more

What is ignored when the run starts stays ignored, SIGHUP under nohup for example.
"""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

Handler = Callable[[int, FrameType | None], None]
# Not every system has all of them.
STOP_SIGNALS = [one for one in signal.Signals if one.name in ("SIGINT", "SIGTERM", "SIGHUP")]
AGAIN_SECONDS = 0.05


@contextmanager
def interruptible(at_once: bool = False) -> Iterator[Callable[[], bool]]:
    """While open, the first signal is remembered for the loop to see; a second one ends at once.

    `at_once`: the first does so too. It is remembered all the same, as somebody's code may swallow what
    is raised in it.
    """
    asked = threading.Event()

    def remember(_signal: int, _frame: FrameType | None) -> None:
        ends = at_once or asked.is_set()
        asked.set()
        if ends:
            raise KeyboardInterrupt

    with _handled_by(remember):
        yield asked.is_set


@contextmanager
def raising() -> Iterator[None]:
    """While open, every signal ends what is under way as Ctrl-C does.

    Python drops an exception that is raised while it happens to run a destructor or a library's
    callback; then the signal is sent again.
    """
    last = signal.SIGINT

    def interrupt(number: int, _frame: FrameType | None) -> None:
        nonlocal last
        last = signal.Signals(number)
        raise KeyboardInterrupt

    def send_again(dropped: "sys.UnraisableHookArgs") -> None:
        if not issubclass(dropped.exc_type, KeyboardInterrupt):
            before(dropped)
            return
        main = threading.get_ident()  # a signal to another thread would not wake it
        timer = threading.Timer(AGAIN_SECONDS, lambda: signal.pthread_kill(main, last))
        timer.daemon = True
        timer.start()

    before = sys.unraisablehook
    with _handled_by(interrupt):
        sys.unraisablehook = send_again
        try:
            yield
        finally:
            sys.unraisablehook = before


@contextmanager
def _handled_by(handler: Handler) -> Iterator[None]:
    """Only the main thread can handle signals; in another one nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    # None: a library's own handler, which could not be put back
    handled = {k: old for k, old in before.items() if old not in (signal.SIG_IGN, None)}
    for number in handled:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in handled.items():
            signal.signal(number, old)
