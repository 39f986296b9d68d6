"""A run that goes on with other settings: beyond its end, towards another target, or otherwise."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from resume import check_same
from scenario_files import message
from texts import write_texts
from tiny import BUDGET, LANGUAGE, TINY, read, rows_of, run_main, tensors_of

from proxima import load, resume_experiment, run_multiple_experiments
from proxima.run.display import silent
from proxima.train import checkpoint

CONSTANT = "algorithm.final_learning_rate=null"
OFTEN = ("evaluation.eval_frequency=1", "checkpoint.frequency=2")
STEADY = (*TINY, CONSTANT, *OFTEN)  # nothing in it depends on the budget


def finished(name: str, *settings: str, callback=None) -> Path:
    """The directory of a run that has come to its end."""
    summary = run_multiple_experiments(load(name, settings), callback=callback)
    return Path(summary["paths"]["run"]).resolve()


def extended(name: str, *changes: str, **more) -> tuple[list[str], dict]:
    """What is said when a run goes on with changes, and what it comes to."""
    said: list[str] = []
    display = silent()._replace(say=said.append)
    return said, resume_experiment(name, changes=list(changes), display=display, **more)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run of 640 steps that is finished, to be copied."""
    directory = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        finished("cartpole", *STEADY, "training.max_steps=640")
    return directory


@pytest.fixture
def run(workdir, made) -> Path:
    """That run, in a working directory of its own."""
    shutil.copytree(made / "logs", workdir / "logs", symlinks=True)
    return (workdir / "logs" / "cartpole" / "latest").resolve()


@pytest.mark.parametrize(
    ("name", "settings"), [("cartpole", STEADY), ("cartpole_host", (*BUDGET, CONSTANT, *OFTEN))]
)
def test_an_extended_run_is_the_longer_one_to_the_bit(workdir, name, settings):
    whole = finished(name, *settings, "training.max_steps=1280", "output_directory=whole")
    run = finished(name, *settings, "training.max_steps=640")
    policy = (run / "trial_0/policy/policy.safetensors").read_bytes()
    said, summary = extended(name, "training.max_steps=1280")
    assert any("from the start gives, to the bit" in text for text in said), said
    assert summary["trials"][0]["environment_steps"] == 1280
    # a number that nothing uses: the best checkpoint has the one that it was made with
    check_same(run, whole, but="learner.hyper.total_updates")
    assert (run / "trial_0/policy/policy.safetensors").read_bytes() != policy
    assert load_text(run) == load_text(whole).replace(
        "output_directory: whole", "output_directory: logs"
    )


def load_text(run: Path) -> str:
    return (run / "scenario.yaml").read_text()


def test_what_depends_on_the_budget_is_said_and_the_schedule_is_the_new_one(workdir):
    seldom = "evaluation.eval_frequency=1000000"
    run = finished("cartpole", *TINY, seldom, "training.max_steps=640")
    said, _ = extended("cartpole", "training.max_steps=1280")
    (told,) = [text for text in said if "from the start" in text]
    assert told.startswith("It will not be what a run with this budget from the start gives: ")
    assert "algorithm.learning_rate changes over the budget" in told
    assert "at its first end it was evaluated or saved out of turn" in told
    assert tensors_of(run / "trial_0")["learner.hyper.total_updates"] == 20
    steps = [row["step"] for row in rows_of(run / "trial_0")]
    assert steps == list(range(64, 1281, 64))


def test_chunks_that_come_of_the_budget_are_said(workdir):
    settings = (*STEADY, "training.updates_per_chunk=null", "training.max_steps=6400")
    finished("cartpole", *settings)
    said, _ = extended("cartpole", "training.max_steps=12800")
    (told,) = [text for text in said if "from the start" in text]
    assert "training.updates_per_chunk is null" in told and "learning_rate" not in told


def test_a_change_is_noted_with_when_and_from_what_to_what(run, capsys, monkeypatch):
    arguments = ["resume", "cartpole", "--max-steps", "768", "--set", "algorithm.gamma=0.9"]
    said = run_main(arguments, capsys, monkeypatch)
    assert said.code == 0, said.err
    told = "from step 640 on: algorithm.gamma 0.99 → 0.9, training.max_steps 640 → 768."
    assert f"Goes on with other settings than before, {told}" in said.out
    (change,) = read(run / "run.json")["changes"]
    assert (change["step"], change["stage"], change["trial"]) == (640, "", 0)
    assert change["before"] == {"algorithm.gamma": 0.99, "training.max_steps": 640}
    assert change["after"] == {"algorithm.gamma": 0.9, "training.max_steps": 768}
    assert change["at"] >= read(run / "run.json")["started"]
    page = (run / "report.html").read_text()
    assert "Changed at step 640" in page and "training.max_steps 640 → 768" in page
    assert tensors_of(run / "trial_0")["learner.hyper.gamma"] == np.float32(0.9)

    info = read(run / "run.json")
    info["changes"][0]["steps"] = info["changes"][0].pop("step")
    (run / "run.json").write_text(json.dumps(info))
    assert "run.json: is damaged: changes.0" in message(resume_experiment, "cartpole")


def stopped(at_chunk: int, *settings: str, name: str = "cartpole") -> Path:
    """The directory of a run that was interrupted after that chunk."""
    chunks = 0

    def callback(view):
        nonlocal chunks
        chunks += 1
        if chunks == at_chunk:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_multiple_experiments(load(name, settings), callback=callback)
    return Path("logs", name, "latest").resolve()


def test_a_number_that_was_changed_is_the_one_that_is_learnt_with(workdir, made):
    run = stopped(4, *STEADY, "training.max_steps=640")
    other = made / "logs" / "cartpole" / "latest"
    extended(run.name, "algorithm.learning_rate=1e-5")
    tensors = tensors_of(run / "trial_0")
    assert tensors["learner.hyper.learning_rate"] == np.float32(1e-5)
    weight = next(name for name in tensors if name.startswith("learner.net"))
    assert not np.array_equal(tensors[weight], tensors_of(other / "trial_0")[weight])


def test_killed_right_after_the_change_it_still_goes_on_with_it(workdir):
    run = stopped(4, *STEADY, "training.max_steps=512")
    before = (run / "scenario.yaml").read_text()

    def die(view):
        raise KeyboardInterrupt  # before the next checkpoint

    with pytest.raises(KeyboardInterrupt):
        extended("cartpole", "algorithm.gamma=0.9", callback=die)
    for text in (None, before):  # as it is; and as if it had not been written yet
        if text is not None:
            (run / "scenario.yaml").write_text(text)
        with pytest.raises(KeyboardInterrupt):
            resume_experiment("cartpole", callback=die)
    resume_experiment("cartpole")
    assert tensors_of(run / "trial_0")["learner.hyper.gamma"] == np.float32(0.9)
    assert len(read(run / "run.json")["changes"]) == 1


def test_a_change_that_cannot_be_is_refused_and_leaves_everything_as_it_was(run):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    for change, words in {
        "training.max_steps=640": None,  # the same as before: nothing to do
        "training.max_steps=512": "no trial would go on with these settings (trial 0: it has used its",
        "algorithm.gamma=0.9": "say --max-steps with more than 640",
        "network.hidden=[16]": "another shape",
        "seed=7": "cannot change within a run",
        "training.max_step=700": "did you mean max_steps",
    }.items():
        if words is None:
            assert "nothing to resume" in extended("cartpole", change)[0][0]
        else:
            assert words in message(extended, "cartpole", change), change
        left = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
        assert left == before, change


def test_a_smaller_budget_ends_a_stopped_run_where_it_is(workdir):
    run = stopped(6, *STEADY, "training.max_steps=640")
    _, summary = extended("cartpole", "training.max_steps=256")
    assert summary["trials"][0]["environment_steps"] == 384
    assert read(run / "run.json")["status"] == "finished"


EASY = ("convergence.convergence_window=4", "convergence.early_stopping_patience=0")


def test_trials_that_converged_stay_and_another_target_lets_them_go_on(workdir):
    settings = (*STEADY, *EASY, "trials=2", "training.max_steps=640")
    run = finished("cartpole", *settings, "convergence.target_reward=1")
    first = read(run / "summary.json")
    assert [trial["stopped"] for trial in first["trials"]] == ["converged"] * 2
    told = message(extended, "cartpole", "training.max_steps=1280")
    assert "trial 0: it had converged" in told and "convergence.target_reward=VALUE" in told
    assert "--max-steps" not in told
    _, summary = extended("cartpole", "convergence.target_reward=1000")
    for trial in summary["trials"]:
        assert trial["environment_steps"] == 640 and trial["stopped"] == "budget"
        assert not trial["converged"] and trial["converged_at_step"] is None


def test_each_trial_goes_on_from_its_own_step(workdir):
    """By episodes, trials end at different steps; stopped in between, they go on from there too."""
    settings = (*STEADY, "trials=2", "training.max_steps=null", "seed=3")
    run = finished("cartpole", *settings, "training.max_episodes=20")
    ends = [trial["environment_steps"] for trial in read(run / "summary.json")["trials"]]
    assert len(set(ends)) == 2, "another seed is needed"
    shutil.copytree(workdir / "logs", workdir / "whole", symlinks=True)
    more = "training.max_episodes=60"
    whole = Path(extended("cartpole", more, output_directory="whole")[1]["paths"]["run"])
    with pytest.raises(KeyboardInterrupt):
        chunks = iter(range(9))

        def interrupt(view):
            if next(chunks) == 3:
                raise KeyboardInterrupt

        extended("cartpole", more, callback=interrupt)
    summary = resume_experiment("cartpole")
    for trial, end in zip(summary["trials"], ends, strict=True):
        assert trial["episodes"] >= 60 and trial["environment_steps"] > end
        last = run / f"trial_{trial['trial']}" / "checkpoints" / "last"
        assert checkpoint.load_manifest(last)["step"] == trial["environment_steps"]
    check_same(run, whole)


def test_stages_that_have_ended_are_not_changed(workdir):
    write_texts(workdir)
    own = {
        "data.source": "file",
        "data.path": "texts.parquet",
        "data.prompt_tokens": 3,
        "sft.batch_size": 16,
        "reward_model": None,
        "ppo": None,
        "evaluation.judge": None,
    }
    language = {k: v for k, v in LANGUAGE.items() if not k.startswith(("reward_model", "ppo"))}
    summary = run_multiple_experiments(load("movie_critic", language | own))
    told = message(extended, summary["run_id"], "sft.epochs=2")
    assert "sft.epochs: cannot change: sft of this run ended" in told and "new run" in told


def test_a_best_checkpoint_of_a_discarded_future_is_forgotten(workdir):
    run = stopped(8, *STEADY, "checkpoint.frequency=4", "training.max_steps=640")
    root = run / "trial_0" / "checkpoints"
    shutil.rmtree(root / "step_000000000512")
    (root / "best").unlink()
    shutil.copytree(root / "step_000000000256", root / "step_000000000300")
    (root / "best").symlink_to("step_000000000300")
    manifest = root / "step_000000000300" / "manifest.json"
    manifest.write_text(json.dumps(read(manifest) | {"resumable": False, "step": 300}))
    resume_experiment("cartpole", changes=["algorithm.gamma=0.5"])
    assert not (root / "step_000000000300").exists()
    assert (root / "best").resolve().name in [path.name for path in root.glob("step_*")]
