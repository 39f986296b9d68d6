"""What a run has to show of its newest evaluations: charts over its trials, and texts with coloured tokens.

Read from what its trials write as preview.json and, when they were judged, as samples.json. Whatever is not
as it should be is left out; texts stay texts, and the page never takes them for markup.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, final

from proxima.live.content import Cached, is_number, read_content
from proxima.live.curves import Curves
from proxima.report import tokens
from proxima.run.preview import NAME as PREVIEW

Line = tuple[list[Any], list[Any]]  # x and y

JUDGED = "samples.json"
MOST_CHARTS, MOST_LINES, MOST_SAMPLES = 8, 8, 8


class Source(NamedTuple):
    """A file that has something to show."""

    stage: str
    trial: int
    content: Cached


@final
class Previews:
    """The previews of a run's trials, read when they have changed."""

    def __init__(self) -> None:
        self._sources: dict[Path, Source] = {}
        self._content: dict[Path, Any] = {}

    def follow(self, stage: str, trial: int, folder: Path) -> None:
        """From now on the files of a stage of a trial are read too."""
        judged = [folder / JUDGED, *([folder.parent / JUDGED] if stage else [])]
        for path in (folder / PREVIEW, *judged):
            self._sources.setdefault(path, Source(stage, trial, Cached(read_content)))

    def read(self) -> bool:
        """Whether there is something new."""
        before = dict(self._content)
        self._content = {path: source.content(path) for path, source in self._sources.items()}
        return any(before.get(path) is not now for path, now in self._content.items())

    def charts(self) -> list[dict[str, Any]]:
        """Charts over all trials, those of one stage and title together."""
        groups: dict[tuple[str, str], list[TrialChart]] = {}
        for path, content in self._content.items():
            stage, trial, _ = self._sources[path]
            step, listed = (content.get("step"), content.get("charts")) if _is(content) else (0, ())
            for chart in listed if isinstance(listed, list) else ():
                if _is(chart) and isinstance(chart.get("lines"), dict) and is_number(step):
                    title = str(chart.get("title"))
                    groups.setdefault((stage, title), []).append(TrialChart(trial, step, chart))
        return [
            _over_trials(f"{title}, {stage}" if stage else title, charts)
            for (stage, title), charts in list(groups.items())[:MOST_CHARTS]
        ]

    def samples(self) -> dict[str, Any] | None:
        """The texts of whichever file is the newest; None where there are none."""
        known = {path: _samples_in(content) for path, content in self._content.items()}
        written = [path for path, rows in known.items() if rows]
        if not written:
            return None
        newest = max(written, key=lambda path: self._sources[path].content.changed_at)
        content = self._content[newest]
        step = content.get("step") if _is(content) else None
        return {"trial": self._sources[newest].trial, "step": step, **_painted(known[newest])}


class TrialChart(NamedTuple):
    """A chart as a trial has it."""

    trial: int
    step: float
    chart: Mapping[str, Any]


def _is(content: Any) -> bool:
    return isinstance(content, dict)


def _over_trials(title: str, charts: Sequence[TrialChart]) -> dict[str, Any]:
    """The lines of all trials with their interval, as those of a metric."""
    lines: dict[str, dict[int, Line]] = {}
    for trial, _, chart in charts:
        x = chart.get("x")
        for name, values in list(chart["lines"].items())[:MOST_LINES]:
            if isinstance(x, list) and isinstance(values, list):
                lines.setdefault(name, {})[trial] = x, values
    curves = Curves(len(charts))
    for name, of_trials in lines.items():
        for trial, (x, values) in _different(of_trials).items():
            curves.put(name, trial, x, values)
    steps = [each.step for each in charts]
    return {
        "title": title,
        "steps": [min(steps), max(steps)],
        "x_is_time": any(each.chart.get("x_is_time") is True for each in charts),
        "lines": [
            {"name": name, "bands": curves.bands(name)._asdict()}
            for name in lines
            if name in curves.metrics
        ],
    }


def _different(lines: Mapping[int, Line]) -> Mapping[int, Line]:
    """The lines; of what is the same for every trial, as baselines are, one: it has no interval."""
    first, *others = lines.items()
    return dict([first]) if all(line == first[1] for _, line in others) else lines


def _samples_in(content: Any) -> list[dict[str, Any]]:
    """The first texts of a file, each with its prompt and what is known of its tokens."""
    listed = content.get("samples") if _is(content) else content
    rows = [row for row in listed if _is(row)] if isinstance(listed, list) else []
    return [_sample(row) for row in rows[:MOST_SAMPLES]]


def _sample(row: Mapping[str, Any]) -> dict[str, Any]:
    after = row.get("after")
    text: Mapping[str, Any] = after if isinstance(after, dict) else {"text": after or ""}
    listed = text.get("tokens")
    known = [
        {"action": str(token.get("action", ""))} | _figures(token, tokens.COLUMNS)
        for token in (listed if isinstance(listed, list) else ())
        if _is(token)
    ]
    return {
        "prompt": str(row.get("prompt", "")),
        "text": str(text.get("text", "")),
        "ended": text.get("ended") is True,
        "scores": tokens.scores_of(_figures(text, tokens.SCORES)),
        "tokens": known,
    }


def _figures(row: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, float]:
    return {name: float(row[name]) for name in names if is_number(row.get(name))}


def _painted(samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The texts with colours for their tokens, and what the colours mean."""
    deepest = tokens.deepest_of([token for row in samples for token in row["tokens"]])
    scales = []
    for name, size in deepest.items():
        less, more = tokens.legend(name, size)
        scales.append(
            {"name": name, "title": tokens.SCALES[name].title, "less": less, "more": more}
        )
    texts = []
    for row in samples:
        said = tokens.spoken(row["tokens"], row["ended"])
        texts.append(dict(row) | {"tokens": [tokens.painted(token, deepest) for token in said]})
    return {"scales": scales, "texts": texts}
