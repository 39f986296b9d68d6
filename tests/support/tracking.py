"""Trackers of small runs, and what MLflow's own client reads back."""

import queue
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from proxima.track.messages import Answer, ChildRun, Finish, Finished, Plan, Work
from proxima.track.process import connect
from proxima.track.tracker import RunIds, Tracker, TrackingConfig, TrackingOutcome
from proxima.track.writer import Writer

# MLflow's own client reads the stores here; what it and its database layer warn of is theirs.
THEIR_WARNINGS = pytest.mark.filterwarnings(r"ignore:::(mlflow|alembic|sqlalchemy)(\.|$)")
PARAMS = {"algorithm": {"name": "ppo", "gamma": 0.99}, "seed": 7, "trials": 2}
BOTH = ("finished", "finished")
# What an exported policy says of itself besides what goes in and out.
ABOUT = {"algorithm": "ppo", "env": "CartPole-v1", "checkpoint": {"kind": "last", "step": 64}}


def track(warnings: list[str], resume_from: RunIds | None = None, **config) -> Tracker:
    return connect(
        TrackingConfig(**config),
        "cartpole",
        "20260101-000000-aaaa",
        PARAMS,
        [7, 8],
        description="Balance a pole.",
        resume_from=resume_from,
        warn=warnings.append,
    )


def client_of(outcome: TrackingOutcome):
    from mlflow import MlflowClient

    return MlflowClient(outcome.uri)


def write(uri: str, *work: Work, resume_from: RunIds | None = None) -> list[Answer]:
    """What the tracking process answers when all this is in its inbox; here without a process."""
    inbox: queue.SimpleQueue = queue.SimpleQueue()
    for each in (*work, Finish(BOTH, "finished")):
        inbox.put(each)
    answers: list[Answer] = []
    children = [ChildRun(f"trial_{k}", k, seed) for k, seed in enumerate((7, 8))]
    plan = Plan(uri, "cartpole", "20260101-000000-aaaa", {}, children, {}, *(resume_from or ()))
    Writer(plan, inbox, answers.append).run()
    assert isinstance(answers[-1], Finished)
    return answers


def only(kind: type, answers: list[Answer]) -> Any:
    (answer,) = [each for each in answers if isinstance(each, kind)]
    return answer


def process_of(tracker: Tracker) -> subprocess.Popen:
    return tracker.finish.__self__._process


def wait_until(condition: Callable[[], object], seconds: float = 40) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def history(outcome: TrackingOutcome, trial: int, name: str) -> list[tuple[int, float]]:
    points = client_of(outcome).get_metric_history(outcome.child_run_ids[trial], name)
    return [(point.step, point.value) for point in points]
