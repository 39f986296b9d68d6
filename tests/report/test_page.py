"""The frame of a report around what a made-up domain says, and how it writes HTML and numbers."""

from pathlib import Path

import pytest
from page_reader import read

from proxima.report import html, numbers
from proxima.report.page import Page, RunData, report

EVIL = """<script>alert("x")</script> & 'so on' https://example.org"""

RUN = RunData(
    summary={"scenario": "chess", "run_id": "20260101-000000-abcd", "trials": [{}, {}]},
    info={
        "started": "2026-01-02T03:04:05+00:00",
        "versions": {"proxima": "0.1.0"},
        "mlflow_run_id": "abc123",
        "changes": (),
    },
    scenario={"description": "Play chess"},
    scenario_text="name: chess",
    metrics=lambda trial, stage: [],
    directory=Path("logs/chess/runs/20260101-000000-abcd"),
    root="logs/chess",
    options=" --output elsewhere",
)
PAGE = Page(
    about=["Chess on 64 squares"],
    result=["It wins ", html.tag("strong", "every"), " game."],
    alarms=[html.alarm("Too good?", "It may cheat:", ["it castles twice"])],
    figures=[("Elo", "2,900"), ("Draws", html.join(["3 ", html.tag("small", "[1, 5]")]))],
    sections=[html.section("Openings", html.tag("p", "e4"))],
    commands={"proxima play 20260101-000000-abcd": "play against it"},
    facts={"Board": "8 by 8"},
    style=".board { color: red; }",
)


def test_a_page_holds_all_that_a_domain_says_in_order():
    page = report(RUN, PAGE)
    words = read(page).words
    parts = [
        *("chess", "Play chess", "Chess on 64 squares", "2 trials", "2026-01-02 03:04:05 UTC"),
        *("run 20260101-000000-abcd", "It wins every game.", "Too good?", "it castles twice"),
        *("Elo 2,900", "Draws 3 [1, 5]", "Openings e4", "How it was made", "Board 8 by 8"),
        *("proxima 0.1.0", "MLflow run abc123", "# play against it", "# go on, if it was stopped"),
        *("proxima resume 20260101-000000-abcd --output elsewhere", "proxima report 2026"),
        *("proxima experiment --config logs/chess/scenario.yaml", "name: chess"),
    ]
    ends = [words.index(part, 0) for part in parts[:2]]
    for part in parts[2:]:
        assert part in words[ends[-1] :], part
        ends.append(words.index(part, ends[-1]))
    assert ".board { color: red; }" in page[: page.index("</style>")]


def test_what_a_domain_leaves_out_leaves_no_trace():
    bare = PAGE._replace(alarms=[], figures=[], sections=[], commands={}, facts={}, style="")
    reader = read(report(RUN._replace(info=RUN.info | {"mlflow_run_id": None}), bare))
    names = [name for name, _ in reader.seen]
    assert names.count("section") == 1 and "dl" not in names
    assert "MLflow" not in reader.words and "proxima resume" in reader.words


def test_what_users_wrote_is_text():
    run = RUN._replace(scenario={"description": EVIL}, scenario_text=EVIL, root=EVIL)
    page = report(run, PAGE._replace(about=[EVIL], result=[EVIL], facts={EVIL: EVIL}))
    assert "<script" not in page and read(page).words.count(EVIL) == 8


def test_one_trial_is_not_several():
    one = RUN._replace(summary=RUN.summary | {"trials": [{}]})
    assert "1 trial ·" in read(report(one, PAGE)).words


def test_text_and_attributes_are_escaped():
    inner = html.tag("b", "c")
    made = html.tag("p.lead", "a < b & ", inner, attributes={"title": '"quoted" <x>'})
    expected = '<p class="lead" title="&quot;quoted&quot; &lt;x&gt;">a &lt; b &amp; <b>c</b></p>'
    assert made.html == expected
    assert html.table(["<i>"], [["<u>", "<s>"]]).html.count("&lt;") == 3


@pytest.mark.parametrize(
    ("count", "words"), [(0, ""), (1, "0"), (3, "0, 1, 2"), (5, "0, 1 and 3 more")]
)
def test_of_many_items_a_sentence_has_the_first(count, words):
    assert numbers.first_few(range(count), most=3) == words


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (float("inf"), "–"),
        (0.0, "0"),
        (-0.0211, "−0.021"),
        (2.7149, "2.71"),
        (123.45, "123.5"),
        (-12_345.6, "−12,346"),
        (3.1e9, "3.1e9"),
        (2e-5, "2e−5"),
    ],
)
def test_figures_read_well(value, text):
    assert numbers.figure(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.0, "0 %"),
        (-0.2761, "−27.6 %"),
        (0.0012, "0.12 %"),
        (-0.000012, "−0.0012 %"),
        (17.6, "1,760 %"),
        (249.0, "×250"),
        (1e12, "×1e12"),
    ],
)
def test_shares_read_well(value, text):
    assert numbers.share(value).replace("\u00a0", " ") == text
