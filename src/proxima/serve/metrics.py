"""Counters and histograms of a server, in Prometheus' text format."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import final

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


@final
class Histogram:
    """Observations counted by the first bound that is not below them."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds, self._counts = bounds, [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count one."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self, name: str) -> Iterator[str]:
        """As Prometheus reads it: counts up to every bound."""
        total = 0
        for bound, count in zip((*self._bounds, "+Inf"), self._counts, strict=True):
            total += count
            yield f'{name}_bucket{{le="{bound}"}} {total}'
        yield f"{name}_sum {self._sum!r}"
        yield f"{name}_count {total}"


@final
class Metrics:
    """What a server has done since it was started."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()  # by route and status
        self.seconds, self.rows = Histogram(SECONDS), Histogram(ROWS)
        self.sessions = 0
        self.prompt_tokens = self.completion_tokens = 0

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self.requests[route, status] += 1
        self.seconds.observe(seconds)

    def text(self) -> str:
        """The page that Prometheus reads."""
        errors: Counter[str] = Counter()
        for (route, status), count in self.requests.items():
            errors[route] += count if status >= 400 else 0
        lines = [
            *_head("requests_total", "counter", "Requests answered, by route and status."),
            *(
                f'proxima_requests_total{{route="{route}",status="{status}"}} {count}'
                for (route, status), count in sorted(self.requests.items())
            ),
            *_head("errors_total", "counter", "Requests answered by a status of 400 or more."),
            *(f'proxima_errors_total{{route="{r}"}} {n}' for r, n in sorted(errors.items())),
            *_head("request_seconds", "histogram", "From a request's headers to its answer."),
            *self.seconds.lines("proxima_request_seconds"),
            *_head("batch_rows", "histogram", "Rows in one run of the program, unpadded."),
            *self.rows.lines("proxima_batch_rows"),
            *_head("sessions", "gauge", "Sessions that are remembered."),
            f"proxima_sessions {self.sessions}",
            *_head("tokens_total", "counter", "Tokens of texts, read and written."),
            f'proxima_tokens_total{{kind="prompt"}} {self.prompt_tokens}',
            f'proxima_tokens_total{{kind="completion"}} {self.completion_tokens}',
        ]
        return "\n".join(lines) + "\n"


def _head(name: str, kind: str, meaning: str) -> tuple[str, str]:
    return f"# HELP proxima_{name} {meaning}", f"# TYPE proxima_{name} {kind}"
