"""The runs and searches in a directory: what the list says of each, and what is drawn of one.

The list reads run.json and progress.json; metrics are read of a run only while somebody looks at it, and
those of a large one bit by bit, so that what is known already can be shown.
"""

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast, final

from proxima.core.errors import ProximaError
from proxima.live.content import Cached, is_number, read_object
from proxima.live.curves import Curves
from proxima.live.previews import Previews
from proxima.live.tail import Tail, last_row
from proxima.run.lock import holder_of, is_at_work, this_process
from proxima.run.standing import NAME as PROGRESS
from proxima.run.standing import Standing, read_standing
from proxima.yaml import read_yaml

SAMPLED = 8  # trials whose ends are read where a run does not say itself how far it is
# Rows of all trials that are parsed when a run is opened; evaluations come besides.
FIRST_ROWS = 40_000
FEWEST_ROWS, MOST_ROWS = 100, 2_000  # of each trial
TOP = 8  # configurations of a search that are listed
FOLDERS_SECONDS = 5.0  # after which new files are looked for
MAIN = ("eval/return_mean", "episode/return")  # what a run is drawn by, the first it has
BROKEN = (
    "loss/",
    "train/grad_norm",
)  # as `train.stage.is_watched`: a trial stops where one is not finite
AT_WORK = ("running", "finishing")  # finishing: it is judged, drawn and written
STATES = (*AT_WORK, "finished", "failed")  # of run.json; whatever else it says has stopped


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


def facts_of(
    settings: Mapping[str, Any], name: str = "", keys: Sequence[str] = ()
) -> dict[str, str]:
    """What a scenario is about, with some keys of a section of it."""
    facts = {
        "Algorithm": section(settings, "algorithm").get("name"),
        "Environment": section(settings, "env").get("name"),
    } | {key.capitalize(): section(settings, name).get(key) for key in keys}
    return {title: str(value) for title, value in facts.items() if value is not None}


def main_metric(metrics: list[str]) -> str | None:
    """The metric that a run is drawn by at first."""
    known = [name for name in MAIN if name in metrics]
    evaluated = [name for name in metrics if name.startswith("eval/")]
    return next(iter([*known, *evaluated, *metrics]), None)


def stage_folders(trial: Path) -> list[tuple[str, Path]]:
    """The folders of a trial that have metrics, by stage; "" where it has no stages."""
    if (trial / "metrics.jsonl").is_file():
        return [("", trial)]
    return [(path.parent.name, path.parent) for path in sorted(trial.glob("*/metrics.jsonl"))]


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
    stage: str  # which it is at; empty where there is only one
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
        self._info, self._settings = Cached(read_object), Cached(read_settings)
        self._standing = Cached(lambda path: read_standing(path.parent))
        self._summary = Cached(read_object)

    @property
    def info(self) -> dict[str, Any]:
        """What the run notes of itself."""
        return cast(
            dict[str, Any], self._info(self.root / ("info.json" if self.is_search else "run.json"))
        )

    @property
    def settings(self) -> dict[str, Any]:
        """Its scenario."""
        return cast(dict[str, Any], self._settings(self.root / "scenario.yaml"))

    @property
    def standing(self) -> Standing | None:
        """Where it says it stands; None of a run that an earlier version made."""
        return cast(Standing | None, self._standing(self.root / PROGRESS))

    @property
    def summary(self) -> dict[str, Any]:
        """What a finished run came to; empty before."""
        return cast(dict[str, Any], self._summary(self.root / "summary.json"))

    def entry(self) -> Entry:
        """What the list says now; only what changed is read."""
        state, process = self._state()
        standing = self.standing or self._estimated()
        fraction: float | None = (standing.number - 1 + standing.fraction) / standing.stages
        if not standing.steps and not standing.fraction:
            fraction = None
        return Entry(
            id=self.id,
            name=self.root.parent.parent.name,
            kind="search" if self.is_search else "run",
            started=str(self.info.get("started", "")),
            state=state,
            stage=stage_words(standing) if state != "finished" else "",
            steps=standing.steps,
            fraction=1.0 if state == "finished" else fraction,
            seconds_left=seconds_left(standing) if state == "running" else None,
            metric=standing.figure or None,
            best=standing.best,
            trials=int(self.info.get("trials") or 0),
            process=process,
        )

    def _state(self) -> tuple[str, int | None]:
        """The state, and the process at work where it is one of this machine."""
        status = str(self.info.get("status"))
        holder = holder_of(self.root)
        if holder is not None and is_at_work(holder):
            return status if status in AT_WORK else "running", holder.process
        # a lock that another machine holds cannot be checked here; what was killed has not noted that
        elsewhere = holder is not None and not self._is_ours(holder)
        known = status in STATES and (elsewhere or status not in AT_WORK)
        return status if known else "stopped", None

    @staticmethod
    def _is_ours(holder: Any) -> bool:
        return bool(holder.host == this_process().host)

    def _estimated(self) -> Standing:
        """Of a run that says nothing itself: the ends of a few trials' metrics, and its summary's best."""
        unknown = Standing("", 1, 1, "steps", 0, 0.0, 0.0, "", None)
        if self.is_search:
            return unknown
        folders = [f for t in trial_folders(self.root)[:SAMPLED] for _, f in stage_folders(t)[-1:]]
        rows = [last_row(folder / "metrics.jsonl") for folder in folders]
        ends = [row["step"] for row in rows if isinstance(row, dict) and is_number(row.get("step"))]
        budget = section(self.settings, "training").get("max_steps")
        steps = int(min(ends, default=0))
        fraction = min(1.0, steps / budget) if is_number(budget) and budget > 0 else 0.0
        best = best_in_summary(self.summary)
        figure = MAIN[0] if best is not None else ""
        return unknown._replace(steps=steps, fraction=fraction, figure=figure, best=best)


def best_in_summary(summary: Mapping[str, Any]) -> float | None:
    """The best evaluation of all trials as a summary has them."""
    trials = summary.get("trials")
    rows = trials if isinstance(trials, list) else []
    values = [row.get("best_return") for row in rows if isinstance(row, dict)]
    return max((value for value in values if is_number(value)), default=None)


def stage_words(standing: Standing) -> str:
    """Which stage it is at; empty where there is only one without a name."""
    count = f", {standing.number} of {standing.stages}" if standing.stages > 1 else ""
    return standing.stage.replace("_", " ") + count


def seconds_left(standing: Standing) -> float | None:
    """Of the stage, at the pace so far, as the console says it."""
    if not standing.fraction:
        return None
    return standing.seconds * (1 - standing.fraction) / standing.fraction


class Source(NamedTuple):
    """The metrics and alarms of a stage of a trial."""

    stage: str
    trial: int
    folder: Path
    metrics: Tail
    alarms: Tail


@final
class Opened:
    """A run that somebody looks at: all of its trials' metrics, as they arrive."""

    def __init__(self, followed: Followed):
        self._of = followed
        self._sources: dict[Path, Source] = {}
        self._stages: dict[str, Curves] = {}
        self._alarms: dict[Path, list[Any]] = {}
        self._previews = Previews()
        self._unread: list[Source] = []
        self._looked_at = -math.inf
        self.version = 0

    @property
    def unread(self) -> int:
        """How many files of metrics nobody has read yet."""
        return len(self._unread)

    def read(self, seconds: float) -> None:
        """What was appended since the last time; new files, at least one, as long as the seconds last."""
        ends_at = time.monotonic() + seconds
        self._look_for_files()
        fresh = set(map(id, self._unread))
        for source in self._sources.values():
            if id(source) not in fresh:
                self._read_source(source)
        while self._unread:
            self._read_source(self._unread.pop(0))
            if time.monotonic() >= ends_at:
                break
        self.version += self._previews.read()

    def _look_for_files(self) -> None:
        now = time.monotonic()
        if now - self._looked_at < FOLDERS_SECONDS:
            return
        self._looked_at = now
        trials = trial_folders(self._of.root)
        rows = min(MOST_ROWS, max(FEWEST_ROWS, FIRST_ROWS // max(len(trials), 1)))
        for trial in trials:
            for stage, folder in stage_folders(trial):
                if folder not in self._sources:
                    tails = Tail(folder / "metrics.jsonl", rows), Tail(folder / "alarms.jsonl")
                    source = Source(stage, int(trial.name[6:]), folder, *tails)
                    self._sources[folder] = source
                    self._previews.follow(stage, source.trial, folder)
                    self._unread.append(source)
                    self._stages.setdefault(stage, Curves(len(trials)))

    def _read_source(self, source: Source) -> None:
        curves, noted = self._stages[source.stage], source.alarms.read()
        is_new, rows = source.metrics.read()
        if is_new:
            curves.forget(source.trial)
        curves.add(source.trial, rows)
        if noted.is_new:
            self._alarms[source.folder] = []
        self._alarms.setdefault(source.folder, []).extend(noted.rows)
        self.version += bool(is_new or rows or noted.is_new or noted.rows)

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
        chosen = wanted if wanted in names else self._first_metric(names)
        stage, _, metric = (chosen or "").rpartition(":")
        curves, of = self._stages.get(stage), self._of
        return {
            "id": of.id,
            "metric": chosen,
            "metrics": names,
            "bands": None if curves is None or not metric else curves.bands(metric)._asdict(),
            "read": [len(self._sources) - self.unread, len(self._sources)],
            "time": section(of.info, "time"),
            "memory": self._largest("memory/peak_mb"),
            "alarms": self._all_alarms(),
            "charts": self._previews.charts(),
            "samples": self._previews.samples(),
            "cluster": of.standing.note if of.standing else str(of.info.get("standing") or ""),
            "facts": self._facts(),
        }

    def _first_metric(self, names: list[str]) -> str | None:
        """What the run compares its own states by, in the stage it is at; of older runs the usual."""
        standing = self._of.standing
        if standing is not None:
            figure = standing.figure
            judged_by = f"{standing.stage}:{figure}" if standing.stage else figure
            if judged_by in names:
                return judged_by
        known = {name.rpartition(":")[2]: name for name in reversed(names)}
        return known.get(main_metric(list(known)) or "")

    def _facts(self) -> dict[str, str]:
        settings, info = self._of.settings, self._of.info
        more = {"Trials": info.get("trials"), "Seed": settings.get("seed")}
        return facts_of(settings) | {
            name: str(value) for name, value in more.items() if value is not None
        }

    def _largest(self, metric: str) -> float | None:
        values = [v for curves in self._stages.values() for v in curves.last(metric).values()]
        finite = [value for value in values if math.isfinite(value)]
        return max(finite, default=None)

    def _all_alarms(self) -> list[dict[str, Any]]:
        """Those noted while it trained, trials that broke down, and those of a finished run's summary."""
        noted = [alarm for alarms in self._alarms.values() for alarm in alarms]
        noted += self._broken()
        summary = self._of.summary
        noted += summary.get("alarms") or []
        noted += [{"text": text} for text in section(summary, "details").get("alarms") or []]
        known = [alarm for alarm in noted if isinstance(alarm, dict) and alarm.get("text")]
        # of those that are in the summary too, one
        alarms = {(a.get("trial"), a.get("step"), a["text"]): a for a in reversed(known)}
        return list(reversed(alarms.values()))

    def _broken(self) -> list[dict[str, Any]]:
        text = "the loss or its gradient is no longer a number; the trial stops with its last good state"
        return [
            {"step": int(step), "trial": trial, "text": text}
            for curves in self._stages.values()
            for trial, step in curves.broken(
                name for name in curves.metrics if name.startswith(BROKEN)
            ).items()
        ]


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

    unread = 0  # it is read whole

    def read(self, seconds: float) -> None:
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
        self.version += bool(drawn.is_new or events.is_new or drawn.rows or events.rows)

    def _sign(self) -> float:
        """What is told of a configuration is a score, of which more is better."""
        search = section(self._of.settings, "search")
        less = search.get("direction") == "minimise" or search.get("objective") == "steps_to_target"
        return -1.0 if less else 1.0

    def details(self, wanted: str | None) -> dict[str, Any]:
        """What the page shows of the search: value against a chosen setting."""
        names = sorted({key for row in self._drawn if isinstance(row, dict) for key in row})
        chosen = wanted if wanted in names else next(iter(names), None)
        sign = self._sign()
        points = [
            [number, self._drawn[number].get(chosen), None if value is None else sign * value]
            for number, value in sorted(self._values.items())
            if number < len(self._drawn) and isinstance(self._drawn[number], dict)
        ]
        known = [value for value in self._values.values() if value is not None]
        return {
            "id": self._of.id,
            "metric": chosen,
            "metrics": names,
            "configurations": points,
            "drawn": len(self._drawn),
            "direction": "less is better" if sign < 0 else "more is better",
            "best": sign * max(known) if known else None,
            "top": self._top(sign),
            "facts": facts_of(self._of.settings, "search", ("method", "objective", "seeds")),
        }

    def _top(self, sign: float) -> list[tuple[int, float, dict[str, Any]]]:
        """The best configurations with their values and settings, the best first."""
        known = [
            (value, number)
            for number, value in self._values.items()
            if value is not None and number < len(self._drawn)
        ]
        best = sorted(known, key=lambda each: (-each[0], each[1]))[:TOP]
        settings = {number: self._drawn[number] for _, number in best}
        return [
            (number, sign * value, settings[number])
            for value, number in best
            if isinstance(settings[number], dict)
        ]


def opened(followed: Followed) -> Opened | OpenedSearch:
    """A run or a search to look at."""
    return OpenedSearch(followed) if followed.is_search else Opened(followed)
