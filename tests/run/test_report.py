"""Writing a run's page: where it goes, and what is said where it cannot be written."""

from dataclasses import replace

import pytest
from page_reader import read
from run_directories import write_run
from tiny import run_main

from proxima.core.errors import ProximaError
from proxima.report import html
from proxima.run import report as experiment_report
from proxima.run import results
from proxima.run.read import read_info, read_summary
from proxima.run.results import described


@pytest.fixture
def undrawn(monkeypatch):
    """Pages without their pictures, which take most of the time."""
    monkeypatch.setattr(html, "png", lambda figure, dots: b"")


def test_the_page_is_written_where_it_is_asked_for(tmp_path, undrawn):
    files = write_run(tmp_path / "logs")
    written = experiment_report.report_reference("cartpole", None, str(tmp_path / "logs"))
    assert written == files.root.resolve() / "report.html"
    assert read(written.read_text(encoding="utf-8"))
    elsewhere = tmp_path / "deep" / "page.html"
    assert experiment_report.write_report(files, elsewhere) == elsewhere
    assert elsewhere.read_text() == written.read_text()
    assert not list(elsewhere.parent.glob(".*"))


def test_a_page_that_cannot_be_written_is_told_in_words(tmp_path, undrawn):
    files = write_run(tmp_path / "logs")
    (tmp_path / "file").write_text("")
    with pytest.raises(ProximaError, match=r"file/page\.html: cannot write the report there"):
        experiment_report.write_report(files, tmp_path / "file" / "page.html")


def test_a_run_that_did_not_finish_is_told_in_words(tmp_path):
    files = write_run(tmp_path / "logs")
    files.summary.unlink()
    with pytest.raises(ProximaError, match=r"summary\.json: no such file; did that run finish"):
        experiment_report.write_report(files)


def test_the_command_writes_the_page_and_says_where(workdir, capsys, monkeypatch, undrawn):
    files = write_run("logs")
    said = run_main(["report", "cartpole"], capsys, monkeypatch)
    path = files.root.resolve() / "report.html"
    assert (said.code, said.out, said.err) == (0, f"Report: {path}\n", "")
    assert path.is_file()
    run_main(["report", files.run_id, "--out", "page.html"], capsys, monkeypatch)
    assert (workdir / "page.html").is_file()
    said = run_main(["report", "nothing"], capsys, monkeypatch)
    assert said.code == 1 and "there are: cartpole" in said.err


def change_scenario(files, before, after):
    text = files.scenario.read_text()
    assert before in text
    files.scenario.write_text(text.replace(before, after))


def compared(first, second, tmp_path):
    """The two rows, and what is said of the pair."""
    names = [str(files.root) for files in (first, second)]
    rows, (found,) = experiment_report.compare_references(names, tmp_path / "plot.png")
    return rows, found


def note_data(files, **changes):
    """What a run noted of its prices, some of it changed."""
    test = {"rows": 160, "first": "2001-01-01", "last": "2001-06-09", "prices_sha256": "a" * 64}
    info = read_info(files)
    results.write(
        files.info, replace(info, data={"prices_sha256": "b", "splits": {"test": test | changes}})
    )


@pytest.fixture
def unplotted(monkeypatch):
    """Comparisons without their plot, which takes most of the time."""
    monkeypatch.setattr(experiment_report.comparison, "compare_runs", lambda *arguments: None)


def test_runs_on_the_same_episodes_are_paired_whatever_they_trained_with(tmp_path, unplotted):
    first, second = write_run(tmp_path / "a"), write_run(tmp_path / "b")
    change_scenario(second, "backend: gymnax", "backend: gymnax, num_envs: 16")
    rows, found = compared(first, second, tmp_path)
    assert len(rows) == 2 and found["difference"] == 0
    assert ": 0.0 [0.0, 0.0] per episode" in found["text"]
    assert found["text"].endswith("better on 50 % of paired episodes")


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("CartPole-v1", "Acrobot-v1", 'env.name "CartPole-v1" and "Acrobot-v1"'),
        (
            "backend: gymnax",
            "backend: gymnax, max_steps_per_episode: 9",
            "steps_per_episode null and 9",
        ),
        ("name: cartpole", "seed: 7\nname: cartpole", "seed 0 and 7"),
    ],
)
def test_runs_on_other_episodes_are_not_paired_and_what_differs_is_said(
    before, after, words, tmp_path, unplotted
):
    first, second = write_run(tmp_path / "a"), write_run(tmp_path / "b")
    change_scenario(second, before, after)
    rows, found = compared(first, second, tmp_path)
    assert len(rows) == 2 and "difference" not in found
    assert "are not paired, for they were not evaluated on the same episodes: " in found["text"]
    assert words in found["text"] and found["text"].endswith("; compare their intervals only")


def test_prices_are_paired_by_their_test_bars(tmp_path, unplotted):
    first, second = (write_run(tmp_path / name, trading=True) for name in ("a", "b"))
    note_data(first)
    note_data(second)
    change_scenario(second, "leaky: false", "leaky: false, features: [{kind: rsi}]")
    change_scenario(second, "backend: trading", "backend: trading, random_start: false")
    change_scenario(second, "name: cartpole", "seed: 7\nname: cartpole")
    assert compared(first, second, tmp_path)[1]["difference"] == 0
    note_data(second, rows=150, first="2001-01-11", prices_sha256="c" * 64)
    text = compared(first, second, tmp_path)[1]["text"]
    assert 'test.rows 160 and 150, test.first "2001-01-01" and "2001-01-11"' in text
    note_data(second)
    change_scenario(second, "backend: trading", "backend: trading, fee: 0.5")
    assert "env.fee 0.001 and 0.5;" in compared(first, second, tmp_path)[1]["text"]


def test_runs_of_which_nothing_is_noted_are_held_apart_by_their_settings(tmp_path, unplotted):
    first, second = (write_run(tmp_path / name, trading=True) for name in ("a", "b"))
    assert compared(first, second, tmp_path)[1]["difference"] == 0
    change_scenario(second, "leaky: false", "leaky: false, split: {folds: 2, fold: 1}")
    assert (
        "test.split.folds 1 and 2, test.split.fold 0 and 1"
        in compared(first, second, tmp_path)[1]["text"]
    )


def test_a_pair_of_single_episodes_has_no_interval(tmp_path, unplotted):
    files = [write_run(tmp_path / name, trials=1) for name in ("a", "b")]
    for place in files:
        summary = read_summary(place)
        lone = replace(summary.trials[0], evaluation=described([0.0312], [5]))
        results.write(place.summary, replace(summary, trials=(lone,)))
    assert compared(*files, tmp_path)[1]["text"].endswith(
        ": 0.0 per episode; better on 50 % of paired episodes"
    )
    broken = replace(lone, evaluation=None)
    results.write(place.summary, replace(summary, trials=(broken,)))
    assert compared(*files, tmp_path)[1]["text"].endswith(
        "no trial of one can be paired with a trial of the other"
    )


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (
            "interrupted",
            "this run stopped at step 2,048 of 9,000; `proxima resume {} --output {}` goes on",
        ),
        ("failed", "this run stopped at step 2,048 of 9,000; "),
        ("running", "this run is running, or was killed at step 2,048 of 9,000; `proxima resume "),
    ],
)
def test_a_run_that_has_not_ended_says_how_to_go_on(status, words, tmp_path):
    files = write_run(tmp_path / "logs")
    change_scenario(files, "name: cartpole", "training: {max_steps: 9000}\nname: cartpole")
    results.write(files.info, replace(read_info(files), status=status))
    files.summary.unlink()
    for step in (1_024, 2_048):
        (files.trial(0) / "checkpoints" / f"step_{step:012}").mkdir(parents=True)
    words = words.format(files.run_id, tmp_path / "logs")
    with pytest.raises(ProximaError) as told:
        experiment_report.write_report(files)
    assert words in str(told.value)
    with pytest.raises(ProximaError) as told:
        experiment_report.compare_references([str(files.root)] * 2, tmp_path / "plot.png")
    assert words in str(told.value)


def test_a_reference_that_is_too_long_is_told_in_words(tmp_path, capsys, monkeypatch):
    for command in (["report"], ["evaluate"], ["compare"], ["peek"], ["scenarios"]):
        said = run_main([*command, "a" * 5_000], capsys, monkeypatch)
        assert said.code == 1 and "is no path: a name of " in said.err and len(said.err) < 400
