"""The runs and searches in a directory: what the list says of each, and what is drawn of one.

The list reads run.json and the ends of a few trials' metrics; all metrics are read of a run only while
somebody looks at it.
"""

import json
import math
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, final

from proxima.core.errors import ProximaError
from proxima.live.curves import Curves
from proxima.live.tail import Tail
from proxima.run.lock import holder_of, is_at_work
from proxima.yaml import read_yaml

SAMPLED = 8  # trials of a run that the list reads
SAMPLED_BYTES = 1 << 20  # of each, at its end
SAMPLES = 8  # texts that are shown
MOST_JSON = 32 << 20  # bytes of a file that is read whole
MAIN = ("eval/return_mean", "episode/return")  # what a run is drawn by, the first it has
STATES = {"running": "running", "finishing": "running", "finished": "finished", "failed": "failed"}


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty where there is none, or it is half or huge."""
    try:
        if path.stat().st_size > MOST_JSON:
            return {}
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def read_settings(path: Path) -> dict[str, Any]:
    """A run's scenario as a mapping; empty where it cannot be read."""
    try:
        content = read_yaml(path.read_text(), str(path))
    except (OSError, ValueError, ProximaError):
        return {}
    return content if isinstance(content, dict) else {}


def section(settings: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A section of a scenario; empty where it has none."""
    part = settings.get(name)
    return part if isinstance(part, Mapping) else {}


def main_metric(metrics: list[str]) -> str | None:
    """The metric that a run is drawn by at first."""
    known = [name for name in MAIN if name in metrics]
    evaluated = [name for name in metrics if name.startswith("eval/")]
    return next(iter([*known, *evaluated, *metrics]), None)


def metric_files(root: Path, trial: Path) -> Iterator[tuple[str, Path]]:
    """The metrics of a trial, by stage; "" where it has no stages."""
    for path in sorted([*trial.glob("metrics.jsonl"), *trial.glob("*/metrics.jsonl")]):
        yield "" if path.parent == trial else path.parent.name, path


def trial_folders(root: Path) -> list[Path]:
    """The trials of a run in their order."""
    paths = [path for path in root.glob("trial_*") if path.name[6:].isdecimal()]
    return sorted(paths, key=lambda path: int(path.name[6:]))


class Entry(NamedTuple):
    """A run or a search in the list."""

    id: str  # its path below the output directory
    name: str
    kind: str  # run, search
    started: str
    state: str  # running, stopped, finished, failed
    steps: int
    fraction: float | None
    seconds_left: float | None
    metric: str | None
    best: float | None
    trials: int
    process: int | None


@final
class Followed:
    """A run or a search as the list follows it."""

    def __init__(self, output: Path, root: Path):
        self.output, self.root = output, root
        self.id = str(root.relative_to(output))
        self.is_search = root.parent.name == "tune"
        self.info: dict[str, Any] = {}
        self.settings: dict[str, Any] = {}
        self._changed: tuple[int, ...] = ()
        self._tails: dict[Path, Tail] = {}
        self._curves = Curves(SAMPLED)
        self._pace: tuple[float, float] | None = None  # a moment, and the fraction then
        self.best: float | None = None

    def entry(self) -> Entry:
        """What the list says now; only what changed is read."""
        self._read_info()
        state, process = self._state()
        steps, fraction = self._progress()
        metric = None if self.is_search else main_metric(self._curves.metrics)
        started = str(self.info.get("started", ""))
        return Entry(
            id=self.id,
            name=self.root.parent.parent.name,
            kind="search" if self.is_search else "run",
            started=started,
            state=state,
            steps=steps,
            fraction=1.0 if state == "finished" else fraction,
            seconds_left=self._seconds_left(fraction) if state == "running" else None,
            metric=metric,
            best=self.best,
            trials=int(self.info.get("trials") or 0),
            process=process,
        )

    def _read_info(self) -> None:
        path = self.root / ("info.json" if self.is_search else "run.json")
        scenario = self.root / "scenario.yaml"
        try:
            changed = path.stat().st_mtime_ns, scenario.stat().st_mtime_ns
        except OSError:
            return
        if changed != self._changed:
            self._changed = changed
            self.info, self.settings = read_object(path), read_settings(scenario)

    def _state(self) -> tuple[str, int | None]:
        """The state, and the process at work where it is one of this machine."""
        status = STATES.get(str(self.info.get("status")), "stopped")
        holder = holder_of(self.root)
        if holder is not None and is_at_work(holder):
            return "running", holder.process
        # a lock that another machine holds cannot be checked here; what was killed has not noted that
        elsewhere = holder is not None and status == "running" and not self._is_ours(holder)
        return ("running" if elsewhere else "stopped") if status == "running" else status, None

    @staticmethod
    def _is_ours(holder: Any) -> bool:
        from proxima.run.lock import this_process

        return bool(holder.host == this_process().host)

    def _progress(self) -> tuple[int, float | None]:
        """The steps of the sampled trial that is last, and the share of the budget."""
        if self.is_search:
            return 0, None
        ends = []
        for trial in trial_folders(self.root)[:SAMPLED]:
            number, end = int(trial.name[6:]), 0
            for _, path in metric_files(self.root, trial):
                tail = self._tails.setdefault(path, Tail(path, SAMPLED_BYTES))
                for row in tail.read().rows:
                    if isinstance(row, dict):
                        self._curves.add(number, row)
                        self._note_best(row)
            for metric in self._curves.metrics:
                points = self._curves.steps(metric, number)
                end = max(end, int(points[-1]) if points else 0)
            ends.append(end)
        steps = min(ends, default=0)
        budget = section(self.settings, "training").get("max_steps")
        if not isinstance(budget, int | float) or budget <= 0:
            return steps, None
        return steps, min(1.0, steps / budget)

    def _note_best(self, row: Mapping[str, Any]) -> None:
        value = row.get(MAIN[0])
        if isinstance(value, int | float) and math.isfinite(value):
            self.best = value if self.best is None else max(self.best, value)

    def _seconds_left(self, fraction: float | None) -> float | None:
        """By the pace since we began to look."""
        if fraction is None:
            return None
        now = time.monotonic()
        if self._pace is None or fraction < self._pace[1]:
            self._pace = now, fraction
        began, before = self._pace
        gained = fraction - before
        return (now - began) * (1 - fraction) / gained if gained > 0 else None


@final
class Opened:
    """A run that somebody looks at: all of its trials' metrics, as they arrive."""

    def __init__(self, followed: Followed):
        self._of = followed
        self._tails: dict[Path, tuple[str, int, Tail]] = {}
        self._stages: dict[str, Curves] = {}
        self.version = 0

    def read(self) -> None:
        """What was appended since the last time."""
        folders = trial_folders(self._of.root)
        for trial in folders:
            for stage, path in metric_files(self._of.root, trial):
                if path not in self._tails:
                    self._tails[path] = stage, int(trial.name[6:]), Tail(path)
        for stage, number, tail in self._tails.values():
            is_new, rows = tail.read()
            curves = self._stages.setdefault(stage, Curves(len(folders)))
            if is_new:
                curves.forget(number)
            for row in rows:
                if isinstance(row, dict):
                    curves.add(number, row)
            self.version += bool(is_new or rows)

    def metrics(self) -> list[str]:
        """Every metric, named stage:metric where the run has stages."""
        return [
            f"{stage}:{metric}" if stage else metric
            for stage, curves in self._stages.items()
            for metric in curves.metrics
        ]

    def details(self, wanted: str | None) -> dict[str, Any]:
        """What the page shows of the run, with the bands of the wanted metric."""
        names = self.metrics()
        known = {name.rpartition(":")[2]: name for name in reversed(names)}
        chosen = wanted if wanted in names else known.get(main_metric(list(known)) or "")
        stage, _, metric = (chosen or "").rpartition(":")
        curves = self._stages.get(stage)
        of = self._of
        return {
            "id": of.id,
            "metric": chosen,
            "metrics": names,
            "bands": None if curves is None or not metric else curves.bands(metric)._asdict(),
            "time": section(of.info, "time"),
            "memory": self._largest("memory/peak_mb"),
            "alarms": self._alarms(),
            "samples": self._samples(),
            "cluster": of.info.get("standing") or "",
            "facts": self._facts(),
        }

    def _facts(self) -> dict[str, str]:
        settings, info = self._of.settings, self._of.info
        facts = {
            "Algorithm": section(settings, "algorithm").get("name"),
            "Environment": section(settings, "env").get("name"),
            "Trials": info.get("trials"),
            "Seed": settings.get("seed"),
        }
        return {name: str(value) for name, value in facts.items() if value is not None}

    def _largest(self, metric: str) -> float | None:
        values = [v for curves in self._stages.values() for v in curves.last(metric).values()]
        finite = [value for value in values if math.isfinite(value)]
        return max(finite, default=None)

    def _alarms(self) -> list[dict[str, Any]]:
        """Alarms as they were noted while it trained, and those of the summary."""
        root = self._of.root
        noted = [
            alarm
            for path in [*root.glob("trial_*/alarms.jsonl"), *root.glob("trial_*/*/alarms.jsonl")]
            for alarm in Tail(path).read().rows
            if isinstance(alarm, dict)
        ]
        alarms = {(a.get("trial"), a.get("step"), a.get("text")): a for a in noted}
        return list(alarms.values())

    def _samples(self) -> list[dict[str, str]]:
        """The newest texts that a trial has written down."""
        paths = list(self._of.root.glob("trial_*/**/samples.json"))
        newest = max(paths, key=lambda path: path.stat().st_mtime, default=None)
        if newest is None:
            return []
        try:
            rows = json.loads(newest.read_bytes())
        except (OSError, ValueError):
            return []
        rows = rows.get("samples", []) if isinstance(rows, dict) else rows
        texts = [row for row in rows if isinstance(row, dict)][:SAMPLES]
        return [
            {"prompt": str(row.get("prompt", "")), "text": _text(row.get("after"))} for row in texts
        ]


def _text(sample: Any) -> str:
    return str(sample.get("text", "") if isinstance(sample, Mapping) else sample or "")


@final
class OpenedSearch:
    """A search that somebody looks at: its configurations as their values arrive."""

    def __init__(self, followed: Followed):
        self._of = followed
        folder = followed.root / "search"
        self._settings, self._events = (
            Tail(folder / "settings.jsonl"),
            Tail(folder / "events.jsonl"),
        )
        self._drawn: list[Any] = []
        self._values: dict[int, float | None] = {}
        self.version = 0

    def read(self) -> None:
        """What was appended since the last time."""
        drawn, events = self._settings.read(), self._events.read()
        if drawn.is_new:
            self._drawn = []
        if events.is_new:
            self._values = {}
        self._drawn += drawn.rows
        for line in events.rows:
            if isinstance(line, list) and len(line) >= 4 and line[0] == "told":
                self._values[line[1]] = line[3]
        self.version += bool(drawn.rows or events.rows)
        known = [value for value in self._values.values() if value is not None]
        best = min if self._direction() == "minimise" else max
        self._of.best = best(known, default=None)

    def _direction(self) -> str:
        return str(section(self._of.settings, "search").get("direction", "maximise"))

    def details(self, wanted: str | None) -> dict[str, Any]:
        """What the page shows of the search: value against a chosen setting."""
        names = sorted({key for row in self._drawn if isinstance(row, dict) for key in row})
        chosen = wanted if wanted in names else next(iter(names), None)
        points = [
            [number, self._drawn[number].get(chosen), value]
            for number, value in sorted(self._values.items())
            if number < len(self._drawn) and isinstance(self._drawn[number], dict)
        ]
        return {
            "id": self._of.id,
            "metric": chosen,
            "metrics": names,
            "configurations": points,
            "drawn": len(self._drawn),
            "direction": self._direction(),
            "best": self._of.best,
        }


def opened(followed: Followed) -> Opened | OpenedSearch:
    """A run or a search to look at."""
    return OpenedSearch(followed) if followed.is_search else Opened(followed)
