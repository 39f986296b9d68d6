"""Writing a run's page: where it goes, and what is said where it cannot be written."""

import pytest
from page_reader import read
from run_directories import write_run
from tiny import run_main

from proxima.core.errors import ProximaError
from proxima.report import html
from proxima.run import report as experiment_report


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
