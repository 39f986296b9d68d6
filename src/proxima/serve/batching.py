"""Micro-batches: requests that wait are run together, as one batch of the compiled program.

    while there are requests:  take as many as fit ─► pad to a power of two ─► program ─► an answer each

Nobody waits for others to come: a batch is whatever has arrived while the one before it was computed. Sizes
are powers of two, each compiled before the first request, so nothing is compiled afterwards.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, final

import numpy as np

from proxima.serve.http import Refusal
from proxima.serve.limits import Limits
from proxima.serve.metrics import Metrics

Named = Any  # an array, or arrays by name, with a row for each observation
Step = Callable[[Named, dict[str, np.ndarray]], tuple[Named, dict[str, np.ndarray]]]


class Rows(NamedTuple):
    """Observations and what is remembered of their episodes, a row each."""

    observations: Named
    memory: dict[str, np.ndarray]
    size: int


class Acted(NamedTuple):
    """Actions and what is remembered after them."""

    actions: Named
    memory: dict[str, np.ndarray]


class _Waiting(NamedTuple):
    rows: Rows
    answer: "asyncio.Future[Acted]"


def mapped(function: Callable[..., Any], *trees: Any) -> Any:
    """The function of arrays, or name by name where they are dicts."""
    if isinstance(trees[0], dict):
        return {name: function(*(tree[name] for tree in trees)) for name in trees[0]}
    return function(*trees)


def padded_size(count: int) -> int:
    """The power of two that so many rows are padded to."""
    return 1 << (count - 1).bit_length()


def run_padded(step: Step, rows: Rows) -> Acted:
    """The program on rows that are padded with copies of the last one."""
    missing = padded_size(rows.size) - rows.size

    def padded(array: np.ndarray) -> np.ndarray:
        return np.concatenate([array, np.repeat(array[-1:], missing, 0)]) if missing else array

    actions, memory = step(mapped(padded, rows.observations), mapped(padded, rows.memory))
    return Acted(*(mapped(lambda array: array[: rows.size], tree) for tree in (actions, memory)))


def run_together(step: Step, every: list[Rows]) -> list[Acted]:
    """What each of several gets from one run of the program."""
    if len(every) == 1:
        return [run_padded(step, every[0])]
    joined = Rows(
        mapped(lambda *parts: np.concatenate(parts), *(rows.observations for rows in every)),
        mapped(lambda *parts: np.concatenate(parts), *(rows.memory for rows in every)),
        sum(rows.size for rows in every),
    )
    acted = run_padded(step, joined)
    ends = np.cumsum([rows.size for rows in every]).tolist()
    return [
        Acted(*(mapped(lambda array, cut=cut: array[cut], tree) for tree in acted))
        for cut in map(slice, [0, *ends], ends)
    ]


@final
class Batcher:
    """Runs what waits, one batch after the other, on a thread of its own."""

    def __init__(self, step: Step, limits: Limits, metrics: Metrics) -> None:
        self._step, self._limits, self._metrics = step, limits, metrics
        self._waiting: deque[_Waiting] = deque()
        self._count = 0  # rows that wait
        self._is_running = False
        self.thread = ThreadPoolExecutor(1, "proxima-serve")

    async def act(self, rows: Rows) -> Acted:
        """The actions at these rows, computed together with those of others."""
        if self._count + rows.size > self._limits.waiting_rows:
            raise Refusal(503, f"{self._count:,} observations are waiting already; try again soon")
        loop = asyncio.get_running_loop()
        waiting = _Waiting(rows, loop.create_future())
        self._waiting.append(waiting)
        self._count += rows.size
        if not self._is_running:
            self._is_running = True
            # after what else has arrived by now has been read
            loop.call_soon(self._start, loop)
        return await waiting.answer

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        batch = self._next_batch()
        if not batch:
            self._is_running = False
            return
        self._metrics.rows.observe(sum(waiting.rows.size for waiting in batch))
        running = loop.run_in_executor(
            self.thread, run_together, self._step, [waiting.rows for waiting in batch]
        )
        running.add_done_callback(lambda done: self._finish(loop, batch, done))

    def _next_batch(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        room = self._limits.batch_rows
        while self._waiting and self._waiting[0].rows.size <= room:
            waiting = self._waiting.popleft()
            self._count -= waiting.rows.size
            if not waiting.answer.done():  # whoever asked has gone
                room -= waiting.rows.size
                batch.append(waiting)
        return batch

    def _finish(
        self, loop: asyncio.AbstractEventLoop, batch: list[_Waiting], done: "asyncio.Future[Any]"
    ) -> None:
        error = None if done.cancelled() else done.exception()
        for number, waiting in enumerate(batch):
            if waiting.answer.done():
                continue
            if done.cancelled():
                waiting.answer.cancel()
            elif error is not None:
                waiting.answer.set_exception(error)
            else:
                waiting.answer.set_result(done.result()[number])
        self._start(loop)
