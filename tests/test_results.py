"""The table of results is made of its files, has every shipped scenario, and says what the runs say."""

import json
import runpy
from pathlib import Path

import pytest
from run_directories import info_of, write_run

from proxima.run import results as run_results
from proxima.run.files import find_run
from proxima.run.read import read_info, read_summary
from proxima.scenario import shipped

ROOT = Path(__file__).parent.parent
MADE = runpy.run_path(str(ROOT / "benchmarks" / "results.py"))
REMEDY = "make it again:  python benchmarks/results.py --table"


def test_the_table_is_what_the_command_makes_of_its_files():
    text = (ROOT / "docs" / "results.md").read_text()
    table = MADE["table"](MADE["read_records"](), MADE["read_published"]())
    assert MADE["page"](text, table) == text, REMEDY


def test_every_shipped_scenario_has_a_row():
    text = (ROOT / "docs" / "results.md").read_text()
    assert [name for name in shipped() if f"\n| `{name}`" not in text] == [], REMEDY


def test_every_published_figure_has_a_source():
    published = MADE["read_published"]()
    assert len([each for each in published.values() if "figure" in each]) > 20
    for name, entry in published.items():
        assert set(entry) <= {"figure", "source", "line", "long"}, name
        assert ("figure" in entry) == ("source" in entry), name


def test_a_record_has_the_figures_of_the_run(tmp_path):
    write_run(tmp_path)
    files = find_run("cartpole", str(tmp_path))
    record, summary = MADE["record_of"](files), read_summary(files)
    json.dumps(record, allow_nan=False)
    assert record["ours"]["iqm"] == summary.aggregate.iqm and record["run"] == files.run_id
    assert record["date"] == "2026-01-02" and record["beside"] == {"random": 1.5}
    assert [each["seed"] for each in record["trials"]] == [each.seed for each in summary.trials]
    assert record["trials"][0]["mean"] == summary.trials[0].evaluation.return_mean
    (row,) = [
        line
        for line in MADE["table"]({"cartpole": record}, {}).splitlines()
        if line.startswith("| `cartpole` †")  # a small one, not as it is shipped
    ]
    number = MADE["number"]
    ends = f"[{number(record['ours']['low'])}, {number(record['ours']['high'])}]"
    assert f"{number(record['ours']['iqm'])} {ends}" in row and "| 1.500 |" in row


def test_scenarios_without_a_run_say_so_and_others_their_notes():
    record = {
        **{"source": MADE["EARLIER"], "date": "2026-01-01", "metric": "return"},
        **MADE["described"](MADE["load"]("acrobot")),
        **{"ours": {"iqm": "-1.50", "low": None, "n": 2, "failed": 1}, "note": "So it was."},
        "beside": {"random": -2000.0, "a_rule": 0.5},
    }
    published = {"figure": "-3 ± 1", "source": "Zoo", "line": "-100"}
    text = MADE["table"]({"acrobot": record}, {"acrobot": published})
    acrobot, binpack = text.splitlines()[2:4]
    assert "| −1.50 of 2, 1 failed (1) | −2,000 | a rule 0.500 | −100 | −3 ± 1 (Zoo) |" in acrobot
    assert acrobot.endswith("| 2026-01-01, trials not kept |") and "†" not in acrobot
    assert "(1) So it was." in text and "| not run | – | – | – | – | – |" in binpack


@pytest.mark.parametrize("status", ["finished", "interrupted", "running"])
def test_what_is_finished_is_left_alone_and_what_was_begun_goes_on(status, tmp_path):
    write_run(tmp_path)
    files = find_run("cartpole", str(tmp_path))
    run_results.write(files.info, info_of(files, read_summary(files).trials, status=status))
    assert read_info(files).status == status
    command = MADE["command_for"]("cartpole", tmp_path, 5)
    assert command == (None if status == "finished" else ["resume", str(files.root)])


def test_what_is_absent_begins_with_its_data(tmp_path):
    start = MADE["command_for"]("cartpole", tmp_path, 5)
    assert start[:4] == ["experiment", "cartpole", "--trials", "5"]
    assert "--generate-data" not in start and f"output_directory={tmp_path}" in start
    assert "--generate-data" in MADE["command_for"]("sine_wave", tmp_path, 5)
