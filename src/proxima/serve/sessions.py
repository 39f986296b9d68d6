"""Episodes that are remembered between requests: a bounded number of sessions, forgotten when idle."""

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, final

from proxima.serve.http import Refusal
from proxima.serve.limits import Limits


@final
class Session:
    """What is remembered of one client's episodes; one request at a time goes on with them."""

    def __init__(self) -> None:
        self.state: Any = None  # None: they begin
        self.turn = asyncio.Lock()
        self.used = 0.0


@final
class Sessions:
    """Sessions by their ids, the one that was used longest ago first."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._clock = limits, clock
        self._by_id: OrderedDict[str, Session] = OrderedDict()

    def __len__(self) -> int:
        self._forget_idle()
        return len(self._by_id)

    def begin(self) -> str:
        """The id of a new session; ids cannot be guessed."""
        if len(self) >= self._limits.sessions:
            raise Refusal(
                503,
                f"there are {self._limits.sessions:,} sessions already; end one with DELETE "
                f"/sessions/ID, or wait: idle ones end after {self._limits.idle_seconds:g} seconds",
            )
        name = secrets.token_urlsafe(16)
        self._by_id[name] = Session()
        self._by_id[name].used = self._clock()
        return name

    def find(self, name: str) -> Session:
        """The session of this id, used now."""
        self._forget_idle()
        if name not in self._by_id:
            raise Refusal(
                404, "there is no such session, or it was idle too long; POST /sessions begins one"
            )
        session = self._by_id[name]
        session.used = self._clock()
        self._by_id.move_to_end(name)
        return session

    def end(self, name: str) -> None:
        """Forget a session."""
        self.find(name)
        del self._by_id[name]

    def _forget_idle(self) -> None:
        oldest = self._clock() - self._limits.idle_seconds
        while self._by_id:
            name, session = next(iter(self._by_id.items()))
            if session.used >= oldest:
                return
            del self._by_id[name]
