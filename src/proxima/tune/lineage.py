"""Who descends from whom in a population: members that went on as copies of others, and their settings."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from proxima.scenario.search import Value
from proxima.tune.results import Configuration, Copy, SearchResult

Settings = Mapping[str, Value]


class Span(NamedTuple):
    """A stretch of training of one member with the same settings; None: they are not known."""

    start: int
    end: int
    member: int
    settings: Settings | None


def last_settings(result: SearchResult, row: Configuration) -> Settings:
    """The settings that a configuration ended with: those of its last copy, or all along the same."""
    return ([row.settings] + [copy.settings for copy in _copies_of(result, row.number)])[-1]


def spans(result: SearchResult, row: Configuration) -> list[Span]:
    """A member's training from its start to its end, cut where it became a copy."""
    copies = _copies_of(result, row.number)
    edges = [0, *(copy.steps for copy in copies), max(row.steps, 1)]
    settings = [_first_settings(copies, row), *(copy.settings for copy in copies)]
    return [
        Span(start, end, row.number, each)
        for (start, end), each in zip(pairwise(edges), settings, strict=True)
    ]


def ancestry(result: SearchResult, row: Configuration) -> list[Span]:
    """The trainings that led to a configuration's end, the earliest first.

    Back to its last copy they are its own, before that its source's, and so on.
    """
    rows = {each.number: each for each in result.configurations}
    found: list[Span] = []
    member, end = row, max(row.steps, 1)
    while True:
        own = [span for span in spans(result, member) if span.start < end]
        found.append(own[-1]._replace(end=end))
        end = own[-1].start
        sources = [c.source for c in _copies_of(result, member.number) if c.steps == end]
        if end <= 0 or not sources or sources[-1] not in rows:
            return found[::-1]
        member = rows[sources[-1]]


def _copies_of(result: SearchResult, member: int) -> list[Copy]:
    copies = [copy for copy in result.copies if copy.member == member]
    return sorted(copies, key=lambda copy: copy.steps)


def _first_settings(copies: Sequence[Copy], row: Configuration) -> Settings | None:
    """A row that has the settings of its last copy does not say which it began with."""
    is_last = bool(copies) and dict(copies[-1].settings) == dict(row.settings)
    return None if is_last else row.settings


def ever(result: SearchResult, path: str) -> list[Value]:
    """All values that a setting ever had."""
    first = [row.settings.get(path) for row in result.configurations]
    return first + [copy.settings.get(path) for copy in result.copies]
