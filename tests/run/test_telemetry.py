"""What a run tells of itself: time by part, memory, spans, phases; and that telling costs nothing."""

import json
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from collectors import attributes_of, collector
from tiny import BUDGET, equal_bits, flags, read, results_of, rows_of, run_main, tensors_of, tiny

import proxima
from proxima.domains import reinforcement
from proxima.domains.control.domain import build
from proxima.run.files import read_rows
from proxima.scenario import load
from proxima.train.books import fresh_progress
from proxima.train.compiled import profile
from proxima.train.loop import Observer, train
from proxima.train.reinforcement import reinforcement_stage

PARTS = {"build", "compile", "train", "evaluate", "save", "finish", "tracking"}
PHASES = ["rollout", "env", "act", "learn", "update"]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A small run, the time around it, and its directory."""
    started = time.perf_counter()
    summary = proxima.run_multiple_experiments(tiny(tmp_path_factory.mktemp("plain")))
    return summary, time.perf_counter() - started, Path(summary["paths"]["run"])


@pytest.fixture(scope="module")
def telling(tmp_path_factory):
    """The same run with everything told, and what arrived at its collector."""
    output = tmp_path_factory.mktemp("telling")
    with pytest.MonkeyPatch.context() as patch, collector() as collected:
        patch.setattr(profile, "PART_SECONDS", 0.1)
        told = ("telemetry.phases=true", f"telemetry.otlp_endpoint={collected.endpoint}")
        summary = proxima.run_multiple_experiments(tiny(output, *told))
    return summary, collected, Path(summary["paths"]["run"])


def test_the_wall_time_is_accounted_for(plain):
    summary, around, root = plain
    spent = dict(summary["time"])
    total = spent.pop("total")
    assert spent.keys() == PARTS and total == pytest.approx(sum(spent.values()))
    assert 0.5 * around < total < around  # no part is forgotten, none counted twice
    results = read(root / "trial_0" / "results.json")
    assert results["phases"] is None
    # a trial's results are written before its tracker has ended
    assert results["time"].keys() == PARTS - {"tracking"} | {"total"}
    assert results["time"]["total"] <= total and results["time"]["train"] == spent["train"]
    rows = read_rows(root / "trial_0" / "metrics.jsonl")
    # A chunk's bookkeeping counts as training, where no evaluation is due as no evaluation.
    assert spent["train"] >= sum(row["time/train"] for row in rows) > 0
    assert 0 < spent["evaluate"] <= sum(row["time/evaluate"] for row in rows)


def test_every_chunk_tells_its_speed_and_the_memory(plain):
    summary, _, root = plain
    rows = read_rows(root / "trial_0" / "metrics.jsonl")
    assert len(rows) == 32
    for row in rows:
        assert row["time/steps_per_second"] == pytest.approx(64 / row["time/train"])
        assert 50 < row["memory/rss_mb"] <= row["memory/peak_mb"] < 100_000
        assert 0 < row["memory/arrays_mb"] < row["memory/rss_mb"]
    assert rows[-1]["memory/peak_mb"] <= 1.01 * summary["memory_peak_mb"]


def test_telling_changes_nothing_of_the_run(plain, telling):
    (_, _, silent), (_, _, told) = plain, telling
    assert rows_of(silent / "trial_0") == rows_of(told / "trial_0")
    assert equal_bits(tensors_of(silent / "trial_0"), tensors_of(told / "trial_0"))
    assert results_of(silent / "trial_0") == results_of(told / "trial_0")


def test_a_run_that_was_asked_knows_the_parts_of_its_update(telling):
    summary, _, _ = telling
    phases = summary["trials"][0]["phases"]
    # Acting is a difference of two times, which on a busy machine may come out as 0.
    assert list(phases) == PHASES and all(seconds >= 0 for seconds in phases.values())
    assert phases["update"] > 0
    assert summary["time"]["profile"] > 0


def test_the_spans_of_a_run_tell_what_it_did_when(telling):
    summary, collected, root = telling
    (whole,) = collected.named("experiment")
    assert attributes_of(whole) == {
        "scenario": "cartpole",
        "algorithm": "ppo",
        "domain": "control",
        "env": "CartPole-v1 (gymnax)",
        "trials": 1,
        "seed": 0,
        "run_id": root.name,
        "status": "finished",
    }
    assert {span.name for span in collected.spans} == PARTS | {"profile", "experiment"}
    assert all(span.trace_id == whole.trace_id for span in collected.spans)
    chunks = collected.named("train")
    assert [attributes_of(span)["step"] for span in chunks] == [64 * (k + 1) for k in range(32)]
    rows = rows_of(root / "trial_0")
    evaluated = [row["step"] for row in rows if "eval/return_mean" in row]
    assert [attributes_of(span)["step"] for span in collected.named("evaluate")] == evaluated
    saved = [attributes_of(span)["checkpoint"] for span in collected.named("save")]
    assert sum(saved) == sum((k + 1) % 10 == 0 for k in range(31)) + 1
    spent = sum(span.end_time_unix_nano - span.start_time_unix_nano for span in chunks)
    assert spent * 1e-9 == pytest.approx(summary["time"]["train"], rel=1e-3)
    ends = [span.end_time_unix_nano for span in chunks]
    starts = [span.start_time_unix_nano for span in chunks]
    assert all(end <= start for end, start in zip(ends[:-1], starts[1:], strict=True))


def test_a_resumed_run_adds_to_the_time_it_had(tmp_path):
    def stop(_):
        raise KeyboardInterrupt

    scenario = tiny(tmp_path, "checkpoint.frequency=1")
    with pytest.raises(KeyboardInterrupt):
        proxima.run_multiple_experiments(scenario, callback=stop)
    info = next(tmp_path.glob("cartpole/runs/*/run.json"))
    noted = read(info)["time"]
    assert noted["train"] > 0
    content = read(info)
    info.write_text(json.dumps(content | {"time": noted | {"train": 1000.0, "compile": 500.0}}))
    spent = proxima.resume_experiment("cartpole", output_directory=str(tmp_path))["time"]
    assert 1000 < spent["train"] < 1100 and 500 < spent["compile"] < 600


def test_host_environments_tell_the_parts_while_they_run(tmp_path):
    scenario = load(
        "cartpole_host",
        [
            *BUDGET,
            "training.max_steps=320",
            "telemetry.phases=true",
            f"output_directory={tmp_path}",
        ],
    )
    summary = proxima.run_multiple_experiments(scenario)
    phases = summary["trials"][0]["phases"]
    assert list(phases) == PHASES
    rows = read_rows(Path(summary["paths"]["run"]) / "trial_0" / "metrics.jsonl")
    for part in ("env", "act", "learn"):
        assert phases[part] * 5 == pytest.approx(sum(row[f"time/{part}"] for row in rows))
    assert phases["update"] * 5 < summary["time"]["train"]


def test_one_read_per_chunk_however_many_updates_it_has(tmp_path, monkeypatch):
    """A chunk of ten updates is read once; so is an evaluation. Nothing else leaves the devices."""
    scenario = tiny(tmp_path, "training.updates_per_chunk=10", "evaluation.eval_frequency=1000000")
    built = build(scenario)
    settings = reinforcement.settings(scenario)
    stage = reinforcement_stage(built.program, (0,), [0], settings, built.layout)
    states = stage.prepare(stage.init())
    reads, stray, inside = [], [], []
    get, asarray = jax.device_get, np.asarray

    def counted(tree):
        reads.append(tree)
        inside.append(True)
        try:
            return get(tree)
        finally:
            inside.pop()

    def watched(value, *arguments, **options):
        if isinstance(value, jax.Array) and not inside:
            stray.append(value)
        return asarray(value, *arguments, **options)

    kind = type(jax.numpy.zeros(()))
    value_of = kind._value

    def value(array):
        if not inside:
            stray.append(array)
        return value_of.fget(array)

    monkeypatch.setattr(jax, "device_get", counted)
    monkeypatch.setattr(np, "asarray", watched)
    monkeypatch.setattr(kind, "_value", property(value))
    reports = []
    observer = Observer(lambda report: reports.append(report) or {}, print, lambda: False)
    train(stage, states, fresh_progress(1), observer)
    evaluations = sum(report.scores is not None for report in reports)
    assert len(reports) == 4 and evaluations == 1  # 32 updates
    assert len(reads) == len(reports) + evaluations and stray == []


def test_the_profile_command(capsys, monkeypatch, workdir):
    monkeypatch.setattr(profile, "PART_SECONDS", 0.1)
    small = flags(*BUDGET)
    said = run_main(["profile", "cartpole", *small], capsys, monkeypatch)
    assert said.code == 0, said.err
    lines = said.out.splitlines()
    assert lines[0] == "cartpole · ppo, 1 trial(s), 64 steps per update"
    assert [line.split()[0] for line in lines[2:7]] == PHASES
    shares = {line.split()[0]: int(line.split()[2]) for line in lines[2:6]}
    assert shares["rollout"] + shares["learn"] == pytest.approx(100, abs=1)
    assert "An evaluation of 4 episodes takes" in said.out and "Memory: " in said.out
    assert not list(workdir.iterdir()), "no run is made"

    said = run_main(["profile", "cartpole_host", "--json", *small], capsys, monkeypatch)
    found = json.loads(said.out)
    assert list(found["phases"]) == PHASES and found["memory"]["memory/rss_mb"] > 50
    assert found["steps_per_second"] == pytest.approx(64 / found["phases"]["update"])


def test_an_endpoint_that_is_none_is_refused(capsys, monkeypatch):
    bad = "telemetry.otlp_endpoint=localhost:4318"
    said = run_main(["profile", "cartpole", "--set", bad], capsys, monkeypatch)
    assert said.code == 1 and "write http://HOST:4318" in said.err
