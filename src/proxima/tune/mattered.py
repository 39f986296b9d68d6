"""The part of a search's page about what mattered: shares of variance, each setting, pairs of settings."""

from collections.abc import Mapping, Sequence

from proxima.report.html import Content, Markup, fold, picture, section, table, tag
from proxima.report.numbers import NOTHING, share, with_interval
from proxima.tune import plots
from proxima.tune.axes import Axis, axes_of, spelled_at
from proxima.tune.effects import FEWEST, Importance, Pair, Slice, importance, slices
from proxima.tune.results import SearchResult

MOST_SLICES = 12  # settings that have a panel
ADAPTIVE = ("tpe", "cma-es")  # they draw more configurations where earlier ones were good
SHARES_NOTE = (
    "A bar is the share of the values' variance that lies between a setting's bins, less what bins explain "
    "by chance (ε²). Configurations that broke down count as the worst value seen, those that were stopped "
    "early with the value they had."
)
ADAPTIVE_NOTE = (
    " The method drew more configurations where values were good, so shares are about there."
)


def mattered(result: SearchResult) -> Markup:
    """What settings explain, or why nothing can be said about it."""
    found = None if result.copies else importance(result)
    if found is None or not found.shares:
        return section("What mattered", tag("p", _why_nothing(result)))
    parts = slices(result)
    order = [*found.shares, *(path for path in parts if path not in found.shares)]
    shown = {path: parts[path] for path in order[:MOST_SLICES]}
    pairs = found.pairs[: plots.MOST_PAIRS]
    note = SHARES_NOTE + ADAPTIVE_NOTE * (result.method in ADAPTIVE)
    content: list[Content] = [
        picture(lambda width: plots.importance_figure(found, width), _shares_words(found)),
        tag("p.note", note),
        tag("h3", "Each setting"),
        picture(
            lambda width: plots.slices_figure(result, shown, width), "Values over each setting"
        ),
        fold("The same in numbers", _slices_table(axes_of(result), parts)),
    ]
    if pairs:
        words = "Mean values over pairs of settings: " + ", ".join(
            _pair_words(pair) for pair in pairs
        )
        content += [
            tag("h3", "Pairs of settings"),
            picture(lambda width: plots.pairs_figure(result, pairs, width), words),
            fold("What pairs explain", _pairs_table(found)),
        ]
    return section("What mattered", *content)


def _why_nothing(result: SearchResult) -> str:
    tried = len(result.configurations)
    if result.copies:
        return "Settings changed in the course of training, so no value belongs to one value of a setting."
    if tried < FEWEST:
        few = f"{tried} configuration{'s' * (tried != 1)}"
        return f"Nothing can be said about this from {few}; {FEWEST} are the least."
    return "Nothing can be said about this: no two configurations have different values."


def _shares_words(found: Importance) -> str:
    told = ", ".join(f"{path} {share(value)}" for path, value in found.shares.items())
    return f"Share of the variance that each setting explains alone: {told}"


def _pair_words(pair: Pair) -> str:
    return f"{pair.first} and {pair.second}"


def _slices_table(axes: Sequence[Axis], found: Mapping[str, Sequence[Slice]]) -> Markup:
    rows: list[list[Content]] = []
    for axis in axes:
        for each in found[axis.path]:
            first, last = spelled_at(axis, each.first), spelled_at(axis, each.last)
            values = first if first == last else f"{first} to {last}"
            reached = {"iqm": each.mean, "low": each.low, "high": each.high}
            counts = [f"{each.known:,}", f"{each.broken:,}" if each.broken else NOTHING]
            rows.append([axis.path, values, with_interval(reached), *counts])
    head = ["Setting", "From and to", "Mean value", "Configurations", "Broke down"]
    return table(head, rows, "paths")


def _pairs_table(found: Importance) -> Markup:
    rows = [
        [
            _pair_words(pair),
            share(pair.share),
            *(share(found.shares.get(path)) for path in (pair.first, pair.second)),
        ]
        for pair in found.pairs[: 2 * plots.MOST_PAIRS]
    ]
    return table(["Pair", "Together", "The first alone", "The second alone"], rows, "paths")
