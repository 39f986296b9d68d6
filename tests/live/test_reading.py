"""Files that grow are read by what was appended, and many points become few without losing extremes."""

import json
import os

import numpy as np
import pytest

from proxima.live.curves import Curves, min_max
from proxima.live.previews import Previews
from proxima.live.runs import Followed, Opened, OpenedSearch
from proxima.live.tail import Appended, Tail, last_row, sampled_lines
from proxima.run.files import keep_rows_until
from proxima.run.lock import locked
from proxima.run.preview import keep_preview_until, write_preview
from proxima.run.standing import NAME, Standing
from proxima.train.stage import Chart, Preview


def line(step, **values):
    return json.dumps({"step": step} | values) + "\n"


def test_only_what_was_appended_is_read_and_half_a_row_waits(tmp_path):
    path = tmp_path / "metrics.jsonl"
    tail = Tail(path)
    assert tail.read() == Appended(False, [])
    path.write_text(line(1) + '{"step"')
    assert tail.read() == Appended(True, [{"step": 1}])
    assert tail.read() == Appended(False, [])
    with path.open("a") as file:
        file.write(": 2}\n" + line(3))
    assert tail.read() == Appended(False, [{"step": 2}, {"step": 3}])


def test_a_file_that_became_shorter_or_another_one_is_read_anew(tmp_path):
    path, other = tmp_path / "metrics.jsonl", tmp_path / "other"
    path.write_text(line(1) + line(2))
    tail = Tail(path)
    tail.read()
    os.truncate(path, len(line(1)))
    assert tail.read() == Appended(True, [{"step": 1}])
    other.write_text(line(7) + line(8) + line(9))  # longer than what was read of the first
    os.replace(other, path)
    assert tail.read() == Appended(True, [{"step": 7}, {"step": 8}, {"step": 9}])
    path.unlink()
    assert tail.read() == Appended(True, [])


def test_a_line_that_is_no_json_is_left_out(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text("nonsense\n" + line(2))
    assert Tail(path).read().rows == [{"step": 2}]


def test_a_file_written_anew_over_the_same_inode_and_as_long_is_read_anew(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(line(1) + line(2))
    tail = Tail(path)
    tail.read()
    path.write_text(line(5) + line(6))
    assert tail.read() == Appended(True, [{"step": 5}, {"step": 6}])


def test_rows_that_a_resumed_run_dropped_are_forgotten(tmp_path):
    root = run_directory(tmp_path)
    path = root / "trial_0" / "metrics.jsonl"
    path.write_text("".join(line(step, a=1.0) for step in (10, 20)) + line(30, a=99.0))
    run = Opened(Followed(tmp_path, root))
    run.read(1.0)
    assert run.details("a")["bands"]["lines"][0] == ([10.0, 20.0, 30.0], [1.0, 1.0, 99.0])
    keep_rows_until(path, 20)  # as a run does that goes on from its checkpoint at step 20
    with path.open("a") as file:
        file.write(line(25, a=2.0) + line(30, a=3.0) + line(35, a=4.0))
    run.read(1.0)
    steps, values = run.details("a")["bands"]["lines"][0]
    assert (steps, values) == ([10.0, 20.0, 25.0, 30.0, 35.0], [1.0, 1.0, 2.0, 3.0, 4.0])


def test_of_a_long_file_rows_are_taken_evenly_with_evaluations_and_gaps():
    rows = [line(i, a=1.0) for i in range(10_000)]
    for at in (777, 7777):
        rows[at] = line(at, **{"eval/return_mean": 3.0})
    rows[5151] = line(5151, a=None)
    lines = sampled_lines("".join(rows).encode(), 500)
    steps = [json.loads(each)["step"] for each in lines]
    assert len(steps) <= 504 and steps == sorted(set(steps))
    assert {777, 5151, 7777, 9999} <= set(steps)
    assert max(np.diff(steps)) < 60, "evenly over the whole file"


def test_of_many_evaluations_some_are_taken_evenly_from_where_they_begin():
    rows = [line(i, **({"eval/x": 1.0} if i >= 5000 else {"a": 1.0})) for i in range(10_000)]
    lines = sampled_lines("".join(rows).encode(), 100)
    evaluated = [json.loads(each)["step"] for each in lines if b"eval/" in each]
    assert 50 <= len(evaluated) <= 220 and max(np.diff(evaluated)) < 250
    assert evaluated[0] < 5100 and evaluated[-1] == 9999


def test_the_last_whole_row_is_read_alone(tmp_path):
    path = tmp_path / "metrics.jsonl"
    assert last_row(path) is None
    path.write_text("".join(line(i) for i in range(9_000)) + '{"step": 9')
    assert last_row(path) == {"step": 8_999}


def test_extremes_and_ends_survive_thinning():
    steps, values = np.arange(10_000.0), np.sin(np.arange(10_000) / 50)
    values[4321], values[8765] = 9.0, -9.0
    x, y = min_max(steps, values, 100)
    assert len(x) <= 100 and (np.diff(x) > 0).all()
    assert (x[0], x[-1]) == (0, 9999)
    assert y.max() == 9.0 and y.min() == -9.0
    assert (values[x.astype(int)] == y).all()


def test_curves_stay_small_and_their_band_is_over_trials():
    curves = Curves(trials=300)
    for trial in range(3):
        row = {"a": float(trial), "b": None, "c": "text"}
        curves.add(trial, [{"step": step} | row for step in range(5_000)])
    assert curves.metrics == ["a", "b"]
    assert len(curves.steps("a", 0)) <= 2 * 667
    bands = curves.bands("a")
    assert bands.iqm[-1] == 1.0 and (bands.low[-1], bands.high[-1]) == (0.0, 2.0)
    assert curves.bands("b").failed == 3
    curves.forget(2)
    assert curves.bands("a").iqm[-1] == 0.5


def test_a_number_that_is_not_finite_is_a_gap_and_never_zero():
    steps, values = np.arange(1_000.0), np.full(1_000, 5.0)
    values[400:410] = np.nan
    x, y = min_max(steps, values, 100)
    assert np.isnan(y[(x >= 400) & (x < 410)]).any() and np.nanmin(y) == 5.0
    curves = Curves(trials=1)
    rows = [{"step": i, "a": None if 400 <= i < 440 else 5.0} for i in range(1_000)]
    curves.add(0, rows)
    bands = curves.bands("a")
    assert set(bands.iqm) == {5.0, None} and bands.lines[0][1].count(None) >= 1
    assert {i for i, value in zip(bands.steps, bands.iqm, strict=True) if value is None} <= {
        i for i in bands.steps if 399 < i < 440
    }


def run_directory(output):
    root = output / "cartpole" / "runs" / "x"
    (root / "trial_0").mkdir(parents=True)
    (root / "run.json").write_text('{"status": "finished", "started": "2026", "trials": 1}')
    (root / "scenario.yaml").write_text("training: {max_steps: 100}\nseed: 3\n")
    return root


@pytest.mark.parametrize(
    ("status", "at_work", "killed"),
    [
        ("running", "running", "stopped"),
        ("finishing", "finishing", "stopped"),
        ("finished", "running", "finished"),  # resumed, and about to say so
        ("interrupted", "running", "stopped"),
        ("failed", "running", "failed"),
    ],
)
def test_the_state_is_what_the_process_at_work_does(tmp_path, status, at_work, killed):
    root = run_directory(tmp_path)
    followed = Followed(tmp_path, root)
    (root / "run.json").write_text(json.dumps({"status": status, "started": "2026", "trials": 1}))
    with locked(root):
        entry = followed.entry()
        assert (entry.state, entry.process) == (at_work, os.getpid())
        assert entry.seconds_left is None or at_work == "running"
    entry = followed.entry()
    assert (entry.state, entry.process) == (killed, None)


def test_the_list_says_what_the_run_says_and_of_older_runs_what_it_can(tmp_path):
    root = run_directory(tmp_path)
    followed = Followed(tmp_path, root)
    (root / "run.json").write_text('{"status": "interrupted", "started": "2026", "trials": 1}')
    (root / "trial_0" / "metrics.jsonl").write_text(line(10) + line(40))
    older = followed.entry()
    assert (older.state, older.steps, older.fraction, older.best) == ("stopped", 40, 0.4, None)
    summary = {"trials": [{"best_return": 3.0}, {"best_return": 7.0}, {"best_return": None}]}
    (root / "summary.json").write_text(json.dumps(summary))
    assert followed.entry().best == 7.0
    stands = Standing("sft", 2, 4, "updates", 5, 0.5, 8.0, "eval/loss", 1.25)
    (root / NAME).write_text(json.dumps(stands._asdict()))
    entry = followed.entry()
    assert (entry.best, entry.metric, entry.fraction) == (1.25, "eval/loss", 0.375)
    assert entry.stage == "sft, 2 of 4"


@pytest.mark.parametrize("where", ["noted", "summary", "details", "broken"])
def test_alarms_of_every_kind_are_shown(tmp_path, where):
    root = run_directory(tmp_path)
    alarm = {"step": 20, "trial": 0, "text": "too good"}
    rows = line(10, **{"loss/total": 1.0})
    match where:
        case "noted":
            (root / "trial_0" / "alarms.jsonl").write_text(json.dumps(alarm) + "\n")
        case "summary":
            (root / "summary.json").write_text(json.dumps({"alarms": [{"kind": "x"} | alarm]}))
        case "details":
            (root / "summary.json").write_text(json.dumps({"details": {"alarms": ["too good"]}}))
        case "broken":
            rows += line(20, **{"loss/total": None})
    (root / "trial_0" / "metrics.jsonl").write_text(rows)
    run = Opened(Followed(tmp_path, root))
    run.read(1.0)
    (shown,) = run.details(None)["alarms"]
    assert ("no longer a number" if where == "broken" else "too good") in shown["text"]


def test_a_large_run_is_shown_before_all_of_it_is_read(tmp_path):
    root = run_directory(tmp_path)
    for trial in range(5):
        (root / f"trial_{trial}").mkdir(exist_ok=True)
        (root / f"trial_{trial}" / "metrics.jsonl").write_text(line(1, a=1.0) + line(2, a=2.0))
    run = Opened(Followed(tmp_path, root))
    run.read(0.0)
    assert run.details(None)["read"] == [1, 5]
    for _ in range(4):
        run.read(0.0)
    details = run.details(None)
    assert details["read"] == [5, 5] and details["bands"]["trials"] == 5


def test_a_search_is_read_as_its_values_arrive(tmp_path):
    root = tmp_path / "cartpole" / "tune" / "x"
    (root / "search").mkdir(parents=True)
    (root / "info.json").write_text('{"status": "finished", "started": "2026"}')
    (root / "scenario.yaml").write_text("search: {direction: minimise}")
    settings = [{"algorithm.gamma": g} for g in (0.9, 0.99, 0.999)]
    (root / "search" / "settings.jsonl").write_text("".join(json.dumps(s) + "\n" for s in settings))
    told = [["order", 0, 0, 1], ["told", 0, 1, -5.0, []], ["told", 2, 1, -3.0, []]]
    (root / "search" / "events.jsonl").write_text("".join(json.dumps(t) + "\n" for t in told))
    followed = Followed(tmp_path, root)
    search = OpenedSearch(followed)
    search.read(1.0)
    details = search.details(None)
    assert details["configurations"] == [[0, 0.9, 5.0], [2, 0.999, 3.0]]
    assert (details["best"], details["drawn"]) == (3.0, 3)
    assert details["top"] == [(2, 3.0, settings[2]), (0, 5.0, settings[0])]
    assert followed.entry().state == "finished"


def test_a_run_with_stages_is_drawn_by_what_it_compares_its_states_by(tmp_path):
    root = run_directory(tmp_path)
    (root / "trial_0" / "second").mkdir()
    (root / "trial_0" / "first").mkdir()
    for stage in ("first", "second"):
        figures = {"eval/aaa": 1.0, "eval/reward": 2.0, "eval/reward_error": 0.1}
        (root / "trial_0" / stage / "metrics.jsonl").write_text(line(1, **figures))
    run = Opened(Followed(tmp_path, root))
    run.read(1.0)
    stands = Standing("second", 2, 2, "updates", 5, 0.5, 8.0, "eval/reward", 2.0)
    (root / NAME).write_text(json.dumps(stands._asdict()))
    assert run.details(None)["metric"] == "second:eval/reward"
    assert run.details("first:eval/aaa")["metric"] == "first:eval/aaa"


def chart(*values, **lines):
    every = {"equity": list(values)} | lines
    return Preview([Chart("Equity", [0.0, 1.0, 2.0], every, x_is_time=True)])


def test_charts_of_the_newest_evaluations_are_drawn_over_trials(tmp_path):
    root = run_directory(tmp_path)
    run = Opened(Followed(tmp_path, root))
    for trial in range(3):
        folder = root / f"trial_{trial}"
        folder.mkdir(exist_ok=True)
        (folder / "metrics.jsonl").write_text(line(10, a=1.0))
        write_preview(folder, 10, chart(1.0, 2.0, 3.0 + trial, held=[1.0, 1.0, 1.0]))
    run.read(1.0)
    (drawn,) = run.details(None)["charts"]
    assert (drawn["title"], drawn["steps"], drawn["x_is_time"]) == ("Equity", [10, 10], True)
    equity, held = drawn["lines"]
    assert (equity["name"], held["name"]) == ("equity", "held")
    assert equity["bands"]["iqm"][-1] == 4.0 and held["bands"]["iqm"][-1] == 1.0
    assert held["bands"]["trials"] == 1, "what is the same for all is drawn once"
    assert (equity["bands"]["low"][-1], equity["bands"]["high"][-1]) == (3.0, 5.0)
    assert set(equity["bands"]["lines"]) == {0, 1, 2}

    version = run.version
    run.read(1.0)
    assert run.version == version, "what has not changed is not drawn again"
    write_preview(root / "trial_1", 20, chart(1.0, 2.0, float("inf")))
    run.read(1.0)
    (drawn,) = run.details(None)["charts"]
    assert run.version > version and drawn["steps"] == [10, 20]
    assert drawn["lines"][0]["bands"]["failed"] == 1


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        "[1, null]",
        '{"step": 1, "charts": 3, "samples": {}}',
        '{"step": null, "charts": [{"title": "x", "x": [1], "lines": {"a": [1]}}]}',
        '{"step": 1, "charts": [{"title": "x", "x": 1, "lines": {"a": 2}}, 7, {"lines": []}]}',
        '{"step": 1, "samples": [5, {"after": 3}, {"after": {"tokens": [{"kl": "a"}, 4]}}]}',
    ],
)
def test_a_preview_that_is_damaged_breaks_nothing(tmp_path, content):
    (tmp_path / "preview.json").write_text(content)
    (tmp_path / "samples.json").write_text(content)
    previews = Previews()
    previews.follow("", 0, tmp_path)
    previews.read()
    assert all(not drawn["lines"] for drawn in previews.charts())
    json.dumps(previews.samples(), allow_nan=False)


def test_the_newest_samples_are_shown_with_colours_for_their_tokens(tmp_path):
    tokens = [
        {"action": word, "kl": kl} for word, kl in (("  so", 2.0), (" bad", -1.0), ("$", 0.0))
    ]
    after = {"text": "so bad", "ended": True, "reward": 1.5, "judge": None, "tokens": tokens}
    folder = tmp_path / "trial_3" / "stage"
    folder.mkdir(parents=True)
    write_preview(folder, 40, Preview(samples=[{"prompt": "It is", "after": after}]))
    previews = Previews()
    previews.follow("stage", 3, folder)
    assert previews.read() and not previews.read()
    samples = previews.samples()
    assert (samples["trial"], samples["step"]) == (3, 40)
    assert [scale["name"] for scale in samples["scales"]] == ["kl"]
    (text,) = samples["texts"]
    assert (text["prompt"], text["scores"], text["ended"]) == ("It is", [("reward", "1.50")], True)
    first, second = text["tokens"]  # the third is the text's end
    assert (first.blanks, first.word) == ("  ", "so") and "KL 2.00" in first.words
    assert "0, 114, 178" in first.colours["kl"] and "213, 94, 0" in second.colours["kl"]

    judged = [
        {"prompt": "Then", "after": after | {"tokens": [t | {"advantage": 1.0} for t in tokens]}}
    ]
    (tmp_path / "trial_3" / "samples.json").write_text(json.dumps(judged))
    os.utime(tmp_path / "trial_3" / "samples.json", ns=(2**62, 2**62))
    assert previews.read()
    samples = previews.samples()
    assert samples["step"] is None and samples["texts"][0]["prompt"] == "Then"
    assert [scale["name"] for scale in samples["scales"]] == ["kl", "advantage"]


def test_a_preview_of_what_a_resumed_run_trains_again_is_dropped(tmp_path):
    keep_preview_until(tmp_path, 5)  # there is none
    write_preview(tmp_path, 20, chart(1.0, 1.0, 1.0))
    keep_preview_until(tmp_path, 20)
    assert (tmp_path / "preview.json").is_file()
    keep_preview_until(tmp_path, 19)
    assert not list(tmp_path.iterdir())
    (tmp_path / "preview.json").write_text('{"step"')
    keep_preview_until(tmp_path, 100)
    assert not list(tmp_path.iterdir())
