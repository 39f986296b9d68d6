"""Which checkpoint is measured: of a trial always the one that its run judged and exported."""

import json
import os
import shutil
from pathlib import Path

import pytest
from run_directories import info_of, trial_result
from tiny import read, run_main, tiny

import proxima
from proxima.core.errors import ProximaError
from proxima.run import results
from proxima.run.evaluate import evaluate_reference
from proxima.run.files import create_run
from proxima.scenario import load, to_stored
from proxima.train import checkpoint


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run of two trials that is judged by the best checkpoints; the second's is not its last."""
    output = tmp_path_factory.mktemp("runs")
    settings = ("trials=2", "evaluation.checkpoint=best", "checkpoint.frequency=4")
    summary = proxima.run_multiple_experiments(tiny(output, *settings))
    root = Path(summary["paths"]["run"])
    for trial in range(2):
        folder = root / f"trial_{trial}"
        kept = checkpoint.judged(folder, "best")
        about = proxima.load_policy(folder).about
        assert (
            about["checkpoint"] == {"kind": "best", "step": kept.step} and about["trial"] == trial
        )
    link = root / "trial_1" / "checkpoints" / "best"
    last = link.with_name("last").resolve().name
    (other, *_) = [path.name for path in link.parent.glob("step_*") if path.name != last]
    link.unlink()
    os.symlink(other, link)
    return root


def test_of_a_run_and_of_its_trial_the_best_is_taken_where_the_run_took_it(run):
    output = str(run.parents[2])
    expected = checkpoint.judged(run / "trial_1", "best")
    assert expected.path.name != (run / "trial_1" / "checkpoints" / "last").resolve().name
    for reference, trial in (
        (str(run / "trial_1"), None),
        (str(run.parents[1] / "trial_1"), None),
        (str(run / "trial_1" / "checkpoints"), None),
        ("cartpole/latest/trial_1", None),  # below the output directory
        ("cartpole", 1),
    ):
        found = evaluate_reference(reference, 2, output_directory=output, trial=trial)
        assert (found["kind"], found["step"]) == ("best", expected.step), reference
    first = evaluate_reference("cartpole", 4, output_directory=output)
    assert first["evaluation"] == read(run / "trial_0" / "results.json")["evaluation"]
    assert proxima.load_policy("cartpole/latest/trial_1", output).about["trial"] == 1


def test_a_checkpoint_named_itself_is_taken_whichever_it_is(run):
    links = run / "trial_1" / "checkpoints"
    assert evaluate_reference(str(links / "last"), 1)["kind"] == "last"
    assert evaluate_reference(str((links / "last").resolve()), 1)["kind"] == ""
    with pytest.raises(ProximaError, match=r"--trial 0: .* is a checkpoint already"):
        evaluate_reference(str(links / "last"), 1, trial=0)


def test_a_trial_that_has_no_best_is_judged_by_its_last(run, tmp_path):
    last = checkpoint.resolve(run / "trial_0")
    shutil.copytree(last, tmp_path / "checkpoints" / last.name)  # the links were lost
    found = evaluate_reference(str(tmp_path), 1)
    assert (found["kind"], found["step"]) == (
        "last",
        checkpoint.judged(run / "trial_0", "last").step,
    )


def test_a_run_without_episodes_says_where_its_figures_are(tmp_path):
    files = create_run(str(tmp_path), "movie_critic", 1)
    files.scenario.write_text(json.dumps(to_stored(load("movie_critic"))))
    results.write(files.info, info_of(files, [trial_result(0)]))
    for reference in (files.root, files.trial(0)):
        with pytest.raises(ProximaError, match="has no environment to play in"):
            evaluate_reference(str(reference), 1)


def test_the_command_says_which_checkpoint_and_which_trials_there_are(run, capsys, monkeypatch):
    said = run_main(["evaluate", run, "--trial", 1, "--episodes", 1], capsys, monkeypatch)
    step = checkpoint.judged(run / "trial_1", "best").step
    assert said.code == 0 and f"(best checkpoint, step {step:,})" in said.out
    said = run_main(["evaluate", run, "--trial", 7], capsys, monkeypatch)
    assert said.code == 1 and "has no trial 7; there are: 0, 1" in said.err
    said = run_main(["evaluate", run / "trial_0", "--trial", 1], capsys, monkeypatch)
    assert said.code == 1 and "is a trial already" in said.err


def test_new_data_is_for_those_that_are_trained_on_data(run, capsys, monkeypatch):
    for command in (
        ["evaluate", str(run), "--data", "new.csv"],
        ["trade", str(run), "--bars", "-"],
    ):
        said = run_main(command, capsys, monkeypatch)
        assert said.code == 1 and "Traceback" not in said.err
        assert (
            "cartpole is not trained on a file of data" in said.err
            or "no trading policy" in said.err
        )
