"""Which policy is registered, and what is said of it."""

import pytest
from run_directories import stage_result, summary_of, trial_result

from proxima.run.files import create_run
from proxima.run.publish import chosen_trial, introduced, validation_score
from proxima.run.results import described

ABOUT = {
    "algorithm": "ppo",
    "env": "CartPole-v1",
    "policy": "the greedy action of the trained net",
    "checkpoint": {"kind": "best", "step": 2048},
}


@pytest.fixture
def summary(tmp_path):
    """Three trials and one that broke down: of two that reached the target one has the better end."""
    files = create_run(str(tmp_path / "logs"), "cartpole", 4)
    trials = [
        trial_result(
            trial,
            converged=trial in (0, 1),
            stopped="nan" if trial == 3 else "budget",
            best_return=best,
            stages={"train": stage_result(trial, last={"return_mean": last})},
            evaluation=described([closing], [1]),
        )
        for trial, (best, last, closing) in enumerate(
            [(5.0, 2.0, 9.0), (6.0, 4.0, 8.0), (7.0, 3.0, 1.0), (9.0, 9.0, 9.0)]
        )
    ]
    return lambda target: summary_of(files, trials, target_reward=target, converged=2)


def test_a_trial_is_scored_in_training_by_the_checkpoint_that_is_exported(summary):
    trial = summary(None).trials[2]
    assert validation_score(trial, "best", "return_mean") == 7.0
    assert validation_score(trial, "last", "return_mean") == 3.0
    assert validation_score(trial, "last", "other") is None


def test_without_a_target_the_best_in_training_is_chosen_and_marked_as_such(summary):
    whole = summary(None)
    best = chosen_trial(whole, {0: 5.0, 1: 6.0, 2: 7.0, 3: 9.0})
    assert best.trial == 2, "not the one with the best end, and none that broke down"
    assert chosen_trial(whole, {0: None, 3: 9.0}) is None
    description, tags = introduced(whole, best, ABOUT, 7.0)
    assert (
        "no target was set; of 4 the best in evaluations in training (mean return 7)" in description
    )
    assert "best checkpoint, step 2,048" in description and ABOUT["policy"] in description
    assert tags["proxima.selected_by"] == "validation" and tags["proxima.trial"] == "2"
    assert tags["final/greedy_return"] == "1.0"


def test_with_a_target_only_what_reached_it_is_registered_by_its_end(summary):
    whole = summary(195.0)
    best = chosen_trial(whole, {0: 5.0, 1: 6.0, 2: 7.0})
    assert best.trial == 0
    description, tags = introduced(whole, best, ABOUT, 5.0)
    assert "reached the target of 195, the best of 2 that did" in description
    assert tags["proxima.selected_by"] == "target"
