"""Files that grow are read by what was appended, and many points become few without losing extremes."""

import json
import os

import numpy as np

from proxima.live.curves import Curves, min_max
from proxima.live.runs import Followed, OpenedSearch
from proxima.live.tail import MOST_ROWS, Appended, Tail, thinned_lines


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


def test_of_a_long_file_every_kth_line_is_read_and_every_evaluation():
    lines = [line(i, a=1.0).encode() for i in range(10_000)]
    lines[777] = line(777, **{"eval/return_mean": 3.0}).encode()
    kept = thinned_lines(lines, MOST_ROWS)
    assert len(kept) <= MOST_ROWS + 2
    assert {lines[0], lines[777], lines[-1]} <= set(kept)


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
        for step in range(5_000):
            curves.add(trial, {"step": step, "a": float(trial), "b": None, "c": "text"})
    assert curves.metrics == ["a", "b"]
    assert len(curves.steps("a", 0)) <= 2 * 667
    bands = curves.bands("a")
    assert bands.iqm[-1] == 1.0 and (bands.low[-1], bands.high[-1]) == (0.0, 2.0)
    assert curves.bands("b").failed == 3
    curves.forget(2)
    assert curves.bands("a").iqm[-1] == 0.5


def test_a_search_is_read_as_its_values_arrive(tmp_path):
    root = tmp_path / "cartpole" / "tune" / "x"
    (root / "search").mkdir(parents=True)
    (root / "info.json").write_text('{"status": "finished", "started": "2026"}')
    (root / "scenario.yaml").write_text("search: {direction: minimise}")
    settings = [{"algorithm.gamma": g} for g in (0.9, 0.99, 0.999)]
    (root / "search" / "settings.jsonl").write_text("".join(json.dumps(s) + "\n" for s in settings))
    told = [["order", 0, 0, 1], ["told", 0, 1, 5.0, []], ["told", 2, 1, 3.0, []]]
    (root / "search" / "events.jsonl").write_text("".join(json.dumps(t) + "\n" for t in told))
    followed = Followed(tmp_path, root)
    followed.entry()
    search = OpenedSearch(followed)
    search.read()
    details = search.details(None)
    assert details["configurations"] == [[0, 0.9, 5.0], [2, 0.999, 3.0]]
    assert (details["best"], details["drawn"]) == (3.0, 3)
    assert followed.entry().state == "finished"
