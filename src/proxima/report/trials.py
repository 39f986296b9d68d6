"""The table of trials on a page: whole if short, else a few rows and the whole in a fold."""

from collections.abc import Mapping, Sequence

from proxima.report.chosen import Scores, roles
from proxima.report.html import Content, Markup, fold, join, table

MOST_ROWS = 12  # of a table that is shown whole


def trials_table(
    head: Sequence[Content],
    rows: Sequence[Sequence[Content]],
    scores: Scores,
    also: Mapping[int, str] | None = None,
) -> Markup:
    """A table with a row per trial; of many trials first the ones that `roles` names.

    also: further trials to name among many, and what each stands for.
    """
    whole = table(head, rows)
    if len(rows) <= MOST_ROWS:
        return whole
    named = roles(scores)
    for trial, role in (also or {}).items():
        named[trial] = f"{named[trial]}, {role}" if trial in named else role
    short = [[named[trial], *rows[trial]] for trial in named]
    return join([table(["", *head], short), fold(f"All {len(rows)} trials", whole)])
