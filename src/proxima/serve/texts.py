"""Texts for those who wait: requests take turns at a model that writes several at once.

    while somebody waits:  begin one more text ─► one token of every text ─► pieces to whom they belong

One request is begun a turn, so that reading many long prompts does not stop the texts that are being written.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, final

from proxima.domains.domain import Piece, TextJob, TextModel
from proxima.serve.http import Refusal
from proxima.serve.limits import Limits
from proxima.serve.metrics import Metrics

Inbox = asyncio.Queue[Piece | Exception]


class Turn(NamedTuple):
    """What one turn gave."""

    has_begun: bool  # the first that waited
    pieces: list[Piece]


@final
class Writing:
    """A model's texts, written on a thread of its own."""

    def __init__(self, model: TextModel, limits: Limits, metrics: Metrics) -> None:
        self._model, self._limits, self._metrics = model, limits, metrics
        self._waiting: list[TextJob] = []
        self._left: list[TextJob] = []  # nobody reads them any more
        self._inboxes: dict[int, Inbox] = {}  # by job's identity: equal requests are two
        self._running: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, "proxima-texts")

    def ask(self, jobs: Sequence[TextJob]) -> AsyncGenerator[Piece, None]:
        """The pieces of these jobs, as they come; refused where too many wait already."""
        count = sum(job.request.texts for job in self._waiting)
        if count + sum(job.request.texts for job in jobs) > self._limits.waiting_texts:
            raise Refusal(503, f"{count:,} texts are waiting already; try again soon")
        inbox: Inbox = asyncio.Queue()
        for job in jobs:
            self._inboxes[id(job)] = inbox
            self._waiting.append(job)
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
        return self._read(jobs, inbox)

    async def _read(self, jobs: Sequence[TextJob], inbox: Inbox) -> AsyncGenerator[Piece, None]:
        open_texts = sum(job.request.texts for job in jobs)
        try:
            while open_texts:
                piece = await inbox.get()
                if isinstance(piece, Exception):
                    raise piece
                open_texts -= piece.finish is not None
                yield piece
        finally:
            for job in jobs:
                del self._inboxes[id(job)]
                if open_texts:
                    self._left.append(job)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._inboxes:
            left, self._left = self._left, []
            self._waiting = [job for job in self._waiting if id(job) in self._inboxes]
            first = self._waiting[0] if self._waiting else None
            try:
                turn = await loop.run_in_executor(self._thread, self._turn, left, first)
            except Exception as error:
                self._waiting = []
                for inbox in self._inboxes.values():
                    inbox.put_nowait(error)
                return
            if turn.has_begun:
                self._waiting.pop(0)
            for piece in turn.pieces:
                if id(piece.job) in self._inboxes:
                    self._inboxes[id(piece.job)].put_nowait(piece)
            await asyncio.sleep(0)  # whoever has all pieces leaves

    def _turn(self, left: Sequence[TextJob], first: TextJob | None) -> Turn:
        """The first that waits begun where there is room, and one more token of every text."""
        for job in left:
            self._model.drop(job)
        begun = None if first is None else self._model.begin(first)
        pieces = self._model.step()
        if pieces:
            self._metrics.rows.observe(len(pieces))
        return Turn(begun is not None, [*(begun or []), *pieces])
