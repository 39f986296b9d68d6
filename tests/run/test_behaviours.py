"""What every run does, whatever it trains: the same cases over environments and language."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from texts import TINY as LANGUAGE
from texts import write_texts
from tiny import BUDGET

import proxima
from proxima.run import start
from proxima.run.display import silent
from proxima.run.results import Summary

SHORT = (
    "trials=2",
    "seed=3",
    "training.max_steps=640",
    "checkpoint.frequency=3",
    "evaluation.eval_frequency=5",
)
FEW = {
    "trials": 2,
    "seed": 3,
    "reward_model": None,
    "reward.kind": "function",
    "checkpoint.frequency": 3,
}
KINDS = {
    "compiled": ("cartpole", (*BUDGET, *SHORT)),
    "host": ("cartpole_host", (*BUDGET, *SHORT)),
    "language": ("movie_critic", LANGUAGE | FEW | {"reward.function": "texts.good_words"}),
}
LAST = {"compiled": "", "host": "", "language": "ppo"}  # the stage that speaks for a trial


def scenario(kind: str, **more):
    name, settings = KINDS[kind]
    extra = (
        more if isinstance(settings, dict) else [f"{k}={json.dumps(v)}" for k, v in more.items()]
    )
    return proxima.load(
        name, settings | extra if isinstance(settings, dict) else [*settings, *extra]
    )


@pytest.fixture(autouse=True)
def files(workdir):
    write_texts(workdir)
    return workdir


@pytest.fixture(params=KINDS)
def kind(request) -> str:
    return request.param


def run(kind: str, said: list[str] | None = None, callback=None, **more) -> Summary:
    display = silent()._replace(say=(said if said is not None else []).append)
    return proxima.run_multiple_experiments(
        scenario(kind, **more), callback=callback, display=display
    )


def break_trial(monkeypatch, trial: int, after: int) -> None:
    """The loss of one trial is no number once its stage has done so many updates; its state is kept."""
    prepare = start.make_runnable

    def broken(scenario, gang):
        made = prepare(scenario, gang)
        stages = [
            planned._replace(make=_breaking(planned.make, trial, after))
            for planned in made.prepared.stages
        ]
        return made._replace(prepared=made.prepared._replace(stages=stages))

    monkeypatch.setattr(start, "make_runnable", broken)


def _breaking(make, trial: int, after: int):
    def made(directory):
        trainable = make(directory)
        stage = trainable.stage

        def advance(states, active, updates, done):
            states, rows = stage.advance(states, active, updates, done)
            lanes = [
                lane for lane, k in enumerate(stage.trials) if k == trial and done + updates > after
            ]
            return states, [
                row | ({"loss/policy": np.nan} if lane in lanes else {})
                for lane, row in enumerate(rows)
            ]

        return trainable._replace(stage=stage._replace(advance=advance))

    return made


def test_a_trial_that_breaks_down_leaves_the_others_alone(kind, monkeypatch):
    break_trial(monkeypatch, trial=1, after=2)
    said: list[str] = []
    summary = run(kind, said)
    whole, broken = summary.trials
    assert whole.stopped == "budget" and broken.stopped == "nan"
    assert (
        broken.nan_at_step is not None
        and broken.nan_at_step <= list(broken.stages.values())[-1].steps
    )
    assert [name for name in broken.stages] == [name for name in whole.stages][: len(broken.stages)]
    if summary.aggregate is not None:
        assert (summary.aggregate.n, summary.aggregate.failed) == (1, 1)
    assert [text for text in said if "Trial 1: the loss is no longer a number" in text]
    page = Path(summary.paths["report"]).read_text()
    assert "Trials that broke down" in page
    assert (
        json.loads(Path("logs", summary.scenario, "latest", "run.json").read_text())["status"]
        == "finished"
    )


def test_a_callback_that_says_no_ends_what_trains_and_is_judged(kind):
    seen = []

    def enough(view):
        seen.append((view["stage"], view["step"]))
        return view["step"] < 3 * (64 if kind != "language" else 1)

    summary = run(kind, callback=enough)
    assert {trial.stopped for trial in summary.trials} == {"callback"}
    assert all(trial.evaluation is not None for trial in summary.trials)
    for trial in summary.trials:
        folder = Path(summary.paths["run"], f"trial_{trial.trial}", LAST[kind])
        assert (folder / "checkpoints" / "last").exists()


def test_the_best_checkpoint_is_kept_and_can_be_the_one_that_is_judged(kind):
    last = run(kind)
    best = run(kind, **{"evaluation.checkpoint": "best"})
    for trial, other in zip(last.trials, best.trials, strict=True):
        folder = Path(best.paths["run"], f"trial_{trial.trial}", LAST[kind], "checkpoints")
        book = json.loads((folder / "best" / "manifest.json").read_text())["loop"]["book"]
        assert book["best"] == other.best_return == trial.best_return
        assert book["steps"] <= list(other.stages.values())[-1].steps
    assert best.trials[0].evaluation.episodes == last.trials[0].evaluation.episodes


def test_the_page_names_the_tracked_run(kind, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    summary = run(kind, **{"tracking.enabled": True, "trials": 1})
    assert summary.tracking_error is None and summary.mlflow_run_id is not None
    assert summary.mlflow_run_id in Path(summary.paths["report"]).read_text()
    assert summary.trials[0].mlflow_run_id is not None


def test_what_is_returned_is_what_is_on_disk(kind):
    summary = run(kind)
    assert proxima.resume_experiment(summary.run_id) == summary
    for trial in summary.trials:
        stored = json.loads(
            Path(summary.paths["run"], f"trial_{trial.trial}", "results.json").read_text()
        )
        assert stored["format"] == 1 and stored["trial"] == trial.trial
        assert set(stored) == {field.name for field in dataclasses.fields(trial)}
