"""Pictures are drawn by a second process, while this one judges the next trial and exports policies.

    paint(draw, …) ─► queue ─► the second process, one picture after the other
                        └────► this process too, once it has nothing else to do

A picture that the second process cannot draw is drawn here: so an error is raised as if there were none.
"""

import os
import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Self

DRAWN = b"."  # the answer to a picture
Picture = Callable[[], None]


class Painter:
    """Draws what it is called with: a function of a module, and arguments that can be pickled."""

    def __init__(self, beside: bool) -> None:
        """Not `beside`: without a second process, which for a few pictures would start too late."""
        self._waiting: queue.SimpleQueue[Picture | None] = queue.SimpleQueue()
        self._refused: list[Picture] = []
        self._thread = threading.Thread(target=self._hand_over, daemon=True) if beside else None
        if self._thread is not None:
            self._thread.start()

    def __call__(self, draw: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        self._waiting.put(partial(draw, *args, **kwargs))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._end()

    def finish(self, progress: Callable[[int, int], None]) -> None:
        """Draw what is left and wait for the rest; `progress` hears how many of how many are done."""
        count = self._waiting.qsize()
        while (picture := self._next()) is not None:
            progress(count - self._waiting.qsize() - 1, count)
            picture()
        self._end()
        for picture in self._refused:
            picture()

    def _end(self) -> None:
        """Forget what nobody has begun; the second process ends when it has drawn what it is at."""
        while self._next() is not None:
            pass
        self._waiting.put(None)
        if self._thread is not None:
            self._thread.join()

    def _next(self) -> Picture | None:
        try:
            return self._waiting.get_nowait()
        except queue.Empty:
            return None

    def _hand_over(self) -> None:
        """Give the second process one picture after the other; runs in a thread."""
        try:
            process = _start()
        except OSError:
            return
        with process:
            for picture in iter(self._waiting.get, None):
                if not _drawn(process, picture):
                    self._refused.append(picture)


def _start() -> subprocess.Popen[bytes]:
    # It finds the modules that this process finds, in the same order, and (-P) no others.
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "proxima.run.paint"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": path},
        start_new_session=True,  # Ctrl-C is for the run, which ends this process when it has to
    )


def _drawn(process: Any, picture: Picture) -> bool:
    """Whether the process, of `_start`, has drawn the picture."""
    try:
        process.stdin.write(pickle.dumps(picture))
        process.stdin.flush()
    except (OSError, pickle.PicklingError, AttributeError, TypeError):
        return False
    return bool(process.stdout.read(1) == DRAWN)


def main() -> None:
    """The second process: pictures come in on standard input until it is closed."""
    from proxima.report.style import new_figure, png

    png(new_figure(1.0))  # loads what every picture needs, while nobody waits for one

    answers = sys.stdout.buffer
    sys.stdout = sys.stderr  # whatever a library prints is no answer
    while True:
        try:
            picture = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        picture()  # an error ends the process: the run then draws this picture itself
        answers.write(DRAWN)
        answers.flush()


if __name__ == "__main__":
    main()
