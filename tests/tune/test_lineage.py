"""Members of a population, cut where they became copies, and the line that ended in one."""

import search_results as searches
from search_results import configuration, search

from proxima.tune.lineage import ancestry, ever, last_settings, spans
from proxima.tune.results import Copy


def family():
    """1 became a copy of 0 at 10, 2 one of 1 at 20, and 0 one of 2 at 20 too."""
    rows = [configuration(k, {"x": k}, float(k), steps=30) for k in range(3)]
    copies = (
        Copy(10, 1, 0, {"x": 10}),
        Copy(20, 2, 1, {"x": 20}),
        Copy(20, 0, 2, {"x": 30}),
    )
    return search(rows, copies=copies, space={"x": "0:99"})


def line_of(spans_):
    return [(span.start, span.end, span.member, span.settings["x"]) for span in spans_]


def test_a_member_is_cut_where_it_became_a_copy():
    result = family()
    rows = result.configurations
    assert line_of(spans(result, rows[1])) == [(0, 10, 1, 1), (10, 30, 1, 10)]
    assert [last_settings(result, row)["x"] for row in rows] == [30, 10, 20]
    assert ever(result, "x") == [0, 1, 2, 10, 20, 30]


def test_the_line_of_a_member_goes_back_through_its_sources():
    result = family()
    rows = result.configurations
    assert line_of(ancestry(result, rows[2])) == [(0, 10, 0, 0), (10, 20, 1, 10), (20, 30, 2, 20)]
    # a source that became a copy at the same moment was copied as it had been before
    assert line_of(ancestry(result, rows[0])) == [(0, 20, 2, 2), (20, 30, 0, 30)]


def test_without_copies_a_line_is_the_member_itself():
    result = searches.surface(8)
    row = result.configurations[3]
    (span,) = ancestry(result, row)
    assert (span.start, span.end, span.settings) == (0, row.steps, row.settings)
    assert last_settings(result, row) == row.settings


def test_a_row_with_its_last_settings_does_not_say_its_first():
    result = family()
    last = tuple(row._replace(settings=last_settings(result, row)) for row in result.configurations)
    result = result._replace(configurations=last)
    first, second = spans(result, last[1])
    assert first.settings is None and second.settings == {"x": 10}
    assert last_settings(result, last[1]) == {"x": 10}
