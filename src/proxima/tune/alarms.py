"""What a reader of a search must know before believing the rest: boxes of its page."""

from proxima.report.html import Markup, alarm
from proxima.report.statistics import FEWEST, coverage
from proxima.scenario.search import Range, Value, read_range
from proxima.tune.axes import Axis, positions, short_names, spelled
from proxima.tune.lineage import last_settings
from proxima.tune.results import Configuration, SearchResult
from proxima.tune.verdict import Verdict, chosen_row

MOST_BROKEN = 6  # configurations that are named
EDGE = 0.05  # share of a range, at either end, where the best value may well lie beyond


def alarms(result: SearchResult, found: Verdict | None) -> list[Markup]:
    """A box for each thing that is wrong or unsure; nothing where there is none."""
    return [*_worse(found), *_unsure(result, found), *_edges(result), *_broken(result)]


def _worse(found: Verdict | None) -> list[Markup]:
    """The search may have found nothing better than there was."""
    if found is None or found.improvement is None or found.own is None:
        return []
    gain, low = found.improvement.gain, found.improvement.low
    if gain is None or (gain > 0 and (low is None or low > 0)):
        return []
    lead = "On seeds that the search had not seen:"
    if gain <= 0:
        item = "the scenario's own settings did at least as well: keep them, or search longer"
    else:
        item = "the difference is not told apart from chance: more seeds may say which is better"
    return [alarm("Not clearly better than the scenario's own settings", lead, [item])]


def _unsure(result: SearchResult, found: Verdict | None) -> list[Markup]:
    lead = "The result rests on little:"
    if result.chosen is None:
        return []
    if found is None:
        return [alarm("Not confirmed", lead, [_unconfirmed(result)])]
    count = found.best["n"]
    if count >= FEWEST:
        return []
    seeds = f"{count} new seed{'s' * (count > 1)}"
    level = f", whose interval is one of {coverage(count)} %" if count > 1 else ""
    item = f"it was run on {seeds}{level}; {FEWEST} are the least for 95 %"
    return [alarm("Too few seeds", lead, [item])]


def _unconfirmed(result: SearchResult) -> str:
    if any(each.number == result.chosen for each in result.test):
        return "on new seeds every training with the chosen settings broke down"
    tried = len(result.configurations)
    luckiest = f" and the luckiest of {tried:,}" if tried > 1 else ""
    return (
        "the best configuration was not run again on new seeds (search.confirm), "
        f"so its value is that of {result.seeds} seed{'s' * (result.seeds > 1)}{luckiest}"
    )


def _edges(result: SearchResult) -> list[Markup]:
    """Settings whose best value is where the range ends."""
    row = chosen_row(result)
    settings = {} if row is None else last_settings(result, row)
    items = []
    for path, written in result.space.items():
        read = read_range(written)
        end = edge(read, settings.get(path)) if isinstance(read, Range) else ""
        if end:
            value = spelled(settings.get(path))
            items.append(f"{path}: {value} is at the {end} end of {written}; widen it there")
    lead = "Better values may lie beyond, unless the setting hardly matters and is there by chance:"
    return [alarm("The best settings are at the edge", lead, items)] if items else []


def edge(read: Range, value: Value) -> str:
    """The end of a range of numbers that a value is next to: lower, upper or none."""
    if read.kind == "choice":
        return ""
    low, at, high = positions(Axis("", read.kind), [read.low, value, read.high])
    share = (at - low) / (high - low)  # NaN compares false
    return "lower" if share <= EDGE else "upper" if share >= 1 - EDGE else ""


def _broken(result: SearchResult) -> list[Markup]:
    """The configurations whose loss stopped being a number, with their settings."""
    rows = [row for row in result.configurations if row.state == "broken"]
    if not rows:
        return []
    most = MOST_BROKEN if len(rows) <= MOST_BROKEN else MOST_BROKEN - 1
    items = [f"{row.number}: {settings_words(row)}" for row in rows[:most]]
    if len(rows) > most:
        items.append(f"{len(rows) - most:,} more")
    lead = f"The loss of {len(rows):,} of {len(result.configurations):,} stopped being a number:"
    return [alarm("Configurations that broke down", lead, items)]


def settings_words(row: Configuration) -> str:
    """A configuration's settings in a line."""
    names = short_names(row.settings)
    return ", ".join(f"{names[path]} {spelled(value)}" for path, value in row.settings.items())
