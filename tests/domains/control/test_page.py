"""The page of a run in a control environment: what it says, and that it needs nothing from outside."""

import base64
from dataclasses import replace
from io import BytesIO

import pytest
from page_reader import read
from PIL import Image
from run_directories import EVIL, write_run

from proxima.domains.control.domain import DOMAIN
from proxima.report import html, numbers
from proxima.report.page import report
from proxima.run.report import read_run

page = DOMAIN.page


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return read_run(write_run(tmp_path_factory.mktemp("plain")))


@pytest.fixture(scope="module")
def whole(run):
    return report(run, page(run))


@pytest.fixture
def undrawn(monkeypatch):
    """Pages without their pictures, which take most of the time."""
    monkeypatch.setattr(html, "png", lambda figure, dots: b"")


def words_of(run):
    return read(report(run, page(run))).words


def test_a_page_needs_nothing_from_outside_and_runs_nothing(whole):
    reader = read(whole)
    names = {name for name, _ in reader.seen}
    assert not names & {"script", "link", "iframe", "object", "base", "form", "a"}
    for _, attributes in reader.seen:
        for key, value in attributes.items():
            assert not key.startswith("on")
            if key in ("src", "srcset", "href"):
                assert value.startswith("data:image/")
    style = whole[whole.index("<style>") : whole.index("</style>")]
    assert "url(" not in style and "@import" not in style
    assert "https://example.org" in reader.words  # where it can stand: as text


def test_what_users_wrote_is_text(whole):
    assert "<script" not in whole
    assert read(whole).words.count(EVIL) == 1  # the description; settings spell it in YAML
    assert "alert(" in read(whole).words


def test_pictures_come_in_two_widths_with_words(whole):
    reader = read(whole)
    images = [given for name, given in reader.seen if name == "img"]
    narrow = [given for name, given in reader.seen if name == "source"]
    assert len(images) == len(narrow) == 2
    for image, phone in zip(images, narrow, strict=True):
        assert image["alt"]
        widths = [
            Image.open(BytesIO(base64.b64decode(address.split(",")[1]))).width
            for address in (image["src"], phone["srcset"])
        ]
        assert widths == [1760, 924]


def test_a_page_says_what_came_out_and_how_sure_that_is(whole, run):
    words = read(whole).words
    aggregate = run.summary["aggregate"]
    ends = f"[{numbers.figure(aggregate['low'])}, {numbers.figure(aggregate['high'])}]"
    assert f"{numbers.figure(aggregate['iqm'])} {ends}" in words
    assert "over 3 trials" in words and "the random policy 1.50." in words
    assert "The target is 11.5: 1 of 3 trials reached it" in words
    assert "PPO on CartPole-v1 (gymnax)" in words and "12,288 environment steps" in words
    assert f"proxima evaluate {run.summary['run_id']} --output" in words
    assert "Judged below is the best checkpoint" in words
    assert "Film of one episode" not in whole  # there is none


def test_one_trial_has_no_interval(tmp_path, undrawn):
    assert "interval over" not in words_of(read_run(write_run(tmp_path, 1)))


def test_the_film_of_the_first_trial_with_one_is_shown(tmp_path, undrawn):
    files = write_run(tmp_path)
    (files.trial(1) / "film.gif").write_bytes(b"GIF89a")
    run = read_run(files)
    made = report(run, page(run))
    assert "One episode of trial 1" in read(made).words and "data:image/gif;base64," in made


def broken(run):
    """A trial that broke down."""
    return replace(run.summary.trials[1], stopped="nan", nan_at_step=2_048)


def test_trials_that_broke_down_are_named(run, undrawn):
    trials = (run.summary.trials[0], broken(run))
    words = words_of(run._replace(summary=replace(run.summary, trials=trials)))
    assert "trial 1, after step 2,048" in words
    assert "Trials that broke down" not in words_of(run)


def test_a_trial_that_was_not_judged_has_a_row_and_no_box(run, undrawn):
    first, second, third = run.summary.trials
    unjudged = replace(first, stopped="nan", nan_at_step=64, evaluation=None, random=None)
    words = words_of(run._replace(summary=replace(run.summary, trials=(unjudged, second, third))))
    assert "trial 0, after step 64" in words
    row = words[words.index("Converged at") :]
    assert "0 0 failed – – –" in row and "12.0" not in row[: row.index("1 1 11.5")]
    nobody = replace(second, evaluation=None, random=None), unjudged
    summary = replace(run.summary, trials=nobody, aggregate=None, baselines={})
    assert "No trial ended with a usable policy." in words_of(run._replace(summary=summary))


def test_of_many_broken_trials_some_are_named(run, undrawn):
    many = tuple(replace(broken(run), trial=k) for k in range(100))
    seen = read(report(run, page(run._replace(summary=replace(run.summary, trials=many)))))
    assert "93 more of the 100 trials" in seen.words
    assert sum(name == "li" for name, _ in seen.seen) == 8


def test_a_page_of_256_trials_is_small_and_short(tmp_path):
    run = read_run(write_run(tmp_path, 256))
    made = report(run, page(run))
    assert len(made) < 500_000
    shown = made[made.index("<h2>Trials</h2>") : made.index("<details>")]
    assert shown.count("<tr>") == 4  # head, first and worst, median, best
    assert read(made).words.count("All 256 trials") == 1
    facts = made[made.index("<h2>How it was made</h2>") :]
    assert made.count("<tr>") == 4 + 257 + facts.count("<tr>")
