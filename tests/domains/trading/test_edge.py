"""The sentence about an edge follows from the figures, and real prices show none on a small budget."""

from dataclasses import replace
from pathlib import Path

import pytest
from tiny import budget

import proxima
from proxima.cli.data import generate_for
from proxima.domains.trading.domain import DOMAIN
from proxima.domains.trading.edge import Evidence, edge
from proxima.domains.trading.results import evidence
from proxima.scenario import load

SETTINGS = ("data.split.folds=2", "data.split.fold=all", "trials=4", "training.max_steps=640")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Two walks over two folds of the S&P 500."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("edge"))
        scenario = load("sp500_daily", [*budget("sp500_daily"), *SETTINGS])
        generate_for(scenario)
        summary = proxima.run_multiple_experiments(scenario)
        yield summary, (Path(summary["paths"]["run"]) / "report.html").read_text()


def test_a_daily_index_after_costs_shows_no_edge_and_sounds_no_alarm(run):
    summary, page = run
    assert summary.details.alarms == () and "Too good to be true" not in page
    sentence = edge(evidence(summary))
    assert sentence.startswith("No edge is shown: the interval ") and sentence in page
    assert f"over {len(summary.details.walk.seeds)} walks" in page


def test_the_closing_lines_compare_whole_walks_with_whole_walks(run):
    summary, _ = run
    details = summary.details
    line, *_, last = DOMAIN.closing(summary).lines
    walked, chance = (
        details.aggregate["test"]["log_return"],
        details.references.splits["test"].random,
    )
    assert "of all 2 folds end to end, interquartile mean of 2 walk(s)" in line
    assert f": {walked.iqm:.3g}  " in line
    assert f"random policy {chance['log_return'].mean:.3g};" in line
    assert last == edge(evidence(summary))


def figures(run, *, low, high, deflated, sharpe=1.0, overfitting=0.3):
    """What is said of a run with other figures, whose buy and hold makes 0."""
    known = evidence(run[0])
    earned = replace(known.earned, low=low, high=high)
    return edge(Evidence(earned, 0.0, sharpe, deflated, overfitting))


@pytest.mark.parametrize(
    ("low", "high", "deflated", "begins"),
    [
        (
            0.1,
            0.2,
            0.99,
            "An edge, unless something leaks: the interval lies above buy and hold, and",
        ),
        (
            0.1,
            0.2,
            0.95,
            "No edge is shown: the interval lies above buy and hold, but the deflated",
        ),
        (-0.1, 0.2, 0.99, "No edge is shown: the interval includes buy and hold, but the deflated"),
        (-0.1, 0.2, 0.3, "No edge is shown: the interval includes buy and hold, and the deflated"),
        (
            -0.2,
            -0.1,
            0.3,
            "No edge is shown: the interval lies below buy and hold, and the deflated",
        ),
    ],
)
def test_an_edge_takes_the_interval_and_the_deflated_ratio(run, low, high, deflated, begins):
    assert figures(run, low=low, high=high, deflated=deflated).startswith(begins)


def test_a_loss_is_no_edge_however_it_compares(run):
    said = figures(run, low=0.1, high=0.2, deflated=0.99, sharpe=-0.1)
    assert said.startswith("No edge is shown") and "validation is not above 0" in said


def test_one_trial_says_nothing(run):
    assert figures(run, low=None, high=None, deflated=0.99) == ""


@pytest.mark.parametrize(
    ("overfitting", "words"),
    [
        (0.5, ", says that the best walk of one time is no better"),
        (0.3, ", leaves open"),
        (0.02, ", says that the best walk of one time is better than others at another too"),
    ],
)
def test_overfitting_is_said_of_walks(run, overfitting, words):
    assert words in figures(run, low=0.1, high=0.2, deflated=0.99, overfitting=overfitting)
    assert "overfitting" not in figures(run, low=0.1, high=0.2, deflated=0.99, overfitting=None)
