"""The page of a packing run: scores in the problem's own terms, and fixed rules beside."""

from dataclasses import replace

import pytest
from page_reader import read
from run_directories import write_run

from proxima.domains.packing.domain import DOMAIN
from proxima.report import html
from proxima.report.page import report
from proxima.run.report import read_run
from proxima.run.results import Aggregate, described

page = DOMAIN.page


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setattr(html, "png", lambda figure, dots: b"")  # takes most of the time
    return read_run(write_run(tmp_path))


def words_of(run):
    return read(report(run, page(run))).words


def scored(run):
    rule = Aggregate(iqm=0.875, low=None, high=None, n=1, failed=0)
    summary = replace(
        run.summary,
        references={"largest_item_first": described([0.875], [5])},
        baselines=run.summary.baselines | {"largest_item_first": rule},
        scores={
            "utilisation": Aggregate(iqm=0.91, low=0.9, high=0.92, n=3, failed=0),
            "path_ratio": Aggregate(iqm=None, low=None, high=None, n=0, failed=3),
        },
    )
    return run._replace(summary=summary)


def test_scores_are_cards_and_rules_stand_beside_the_result(run):
    words = words_of(scored(run))
    assert "the random policy 1.50, the rule largest item first 0.875." in words
    assert "Volume filled 91 % [90 %, 92 %]" in words.replace("\u00a0", " ")
    assert "Path over shortest" not in words  # no maze was solved


def test_a_run_without_scores_has_a_page(run):
    words = words_of(run)
    assert "the random policy 1.50." in words and "Volume filled" not in words


def test_the_end_of_an_episode_is_shown(run):
    (run.trial(0) / "plots" / "episode.png").write_bytes(b"drawn")
    assert "How one episode of the trained policy ended" in report(run, page(run))
