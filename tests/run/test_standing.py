"""What progress.json says of a run is what its checkpoint says, and in the end its summary."""

import json
from pathlib import Path

import pytest
from tiny import SIZES, SMALL

from proxima import load, resume_experiment, run_multiple_experiments
from proxima.run.files import keep_alarms_until
from proxima.run.standing import NAME, Standing, StandingFile, best_of, read_standing

HERE = Standing("", 1, 1, "steps", 10, 0.5, 1.0, "eval/return_mean", 3.0)


def test_the_best_is_over_all_trials_and_a_resumed_run_forgets_what_it_dropped(workdir):
    scenario = load("cartpole", [*SMALL, *SIZES["ppo"], "trials=2", "checkpoint.frequency=3"])

    def stop(view):
        if view["step"] >= 8 * 64:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_multiple_experiments(scenario, callback=stop)
    root = Path("logs/cartpole/latest").resolve()
    stopped = read_standing(root)
    assert 0 < stopped.fraction < 1 and stopped.steps == 6 * 64

    # as a run leaves it that is killed after it has noted more than it saved
    ahead = stopped._replace(best=9999.0, steps=7 * 64)
    (root / NAME).write_text(json.dumps(ahead._asdict()))
    seen = []
    resume_experiment(root.name, callback=lambda view: seen.append(read_standing(root)))
    assert seen[0].best != 9999.0
    summary = json.loads((root / "summary.json").read_text())
    last = read_standing(root)
    assert last.best == max(trial["best_return"] for trial in summary["trials"])
    assert (last.fraction, last.figure, last.stages) == (1.0, "eval/return_mean", 1)


def test_less_may_be_better_and_no_evaluation_is_no_best():
    assert best_of([-2.0, None, -1.5], -1.0) == 1.5
    assert best_of([2.0, 3.0], 1.0) == 3.0
    assert best_of([None], 1.0) is None


def test_it_is_written_at_checkpoints_and_else_not_often(tmp_path):
    file = StandingFile(tmp_path)
    file.write(lambda: HERE, at_once=False)
    file.write(lambda: HERE._replace(steps=11), at_once=False)
    assert read_standing(tmp_path) == HERE
    file.write(lambda: HERE._replace(steps=12), at_once=True)
    assert read_standing(tmp_path).steps == 12


@pytest.mark.parametrize("content", ["", "{", "[]", "3", '{"steps": 3}', '{"other": 1}'])
def test_half_a_file_or_anothers_is_none(tmp_path, content):
    assert read_standing(tmp_path) is None
    (tmp_path / NAME).write_text(content)
    assert read_standing(tmp_path) is None


def test_alarms_after_the_checkpoint_are_dropped(tmp_path):
    path = tmp_path / "alarms.jsonl"
    keep_alarms_until(path, 3)
    assert not path.exists()
    lines = [json.dumps({"step": step, "trial": 0, "text": "x"}) + "\n" for step in (1, 3, 4)]
    path.write_text("".join(lines) + '{"step": 2, "tri')
    keep_alarms_until(path, 3)
    assert path.read_text() == "".join(lines[:2])
