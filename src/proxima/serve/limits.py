"""What one server takes at most, so that no client can fill its memory or keep it busy for ever."""

from typing import NamedTuple


class Limits(NamedTuple):
    """Bounds on requests, on what waits and on what is remembered."""

    body_bytes: int = 4 * 1024 * 1024
    batch_rows: int = 256  # rows of one request, and of one batch of the program
    waiting_rows: int = 16_384  # of requests that have not been begun
    text_rows: int = 8  # texts that are written at once
    waiting_texts: int = 256  # that have not been begun
    text_seconds: float = 600.0  # to write the texts of a request
    sessions: int = 1024
    session_rows: int = 256  # episodes of one session
    idle_seconds: float = 600.0  # a session that nobody asks is forgotten
    request_seconds: float = 30.0  # to read a body, and then to answer it
