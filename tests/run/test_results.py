"""What a run leaves behind: written and read again it is the same, and damaged it is told in words."""

import dataclasses
import json
from pathlib import Path

import pytest
from checkpoints import save
from run_directories import info_of, stage_result, summary_of, trial_result, write_run

from proxima import ProximaError
from proxima.domains.language.results import LanguageTrial
from proxima.domains.trading.results import TradingSummary, TradingTrial
from proxima.run import results
from proxima.run.files import RunFiles, create_run, keep_rows_until, read_rows, write_json
from proxima.run.read import load_scenario, read_info, read_summary
from proxima.run.report import compare_references, write_report
from proxima.run.restore import book_to_json, loop_from_json
from proxima.run.results import (
    Alarm,
    Change,
    Outcome,
    Registered,
    RunInfo,
    StageResult,
    Summary,
    TrialResult,
    aggregate_of,
    described,
)
from proxima.train import checkpoint
from proxima.train.books import Book
from proxima.train.convergence import Convergence

EPISODES = described([1.0, 2.5], [3, 4])


@pytest.fixture
def run(tmp_path) -> RunFiles:
    """A finished run with all that has a place in its results."""
    files = create_run(str(tmp_path / "logs"), "cartpole", 2)
    outcome = Outcome(evaluation=EPISODES, baselines={"random": 1.5}, scores={"solved": None})
    stage = stage_result(1, phases={"update": 0.1}, first={"return": None}, outcome=outcome)
    trials = [
        trial_result(0, run_id=files.run_id, stopped="nan", nan_at_step=64, best_return=None),
        trial_result(1, stages={"train": stage}, reference=EPISODES, mlflow_run_id="child"),
    ]
    change = Change(before=aggregate_of([1.0, None]), after=aggregate_of([2.0, 3.0]))
    summary = summary_of(
        files,
        trials,
        references={"rule": EPISODES},
        scores={"solved": aggregate_of([None, None])},
        figures={"train/return": change},
        alarms=(Alarm(kind="kl", text="too far", step=3, trial=1),),
        registered=(Registered(name="a", version="1", uri="models:/a/1"),),
    )
    results.write(files.summary, summary)
    for trial in trials:
        results.write(files.trial(trial.trial) / "results.json", trial)
        (files.trial(trial.trial) / "metrics.jsonl").write_text('{"step": 64, "loss/policy": 1}\n')
    results.write(files.trial(1) / "stage.json", stage)
    results.write(files.info, info_of(files, trials, training_seconds={"0": 1.0}))
    files.scenario.write_text("name: cartpole\nenv: {name: CartPole-v1}\n")
    return files


def test_every_result_is_the_same_when_it_is_read_again(run):
    summary = read_summary(run)
    again = run.root / "again.json"
    for record, kind in (
        (summary.trials[1], TrialResult),
        (summary.trials[1].stages["train"], StageResult),
        (read_info(run), RunInfo),
    ):
        results.write(again, record)
        assert results.read(again, kind) == record
    results.write(again, summary)
    assert results.read(again, Summary) == summary
    assert again.read_bytes() == run.summary.read_bytes()
    stored = results.read(run.trial(1) / "results.json", TrialResult)
    assert stored == summary.trials[1] and stored["reference"]["returns"] == (1.0, 2.5)


def test_results_are_frozen_and_read_by_name(run):
    summary = read_summary(run)
    assert summary["trials"][1]["stages"]["train"]["outcome"]["evaluation"]["episodes"] == 2
    with pytest.raises(KeyError, match="nothing"):
        summary["nothing"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        summary.converged = 7


def test_what_is_not_finite_is_null():
    stage = stage_result(0, best=float("inf"), last={"reward": float("nan")})
    assert results.to_json(stage)["best"] is None
    assert results.to_json(stage)["last"] == {"reward": None}


def test_a_domains_details_come_back_in_its_types(tmp_path):
    files = write_run(tmp_path, trading=True)
    summary = read_summary(files)
    assert isinstance(summary.details, TradingSummary)
    assert all(isinstance(trial.details, TradingTrial) for trial in summary.trials)
    assert results.to_json(summary) == json.loads(files.summary.read_text())


def test_details_of_another_domain_are_refused_by_name(run):
    path = run.trial(0) / "results.json"
    content = json.loads(path.read_text())
    write_json(path, content | {"details": {"splits": 3}})
    for kind in (TradingTrial, LanguageTrial):
        with pytest.raises(ProximaError, match=r"results\.json: is damaged: .*"):
            results.read(path, TrialResult, (kind, None))


def changed(**changes):
    return lambda text: json.dumps(json.loads(text) | changes).encode()


def without(key: str):
    return lambda text: json.dumps(
        {name: value for name, value in json.loads(text).items() if name != key}
    ).encode()


DAMAGE = {
    "truncated": lambda text: text[: len(text) // 2].encode(),
    "empty": lambda text: b"",
    "no JSON": lambda text: b"name: [cartpole",
    "a list": lambda text: b"[]",
    "null": lambda text: b"null",
    "a number": lambda text: b"3",
    "binary": lambda text: bytes(range(256)),
    "no text": lambda text: b"\x00" * 64,
    "too deep": lambda text: b"[" * 100_000,
}
JSON_DAMAGE = DAMAGE | {
    "an extra key": changed(surprise=1),
    "another format": changed(format=7),
    "a format in words": changed(format="1"),
    "an older version's": without("format"),
}
WRONG = {  # by file: a key that it cannot be without, and what that cannot be
    "run.json": ("status", "asleep"),
    "results.json": ("episodes", "many"),
    "summary.json": ("trials", {"0": None}),
    "stage.json": ("outcome", []),
}
PLACES = {
    "run.json": lambda run: (run.info, lambda: read_info(run)),
    "summary.json": lambda run: (run.summary, lambda: read_summary(run)),
    "results.json": lambda run: (
        run.trial(1) / "results.json",
        lambda: results.read(run.trial(1) / "results.json", TrialResult),
    ),
    "stage.json": lambda run: (
        run.trial(1) / "stage.json",
        lambda: results.read(run.trial(1) / "stage.json", StageResult),
    ),
    "scenario.yaml": lambda run: (run.scenario, lambda: load_scenario(run)),
}


def refusal(read) -> str:
    with pytest.raises(ProximaError) as refused:
        read()
    return str(refused.value)


@pytest.mark.parametrize("damage", JSON_DAMAGE)
@pytest.mark.parametrize("name", WRONG)
def test_a_damaged_result_is_told_in_words_that_name_the_file(run, name, damage):
    path, read = PLACES[name](run)
    path.write_bytes(JSON_DAMAGE[damage](path.read_text()))
    words = refusal(read)
    assert words.startswith(f"{path}: ")
    expected = {
        "an extra key": "is damaged: surprise: unexpected keyword argument",
        "another format": "is of format 7, and this version reads 1; install the version",
        "a format in words": "is of format '1', and this version reads 1",
        "an older version's": "was written by proxima 0.1 or is damaged: it does not say its format",
    }
    assert expected.get(damage, "") in words


@pytest.mark.parametrize("name", WRONG)
def test_a_key_that_is_missing_or_of_another_type_is_named(run, name):
    path, read = PLACES[name](run)
    (key, value), text = WRONG[name], path.read_text()
    path.write_bytes(without(key)(text))
    assert f"{path}: is damaged: {key}: " in refusal(read)
    path.write_bytes(changed(**{key: value})(text))
    assert f"{path}: is damaged: {key}" in refusal(read)


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_scenario_is_told_in_words_that_name_the_file(run, damage):
    path, read = PLACES["scenario.yaml"](run)
    path.write_bytes(DAMAGE[damage]("{name: cartpole, env: {name: CartPole-v1}}"))
    assert str(path) in refusal(read)


@pytest.mark.parametrize("name", PLACES)
def test_a_file_that_is_missing_is_named(run, name):
    path, read = PLACES[name](run)
    path.unlink()
    assert refusal(read).startswith(f"{path}: ")


@pytest.mark.parametrize(
    "line",
    [
        *("[]", "3", "null", '"step"', "{}", '{"loss": 1}', '{"step": "1"}', '{"step": true}'),
        *('{"step": 1, "loss": NaN}', '{"step": 1, "loss": 1e999}'),
        *('{"step": 1, "loss/policy": "low"}', '{"step": 1, "loss/policy": [1]}', "{", "\x00"),
    ],
)
def test_a_damaged_row_of_metrics_is_named(tmp_path, line):
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"step": 1}}\n{line}\n{{"step": 3}}\n')
    for read in (lambda: read_rows(path), lambda: keep_rows_until(path, 1)):
        assert refusal(read).startswith(f"{path}: is damaged: line 2 is no row of metrics")
    assert path.read_text().count("\n") == 3, "nothing was touched"


def test_a_last_row_that_was_cut_short_is_left_out_and_binary_rows_are_refused(tmp_path):
    path = tmp_path / "metrics.jsonl"
    rows = [{"step": 1, "loss/policy": None}, {"step": 2, "eval/return_mean": 1.5}]
    whole = "".join(json.dumps(row) + "\n" for row in rows)
    for cut in ("", '{"step": 3, "lo', "{", "\x00\x00"):
        path.write_text(whole + cut)
        assert read_rows(path) == rows
    path.write_text(whole.rstrip("\n"))
    assert read_rows(path) == rows
    path.write_bytes(b"\xff\xfe")
    assert refusal(lambda: read_rows(path)).startswith(f"{path}: cannot be read")


BOOK = Book(steps=64, best=1.5, convergence=Convergence(((1.0, 4), (2.5, 2)), best=2.0, waited=3))
LOOP = json.loads(json.dumps({"chunks": 3, "book": book_to_json(BOOK)}))


def damaged_book(**changes):
    return LOOP | {"book": LOOP["book"] | changes}


def test_a_book_is_the_same_when_it_is_read_again():
    assert loop_from_json(Path("step"), LOOP) == (3, BOOK)


@pytest.mark.parametrize(
    ("loop", "words"),
    [
        ({}, "loop.chunks: field required"),
        ({"chunks": 3}, "loop.book: field required"),
        (LOOP | {"chunks": "3"}, "loop.chunks: input should be a valid integer"),
        (LOOP | {"chunks": None}, "loop.chunks: "),
        (LOOP | {"book": None}, "loop.book: "),
        (LOOP | {"book": []}, "loop.book lacks best, convergence"),
        (LOOP | {"book": {}}, "loop.book lacks best, convergence"),
        (damaged_book(surprise=1), "loop.book.surprise: "),
        (damaged_book(steps="many"), "loop.book.steps: "),
        (damaged_book(convergence=None), "loop.book.convergence: "),
        (damaged_book(convergence={}), "loop.book lacks best, converged, groups"),
        (damaged_book(convergence=LOOP["book"]["convergence"] | {"groups": [1]}), "groups.0: "),
    ],
)
def test_a_damaged_loop_of_a_manifest_is_named(loop, words):
    told = refusal(lambda: loop_from_json(Path("step_1"), loop))
    assert told.startswith("step_1/manifest.json: is damaged: ") and words in told


# but for an extra key: a manifest may say more than a reader knows
@pytest.mark.parametrize("damage", sorted(JSON_DAMAGE.keys() - {"an extra key"}))
def test_a_damaged_manifest_is_told_in_words_that_name_the_checkpoint(tmp_path, damage):
    path = save(tmp_path, 7)
    manifest = path / "manifest.json"
    manifest.write_bytes(JSON_DAMAGE[damage](manifest.read_text()))
    words = refusal(lambda: checkpoint.load_manifest(path))
    assert words.startswith(f"{path}: is ")
    assert damage != "another format" or "format 7, and this version reads 1" in words


@pytest.mark.parametrize("key", ["scenario", "loop", "leaves", "step", "sha256", "versions"])
def test_a_manifest_that_lacks_something_is_refused(tmp_path, key):
    path = save(tmp_path, 7)
    manifest = path / "manifest.json"
    text = manifest.read_text()
    for damaged in (without(key), changed(**{key: [3]})):
        manifest.write_bytes(damaged(text))
        words = refusal(lambda: checkpoint.load_manifest(path))
        assert words.startswith(f"{path}: is damaged: manifest.json has no proper {key}")


@pytest.mark.parametrize("name", ["run.json", "summary.json", "scenario.yaml"])
def test_reports_and_comparisons_name_the_damaged_file_too(run, name):
    path, _ = PLACES[name](run)
    path.write_bytes(b"\xff\xfe")
    assert str(path) in refusal(lambda: write_report(run))
    if name != "run.json":  # which a comparison does not need
        plot = run.root / "plot.png"
        assert str(path) in refusal(lambda: compare_references([str(run.root)], plot))
