"""The run's end of tracking: a process of its own does the work, so that training never waits.

    log_… ─► queue ─► sender thread ─► pipe ─► proxima.track.writer ─► pipe ─► listener thread

Importing MLflow and opening its database are seconds of Python, which in a thread would hold the
interpreter just while the programs are traced. The process is started with `subprocess`, because
`multiprocessing` would run an unguarded script a second time.
"""

import atexit
import getpass
import io
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

from proxima.core.addresses import is_masked, masked
from proxima.core.errors import ProximaError
from proxima.track import messages
from proxima.track.messages import ChildRun, Finish, Plan
from proxima.track.store import ENVIRONMENT, explain_failure, resolve_uri
from proxima.track.tracker import (
    STALLED_SECONDS,
    Attributes,
    Candidate,
    FinishedRun,
    RegisteredModel,
    RunIds,
    Spans,
    Status,
    TelemetryConfig,
    Tracker,
    TrackingConfig,
    TrackingOutcome,
    no_tracker,
)

EXIT_SECONDS = 2  # how long the last message may take to go out, or a kill to be obeyed


def connect(
    config: TrackingConfig,
    name: str,
    run_id: str,
    params: Mapping[str, Any],
    trials: Sequence[int],
    *,
    description: str = "",
    tags: Mapping[str, str] | None = None,
    stages: Sequence[str] = (),
    resume_from: RunIds | None = None,
    warn: Callable[[str], None],
) -> Tracker:
    """A tracker for run `run_id` of experiment `name` whose trials have these seeds; never waits.

    Each trial is a child run, or with `stages` one per stage; these are numbered trial by trial.
    A search has no trials: its children come when they are over, by `log_finished`.

    With `resume_from` the named runs are opened again and go on. Metrics keep the values first
    logged: what a resumed trial reports a second time, at a step the store already holds for that
    metric, is left out. Parameters are not written again, since MLflow lets none change.
    """
    if not config.enabled:
        return no_tracker()

    try:
        uri = resolve_uri(config.uri)
    except ProximaError as error:
        words = f"{error}. The run goes on without tracking; the local files hold everything."
        warn(words)
        parent, known = resume_from or (None, ())
        outcome = TrackingOutcome(parent, known, (), words, None)
        return no_tracker()._replace(finish=lambda *statuses: outcome, ids=lambda: resume_from)
    texts = {key: str(value) for key, value in flatten(params).items()}
    children = [
        ChildRun(f"trial_{k}_{stage}" if stage else f"trial_{k}", k, int(seed), stage)
        for k, seed in enumerate(trials)
        for stage in (stages or ("",))
    ]
    every = {**about(description), **(tags or {})}
    plan = Plan(uri, name, run_id, texts, children, every, *(resume_from or ()))
    return start_writer(plan, config.register, warn)


def about(description: str) -> dict[str, str]:
    """The tags in which MLflow shows a run's description, source and user."""
    tags = {"mlflow.source.type": "LOCAL", "mlflow.source.name": Path(sys.argv[0]).name}
    if description:
        tags["mlflow.note.content"] = description
    with suppress(OSError, KeyError):  # a container's user may have no name
        tags["mlflow.user"] = getpass.getuser()
    return tags


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The leaves of nested mappings under dotted names, `{"a": {"b": 1}}` as `{"a.b": 1}`."""
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            leaves |= flatten(value, f"{prefix}{key}.")
        else:
            leaves[f"{prefix}{key}"] = value
    return leaves


def start_writer(plan: Plan, register: bool, warn: Callable[[str], None]) -> Tracker:
    """A tracker whose process has just been started."""
    process = WriterProcess(plan, warn)

    def log_metrics(trial: int | None, step: int, metrics: Mapping[str, float]) -> None:
        # Made plain floats now: an array may be donated to the next chunk before it is sent.
        values = {name: float(value) for name, value in metrics.items()}
        process.put(messages.Metrics(trial, step, time.time_ns() // 1_000_000, values))

    def log_finished(runs: Sequence[FinishedRun]) -> None:
        process.put(messages.FinishedRuns(runs))

    def log_artifacts(trial: int | None, path: Path, artifact_path: str | None) -> None:
        process.put(messages.Artifacts(trial, str(path.absolute()), artifact_path))

    def register_policy(trial: int, candidate: Candidate) -> None:
        if register:
            process.put(messages.Registration(trial, candidate))

    return Tracker(
        log_metrics=log_metrics,
        log_parent_metrics=partial(log_metrics, None),
        log_finished=log_finished,
        log_artifacts=log_artifacts,
        register=register_policy,
        finish=process.finish,
        ids=lambda: process.ids,
    )


def connect_spans(
    config: TelemetryConfig, run_id: str, attributes: Attributes, warn: Callable[[str], None]
) -> Spans:
    """The spans of a run, below one that is the run itself and carries these attributes."""
    given = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    endpoint = config.otlp_endpoint or given
    if endpoint and is_masked(endpoint):  # a resumed run's
        endpoint = given
        if not endpoint:
            warn(
                f"telemetry.otlp_endpoint was stored without its password ({config.otlp_endpoint}); "
                "set OTEL_EXPORTER_OTLP_ENDPOINT. The run goes on without spans."
            )
    if not endpoint:
        return Spans(lambda name, start, end, attributes: None, lambda status: None)
    from proxima.track.otlp import start_exporter  # protocol buffers take a while

    return start_exporter(endpoint, run_id, attributes, warn)


class WriterProcess:
    """Owns the process and its pipes; whatever happens to it becomes the outcome's error."""

    def __init__(self, plan: Plan, warn: Callable[[str], None]) -> None:
        self.ids: RunIds | None = None
        self._uri, self._warn = plan.uri, warn
        self._error: str | None = None
        self._registered: list[RegisteredModel] = []
        self._finished = False
        self._last_progress = time.monotonic()
        self._queue: queue.SimpleQueue[Plan | messages.Work | None] = queue.SimpleQueue()
        self._queue.put(plan)
        self._sender = threading.Thread(target=self._send, name="tracking-sender", daemon=True)
        self._listener = threading.Thread(target=self._listen, name="tracking-reader", daemon=True)
        try:
            self._process, self._stderr = start()
        except Exception as error:  # a run goes on without tracking whatever the reason
            self._fail(f"its process could not be started ({error})")
            return
        self._sender.start()
        self._listener.start()
        atexit.register(self._hand_over)

    def put(self, work: messages.Work) -> None:
        """Queue work, or forget it where nothing can be written any more."""
        if self._error is None:
            self._queue.put(work)

    def finish(self, trial_statuses: Sequence[Status], status: Status) -> TrackingOutcome:
        """Wait until what is left is written, and say what became of it all."""
        self._queue.put(Finish(tuple(trial_statuses), status))
        self._last_progress = time.monotonic()
        while self._listener.is_alive() and not self._stalled():
            self._listener.join(timeout=0.2)
        if self._listener.is_alive():
            self._fail(f"nothing was written for {STALLED_SECONDS} seconds")
            self._process.kill()
            self._listener.join(EXIT_SECONDS)
        atexit.unregister(self._hand_over)
        parent, children = self.ids or (None, ())
        return TrackingOutcome(
            parent, children, tuple(self._registered), self._error, masked(self._uri)
        )

    def _stalled(self) -> bool:
        return time.monotonic() - self._last_progress > STALLED_SECONDS

    def _send(self) -> None:
        commands = cast(io.FileIO, self._process.stdin)
        with suppress(OSError), commands:  # the process has ended, which the listener tells
            while (message := self._queue.get()) is not None:
                write_all(commands, messages.encode(message))
                if isinstance(message, Finish):
                    break

    def _listen(self) -> None:
        with io.BufferedReader(cast(io.FileIO, self._process.stdout)) as lines:
            for line in lines:
                self._last_progress = time.monotonic()
                if line.endswith(b"\n"):  # or the process was killed while it wrote
                    self._heed(messages.decode(line))
        code = self._process.wait()
        how = f"with code {code}" if code >= 0 else f"by signal {-code}, {signal.strsignal(-code)}"
        with self._stderr as stderr:
            if not self._finished:
                self._fail(f"the tracking process ended {how}{last_words(stderr)}")
        self._queue.put(None)

    def _heed(self, answer: messages.Answer) -> None:
        match answer:
            case RunIds(parent, children):
                self.ids = RunIds(parent, tuple(children))
            case RegisteredModel():
                self._registered.append(answer)
            case messages.Warned(text):
                self._say(text)
            case messages.Failed(error):
                self._stop(error)
            case messages.Finished():
                self._finished = True
            case messages.Progress():
                pass

    def _hand_over(self) -> None:
        # The script ends without `finish`: let the process have all, then the pipe ends with us.
        self._queue.put(None)
        self._sender.join(EXIT_SECONDS)

    def _fail(self, reason: str) -> None:
        self._stop(explain_failure(self._uri, reason))

    def _stop(self, error: str) -> None:
        if self._error is None:
            self._error = error
            self._say(error)

    def _say(self, message: str) -> None:
        with suppress(Exception):  # a console that cannot be written to is no reason to stop
            self._warn(message)


def start() -> tuple[subprocess.Popen[bytes], IO[bytes]]:
    """The tracking process, in a session of its own where no Ctrl-C reaches it, and its stderr."""
    # It finds the modules this process finds, in the same order, and (-P) no others.
    where = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    with ExitStack() as on_failure:
        # A file, because it never fills up and outlives this process.
        stderr = on_failure.enter_context(tempfile.TemporaryFile())
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "proxima.track.writer"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            bufsize=0,
            env=ENVIRONMENT | os.environ | {"PYTHONPATH": where},
            start_new_session=True,
        )
        on_failure.pop_all()
    return process, stderr


def write_all(pipe: io.FileIO, content: bytes) -> None:
    """Write to an unbuffered pipe, which may take less than it is given."""
    rest = memoryview(content)
    while rest:
        rest = rest[pipe.write(rest) :]


def last_words(file: IO[bytes]) -> str:
    """The last line that a process printed, if any, in brackets."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - 4000))
    printed = file.read().decode(errors="replace").strip()
    return f" ({printed.splitlines()[-1].strip()})" if printed else ""
