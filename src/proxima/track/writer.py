"""The tracking process, `python -m proxima.track.writer`: messages in, MLflow's store out.

    stdin ─► receiver thread ─► inbox ─► open or reopen the runs, then until `Finish`
        take what waits ─► one log_batch per run ─► finished runs ─► artifacts ─► registrations
                                                                     └─► answers ─► stdout

Its life hangs on the run's. When the run goes without a `Finish`, even by kill -9, what has
arrived is written and the runs are closed as interrupted. Signals to stop are the run's to act on, not ours.
"""

import logging
import os
import queue
import signal
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from proxima.track import messages
from proxima.track.finished import write_finished
from proxima.track.messages import Answer, Finish, Plan, Work
from proxima.track.registry import register_policy
from proxima.track.runs import Session, close_runs, log_metrics, open_session
from proxima.track.store import explain_failure
from proxima.track.tracker import STALLED_SECONDS

MAX_TAKEN = 1000  # messages between two signs of progress
LAST_LINES_SECONDS = 2  # for the receiver to read what a dead parent left in the pipe

Inbox = queue.SimpleQueue[Work]


class Writer:
    """Owns the connection: writes what is in the inbox, and stops for good at a failure."""

    def __init__(self, plan: Plan, inbox: Inbox, answer: Callable[[Answer], None]) -> None:
        self.last_progress = time.monotonic()
        self.inbox, self._plan, self._answer = inbox, plan, answer
        self._finish: Finish | None = None
        self._left_out: Counter[str] = Counter()

    def run(self) -> None:
        """Open the runs, write until `Finish`, close them; a failure is an answer."""
        session = None
        try:
            session = open_session(self._plan, lambda text: self._answer(messages.Warned(text)))
            self._answer(session.ids)
            while self._finish is None:
                self._note_progress()
                self._write(session, self._take())
            close_runs(session, self._finish)
        except Exception as error:
            reason = explain_failure(self._plan.uri, str(error).strip() or type(error).__name__)
            self._answer(messages.Failed(reason))
            if session is not None:
                self._close_after_failure(session, reason)
        if self._left_out:
            counts = ", ".join(f"{count} {what}" for what, count in self._left_out.items())
            self._answer(messages.Warned(f"MLflow tracking left out: {counts}"))
        self._answer(messages.Finished())

    def _take(self) -> list[Work]:
        """All work that waits, at least one piece; nothing counts after `Finish`."""
        taken: list[Work] = []
        while not taken or (not self.inbox.empty() and len(taken) < MAX_TAKEN):
            work = self.inbox.get()
            if isinstance(work, Finish):
                self._finish = work
                break
            taken.append(work)
        return taken

    def _write(self, session: Session, waiting: list[Work]) -> None:
        client = session.client
        metrics = [work for work in waiting if isinstance(work, messages.Metrics)]
        self._left_out += Counter({"infinite metric values": log_metrics(session, metrics)})
        for work in waiting:
            match work:
                case messages.FinishedRuns(runs):
                    write_finished(session, runs, self._note_progress)
                case messages.Artifacts(path=path) if not Path(path).exists():
                    self._left_out["files that were gone"] += 1
                case messages.Artifacts(trial, path, artifact_path):
                    whole = Path(path).is_dir()
                    send = client.log_artifacts if whole else client.log_artifact
                    send(session.run(trial), path, artifact_path)
                    self._note_progress()
                case messages.Registration(trial, candidate):
                    run_id, name = session.run(trial), self._plan.name
                    self._answer(register_policy(client, run_id, name, candidate))
                    self._note_progress()

    def _note_progress(self) -> None:
        self.last_progress = time.monotonic()
        self._answer(messages.Progress())

    def _close_after_failure(self, session: Session, reason: str) -> None:
        # One attempt, so that a run which lost one artifact is not shown as running for ever.
        while self._finish is None:
            self._take()
        self._note_progress()
        with suppress(Exception):
            session.client.set_tag(session.ids.parent, "proxima.tracking_error", reason)
            close_runs(session, self._finish)


def receive(commands: BinaryIO, inbox: Inbox, at_the_end: Finish) -> None:
    """Put every message into the inbox, and a last one when the pipe ends for whatever reason."""
    try:
        for line in commands:
            if line.endswith(b"\n"):  # or the parent was killed while it wrote
                inbox.put(messages.decode(line))
    finally:
        inbox.put(at_the_end)


def follow_parent(
    parent: int, receiver: threading.Thread, at_the_end: Finish, writer: Writer
) -> None:
    """End with the parent, once what it left is written or cannot be.

    The end of the pipe alone would not do: processes the parent has forked may hold it open.
    """
    while os.getppid() == parent:
        time.sleep(0.5)
    receiver.join(LAST_LINES_SECONDS)
    writer.inbox.put(at_the_end)
    orphaned = time.monotonic()
    while time.monotonic() - max(orphaned, writer.last_progress) < STALLED_SECONDS:
        time.sleep(0.5)
    os._exit(1)


def take_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Standard input and output for us alone; what libraries print goes to standard error."""
    commands = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    return commands, answers


def main() -> None:
    """Serve one run."""
    parent = os.getppid()
    for number in signal.Signals:
        if number.name in ("SIGINT", "SIGTERM", "SIGHUP"):  # no SIGHUP on every system
            signal.signal(number, signal.SIG_IGN)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    commands, answers = take_pipes()
    first = commands.readline()
    if not first.endswith(b"\n"):
        return
    plan: Plan = messages.decode(first)
    os.environ["MLFLOW_TRACKING_URI"] = plan.uri  # where the registry looks for models
    inbox: Inbox = queue.SimpleQueue()

    def answer(message: Answer) -> None:
        with suppress(OSError):  # nobody listens any more; the store still gets everything
            answers.write(messages.encode(message))

    writer = Writer(plan, inbox, answer)
    interrupted = Finish(["interrupted"] * len(plan.children), "interrupted")
    receiver = threading.Thread(target=receive, args=(commands, inbox, interrupted), daemon=True)
    receiver.start()
    follow = (parent, receiver, interrupted, writer)
    threading.Thread(target=follow_parent, args=follow, daemon=True).start()
    writer.run()
    os._exit(0)  # taking MLflow's modules down in order would keep the run waiting


if __name__ == "__main__":
    main()
