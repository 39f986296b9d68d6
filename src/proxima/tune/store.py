"""A phase of a search on the disk: its events, a checkpoint of all lanes, and states that wait.

<phase>/settings.jsonl                   every configuration that was drawn
<phase>/events.jsonl                     orders and values, as they happened
<phase>/checkpoints/                     all lanes, and what ran in them, at one moment
<phase>/parked/<number>_<seed>_<evaluations>/    a state that a later order may go on from

Saving writes what is parked, then the events, then the checkpoint: whichever of it a kill leaves out, the
last checkpoint finds all that it needs. What it needs no longer is removed after that.
"""

import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

from proxima.core.errors import ProximaError
from proxima.core.types import TrainState
from proxima.files import explaining, flush
from proxima.run.files import read_text, write_text
from proxima.train import checkpoint
from proxima.tune.bench import Bench
from proxima.tune.engine import Engine
from proxima.tune.ledger import Ledger, Seat, event_line, from_json, to_json
from proxima.tune.method import Settings

SAVING_SHARE = 0.05  # of the time goes to checkpoints, at most


@final
class Store:
    """Reads and writes a phase's files; also where the engine parks states."""

    def __init__(self, folder: Path, scenario: dict[str, Any], most_in_memory: int):
        self._folder, self._scenario, self._most = folder, scenario, most_in_memory
        self._parked: dict[str, TrainState] = {}  # not on the disk yet
        self._written = {"events": 0, "settings": 0}  # lines of these files
        self._saved_at, self._cost = time.perf_counter(), 0.0

    def put(self, seat: Seat, evaluations: int, state: TrainState) -> None:
        """Park a state; with too many in memory, on the disk at once."""
        self._parked[_name(seat, evaluations)] = state
        if len(self._parked) > self._most:
            self._write_parked()

    def get(self, seat: Seat, evaluations: int, like: TrainState) -> TrainState:
        """A state that was parked."""
        name = _name(seat, evaluations)
        if name in self._parked:
            return self._parked[name]
        return checkpoint.load(self._folder / "parked" / name, like)[0]

    def is_due(self) -> bool:
        """Whether saving again would not take too much of the time."""
        return time.perf_counter() - self._saved_at >= self._cost / SAVING_SHARE

    def save(self, engine: Engine) -> None:
        """Everything that a resumed search needs."""
        began = time.perf_counter()
        self._write_parked()
        ledger, seeds = engine.ledger, len(engine.rules.seeds)
        events = ledger.events[self._written["events"] :]
        self._append("events", [event_line(ledger, event, seeds) for event in events])
        self._append("settings", engine.method.settings[self._written["settings"] :])
        loop = to_json(ledger) | {"settings": len(engine.method.settings)}
        content = {"scenario": self._scenario, "loop": loop}
        checkpoint.save(
            self._folder, ledger.chunks, engine.bench.states, content, keep=1, best=False
        )
        self._drop_parked(engine)
        self._saved_at = time.perf_counter()
        self._cost = self._saved_at - began

    def resumed(self) -> tuple[Ledger, list[Settings]] | None:
        """What was known and drawn at the last checkpoint; None: there is none."""
        if not checkpoint.available_steps(self._folder):
            shutil.rmtree(self._folder, ignore_errors=True)
            return None
        loop = checkpoint.load_manifest(self._folder)["loop"]
        events, settings = (self._read(name, loop[name]) for name in self._written)
        return from_json(loop, events), settings

    def states(self, bench: Bench) -> TrainState:
        """All lanes at the last checkpoint."""
        return checkpoint.load(self._folder, bench.states)[0]

    def _write_parked(self) -> None:
        for name, state in self._parked.items():
            number = int(name.partition("_")[0])
            content = {"scenario": self._scenario, "loop": {"number": number}}
            folder = self._folder / "parked" / name
            checkpoint.save(folder, 0, state, content, keep=1, best=False)
        self._parked.clear()

    def _drop_parked(self, engine: Engine) -> None:
        wanted = engine.wanted()
        for path in (self._folder / "parked").glob("*"):
            if int(path.name.partition("_")[0]) not in wanted:
                shutil.rmtree(path, ignore_errors=True)

    def _append(self, name: str, lines: Sequence[Any]) -> None:
        """New lines at the end of a file."""
        path = self._folder / f"{name}.jsonl"
        with explaining(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a") as file:
                file.writelines(json.dumps(line) + "\n" for line in lines)
            flush(path)
        self._written[name] += len(lines)

    def _read(self, name: str, count: int) -> list[Any]:
        """The first lines of a file, which from now on has no others: what came after happens again."""
        path = self._folder / f"{name}.jsonl"
        lines = read_text(path).splitlines(keepends=True)[:count]
        if len(lines) < count:
            raise ProximaError(
                f"{path}: is damaged: it has {len(lines)} lines, and the checkpoint beside it was made "
                f"after {count}; put the file back, or start a new search"
            )
        write_text(path, "".join(lines))
        self._written[name] = count
        return [json.loads(line) for line in lines]


def _name(seat: Seat, evaluations: int) -> str:
    return f"{seat[0]}_{seat[1]}_{evaluations}"
