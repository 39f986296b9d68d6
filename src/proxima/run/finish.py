"""The end of a run: closing evaluation, plots, film, exported policies, results, summary, registry."""

import math
import time
from pathlib import Path
from typing import Any

from proxima.build import describe_policy, policy_function
from proxima.core.spaces import is_discrete, zeros
from proxima.core.types import PyTree, TrainState
from proxima.domains.control import film
from proxima.domains.packing import pictures as packing
from proxima.report import comparison, plots, statistics
from proxima.report.gif import write_gif
from proxima.run.clock import note, time_summary, timed
from proxima.run.files import read_rows, write_json
from proxima.run.recording import Run
from proxima.run.report import NAME as REPORT
from proxima.run.report import write_report
from proxima.track.registry import export_policy
from proxima.track.tracker import TrackingOutcome
from proxima.train import checkpoint
from proxima.train.evaluate import describe
from proxima.train.loop import Progress
from proxima.train.memory import MEGABYTE, peak_bytes
from proxima.train.program import Evaluation, Policy, Recording

METRIC = "episode return (undiscounted)"
TRADING_METRIC = "log return on the test split"
# What results.json calls the closing evaluations, and the policy of each.
CLOSING_POLICIES: dict[str, Policy] = {
    "evaluation": "greedy",
    "sampled": "sampled",
    "random": "random",
}
# What is drawn of learning besides returns; an algorithm that does not record a metric has no panel.
PANELS = (
    ("loss/policy", "policy loss"),
    ("loss/value", "value loss"),
    ("train/entropy", "entropy (nats)"),
    ("train/approx_kl", "approximate KL (nats)"),
    ("train/clip_fraction", "clipped share"),
    ("train/explained_variance", "explained variance"),
    ("train/grad_norm", "gradient norm"),
)


def finish_run(
    run: Run,
    states: TrainState,
    progress: Progress,
    info: dict[str, Any],
    times: dict[str, Any],
) -> dict[str, Any]:
    """Everything that is written once training has ended; returns the summary."""
    began = time.perf_counter()
    trials = range(run.scenario.trials)
    states = closing_states(run, states)
    evaluations = closing_evaluations(run, states)
    references = play_baselines(run)
    results = [trial_results(run, progress, trial, evaluations, times) for trial in trials]
    compared = compare_with_baselines(run, results, evaluations["evaluation"], references)
    # On the host: to take one trial out of states that lie over devices, these would have to talk, and
    # with more of them than threads they can wait for each other for ever.
    learners = [state.learner for state in checkpoint.split_trials(states)]
    market = judge_trading(run, learners, results)
    for trial, result in zip(trials, results, strict=True):
        write_json(run.files.trial(trial) / "results.json", result)
        draw_trial(run, trial, result, learners[trial])
        export(run, trial, learners[trial])
    draw_comparison(run, results)
    summary = summarize(run, results) | market | compared
    summary["baselines"] |= {
        name: statistics.aggregate([float(each.returns.mean())])
        for name, each in references.items()
    }
    write_json(run.files.summary, summary)
    write_report(run.files)
    hand_to_tracker(run, results, summary)
    note(run.clock, "finish", time.perf_counter() - began)
    outcome = finish_tracking(run, results)
    info |= {
        "status": "finished",
        "mlflow_run_id": outcome.run_id,
        "mlflow_children": list(outcome.child_run_ids),
        "mlflow_uri": outcome.uri,
    }
    for trial, child in enumerate(outcome.child_run_ids):
        results[trial]["mlflow_run_id"] = child
    for trial, result in enumerate(results):
        result["time"] = time_summary(run.clock)
        write_json(run.files.trial(trial) / "results.json", result)
    summary |= {
        "time": time_summary(run.clock),
        "memory_peak_mb": peak_bytes() / MEGABYTE,
        "trials": results,
        "mlflow_run_id": outcome.run_id,
        "mlflow_uri": outcome.uri,
        "registered": [model._asdict() for model in outcome.registered],
        "tracking_error": outcome.error,
    }
    write_json(run.files.summary, summary)
    write_json(run.files.info, info)
    return summary


def closing_states(run: Run, states: TrainState) -> TrainState:
    """The states whose policies are judged and exported: the last ones, or each trial's best."""
    if run.scenario.evaluation.checkpoint == "last":
        return states
    lanes = checkpoint.split_trials(states)
    for trial, last in enumerate(lanes):
        best = run.files.trial(trial) / "checkpoints" / checkpoint.BEST
        if best.exists():  # a trial that broke down at its start has none
            lanes[trial], _ = checkpoint.load(best, last)
    return run.built.program.place(checkpoint.stack_trials(lanes))


def closing_evaluations(run: Run, states: TrainState) -> dict[str, Any]:
    """Greedy, sampled and random policy on the same fixed episodes."""
    episodes = run.scenario.evaluation.final_episodes
    examine = run.built.program.examine
    return {
        name: examine(states.learner, policy, episodes) for name, policy in CLOSING_POLICIES.items()
    }


def play_baselines(run: Run) -> dict[str, Evaluation]:
    """What the problem's fixed rules get on the episodes of the closing evaluation."""
    episodes = run.scenario.evaluation.final_episodes
    return {name: play(episodes) for name, play in run.built.baselines.items()}


def compare_with_baselines(
    run: Run,
    results: list[dict[str, Any]],
    evaluation: Evaluation,
    references: dict[str, Evaluation],
) -> dict[str, Any]:
    """Adds baselines and scores to every trial's results, and returns what the summary says of them."""
    for result in results:
        result["baselines"] |= {
            name: float(each.returns.mean()) for name, each in references.items()
        }
    compared = {"references": {name: describe(each, 0) for name, each in references.items()}}
    if run.built.score is None:
        return compared if references else {}
    scores = run.built.score(evaluation, references)
    for trial, result in enumerate(results):
        mine = {name: float(values[trial]) for name, values in scores.items()}
        # A score may not exist: of paths through mazes, when no maze was solved.
        result["scores"] = {
            name: value if math.isfinite(value) else None for name, value in mine.items()
        }
    return compared | {
        "scores": {name: statistics.aggregate(list(values)) for name, values in scores.items()}
    }


def judge_trading(
    run: Run, learners: list[PyTree], results: list[dict[str, Any]]
) -> dict[str, Any]:
    """Where prices are traded: adds to every trial's results, and returns what the summary says."""
    if run.built.market is None:
        return {}
    from proxima.domains.trading.judge import judge

    judged, summary = judge(run.files, run.built.market, learners)
    references = summary["references"]["splits"]["test"]
    for result, each in zip(results, judged, strict=True):
        result["trading"] = each
        result["baselines"] |= {
            name: references[name]["log_return"]
            for name in ("buy_and_hold", "momentum", "foresight", "model")
            if references[name] is not None
        }
    for alarm in summary["alarms"]:
        run.display.say(f"Too good to be true? {alarm}. Look for a leak before you believe it.")
    return {"trading": summary}


def trial_results(
    run: Run, progress: Progress, trial: int, evaluations: dict[str, Any], times: dict[str, Any]
) -> dict[str, Any]:
    """What results.json holds."""
    book = progress.books[trial]
    described = {name: describe(each, trial) for name, each in evaluations.items()}
    return {
        "scenario": run.scenario.name,
        "algorithm": run.scenario.algorithm.name,
        "run_id": run.files.run_id,
        "trial": trial,
        "seed": run.scenario.seed + trial,
        "environment_steps": book.steps,
        "updates": book.steps // run.built.program.steps_per_update,
        "episodes": book.episodes,
        **times,
        "steps_per_second": book.steps / max(times["training_seconds"], 1e-9),
        "converged": book.convergence.converged,
        "converged_at_step": book.convergence.reached_at_step
        if book.convergence.converged
        else None,
        "stopped": book.stopped,
        "nan_at_step": book.nan_at_step,
        "best_return": book.best_return,
        **described,
        "baselines": {"random": described["random"]["return_mean"]},
        "mlflow_run_id": None,
    }


def summarize(run: Run, results: list[dict[str, Any]]) -> dict[str, Any]:
    """What summary.json holds: the trials, and the interval over them."""
    healthy = [result for result in results if result["stopped"] != "nan"]
    failed = len(results) - len(healthy)

    def over_trials(name: str) -> dict[str, Any]:
        means = [result[name]["return_mean"] for result in healthy]
        return statistics.aggregate(means + [float("nan")] * failed)

    return {
        "scenario": run.scenario.name,
        "algorithm": run.scenario.algorithm.name,
        "run_id": run.files.run_id,
        "metric": METRIC if run.built.market is None else TRADING_METRIC,
        "target_reward": run.scenario.convergence.target_reward,
        "converged": sum(result["converged"] for result in results),
        "environment_steps": sum(result["environment_steps"] for result in results),
        "trials": results,
        "aggregate": over_trials("evaluation"),
        "sampled": over_trials("sampled"),
        "baselines": {"random": over_trials("random")},
        "paths": {
            "run": str(run.files.root),
            "plots": str(run.files.plots),
            "summary": str(run.files.summary),
            "report": str(run.files.root / REPORT),
        },
    }


def draw_trial(run: Run, trial: int, result: dict[str, Any], learner: PyTree) -> None:
    """A trial's plots and, where the environment can be drawn, its film."""
    directory = run.files.trial(trial)
    target = run.scenario.convergence.target_reward
    rows = read_rows(directory / "metrics.jsonl")
    path = directory / "plots" / "learning_curve.png"
    plots.learning_curve(path, rows, PANELS, target)
    if run.built.market is not None:
        return  # its runs over the prices are drawn where they are judged
    recording = run.built.program.record(learner)
    plots.reward_plot(
        directory / "plots" / "rewards.png",
        result["evaluation"],
        result["sampled"],
        result["random"],
    )
    discrete = is_discrete(run.built.action_space)
    plots.action_plot(
        directory / "plots" / "actions.png",
        recording.actions,
        recording.rewards,
        "discrete" if discrete else "continuous",
    )
    if run.scenario.evaluation.film and trial == 0:
        make_film(directory / "film.gif", run.scenario.env.name, recording)
        if packing.can_draw(run.scenario.env.name, recording.obs):
            picture = directory / "plots" / "episode.png"
            packing.end(picture, run.scenario.env.name, recording.obs, recording.actions)


def make_film(path: Path, env_name: str, recording: Recording) -> bool:
    """A GIF of the recorded episode, if it can be drawn."""
    if packing.can_draw(env_name, recording.obs):
        packing.film(path, env_name, recording.obs, recording.actions)
        return True
    if recording.frames:
        write_gif(path, recording.frames)
        return True
    if isinstance(recording.obs, dict) or not film.can_draw(env_name, recording.obs.shape[1:]):
        return False
    film.film(path, env_name, recording.obs, recording.actions, recording.rewards)
    return True


def draw_comparison(run: Run, results: list[dict[str, Any]]) -> None:
    """The plots over all trials."""
    title, target = run.scenario.name, run.scenario.convergence.target_reward
    comparison.learning_curves(
        run.files.plots / "learning_curves.png", evaluation_curves(run), title=title, target=target
    )
    comparison.final_returns(
        run.files.plots / "final_returns.png",
        [f"trial {result['trial']}" for result in results],
        [result["evaluation"]["returns"] for result in results],
        random=results[0]["random"]["returns"],
        title=title,
    )
    rows = comparison.trial_rows(results)
    comparison.trials_table(run.files.plots / "trials.png", rows, title=title)


def evaluation_curves(run: Run) -> list[tuple[Any, Any]]:
    """(steps, greedy evaluation returns) of every trial."""
    return [
        plots.series(read_rows(run.files.trial(k) / "metrics.jsonl"), "eval/return_mean")
        for k in range(run.scenario.trials)
    ]


def export(run: Run, trial: int, learner: Any) -> None:
    """The trial's policy as weights and a program that needs nothing of ours."""
    function, weights = policy_function(run.built, learner)
    export_policy(
        function,
        weights,
        zeros(run.built.observation_space),
        describe_policy(run.scenario, run.built) | {"trial": trial},
        run.files.trial(trial) / "policy",
    )


def hand_to_tracker(run: Run, results: list[dict[str, Any]], summary: dict[str, Any]) -> None:
    """Results, plots, checkpoints and policies to the tracker; converged policies to the registry."""
    tracker, files = run.tracker, run.files
    for trial, result in enumerate(results):
        directory = files.trial(trial)
        final = {
            f"final/{policy}_return": result[name]["return_mean"]
            for name, policy in CLOSING_POLICIES.items()
        }
        scores = result.get("scores", {})
        final |= {f"final/{name}": value for name, value in scores.items() if value is not None}
        if "trading" in result:
            final |= trading_metrics(result["trading"])
        tracker.log_metrics(trial, result["environment_steps"], final)
        for name in ("plots", "policy", "rollouts", "results.json", "film.gif"):
            if (directory / name).exists():
                tracker.log_artifacts(trial, directory / name, name if "." not in name else None)
        for name in ("best", "last"):
            if (directory / "checkpoints" / name).exists():
                path = (directory / "checkpoints" / name).resolve()
                tracker.log_artifacts(trial, path, f"checkpoints/{name}")
    best = best_converged(results)
    if best is not None and run.scenario.tracking.register:
        greedy = {"final/greedy_return": results[best]["evaluation"]["return_mean"]}
        tracker.register(best, files.trial(best) / "policy", greedy)
    tracker.log_artifacts(None, files.plots, "plots")
    tracker.log_artifacts(None, files.root / REPORT, None)
    tracker.log_artifacts(None, files.scenario, None)
    tracker.log_artifacts(None, files.summary, None)
    aggregate = {
        f"final/{key}": value for key, value in summary["aggregate"].items() if value is not None
    }
    tracker.log_parent_metrics(max(r["environment_steps"] for r in results), aggregate)


def finish_tracking(run: Run, results: list[dict[str, Any]]) -> TrackingOutcome:
    """Where the run's time went to the tracker, as the last word; waits until all is written."""
    spent = {f"time/run_{part}": seconds for part, seconds in run.clock.seconds.items()}
    run.tracker.log_parent_metrics(max(r["environment_steps"] for r in results), spent)
    with timed(run.clock, "tracking"):
        return run.tracker.finish(["finished"] * len(results), "finished")


def trading_metrics(judged: dict[str, Any]) -> dict[str, float]:
    """Every number of a trial on every split, named test/sharpe and the like."""
    return {
        f"{split}/{name}": value
        for split, each in judged["splits"].items()
        for name, value in (
            each["agent"] | {f"score_{k}": v for k, v in each["score"].items()}
        ).items()
        if value is not None
    }


def best_converged(results: list[dict[str, Any]]) -> int | None:
    """The converged trial with the best greedy return, then the best sampled one; None if none has."""
    converged = [result for result in results if result["converged"]]
    if not converged:
        return None

    def rank(result: dict[str, Any]) -> tuple[float, float]:
        return result["evaluation"]["return_mean"], result["sampled"]["return_mean"]

    return max(converged, key=rank)["trial"]
