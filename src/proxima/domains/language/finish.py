"""The end of a language run: samples and pages, the policy's folders, results, summary."""

from pathlib import Path
from typing import Any

import numpy as np

from proxima.core.errors import ProximaError
from proxima.core.types import PyTree
from proxima.domains.language import plots as language
from proxima.domains.language.alarms import alarms, converged
from proxima.domains.language.evaluate import Measured
from proxima.domains.language.hf import save_model
from proxima.domains.language.model import Part, merged_decoder
from proxima.domains.language.parts import REFERENCE_FOLDER, Material, PPOParts
from proxima.domains.language.peft import save_adapters
from proxima.domains.language.samples_page import SamplesData, gains, write_samples_page
from proxima.domains.language.scenario import stages_of
from proxima.report import statistics
from proxima.run.clock import time_summary, timed
from proxima.run.files import RunFiles, read_json, read_rows, write_json
from proxima.run.report import NAME as REPORT
from proxima.run.report import write_report
from proxima.run.stage import LanguageRun, Place, finish_stage
from proxima.track.tracker import Status
from proxima.train.evaluate import describe
from proxima.train.memory import MEGABYTE, peak_bytes
from proxima.train.program import Evaluation

PAGE, TABLE, MODEL, ADAPTER = "samples.html", "samples.json", "model", "adapter"
METRIC = "reward on held-out prompts"


def finish_ppo(place: Place, material: Material, parts: PPOParts, state: PyTree) -> None:
    """The policy's folders, the samples before and after, plots, and the stage's results."""
    trial, run = place.directory.parent, place.run
    rows = read_rows(place.metrics)
    history = [row for row in rows if "eval/reward" in row]
    config = run.scenario.evaluation
    sounded = [alarm._asdict() for alarm in alarms(history, config.alarms)]
    before, after = parts.evaluator.reference(), parts.evaluator.measure(state.policy)
    samples = parts.evaluator.samples(state.policy, parts.learnt(state), after)
    write_json(trial / TABLE, samples)
    began = {each["kind"]: each["step"] for each in sounded}
    budget = config.alarms.kl_budget
    language.performance(place.directory / "plots" / "performance.png", rows, began, budget)
    _save_policy(place, material, parts, state.policy)
    finish_stage(
        place,
        {
            "alarms": sounded,
            "converged": converged(history, config),
            "gains": gains(before.by_prompt(), after.by_prompt()),
            "by_prompt": {"before": before.by_prompt(), "after": after.by_prompt()},
            "reference": _described(before),
            "evaluation": _described(after),
        },
    )
    write_page(run.files, place.trial)
    for name in (PAGE, TABLE):
        run.tracker.log_artifacts(place.child, trial / name, None)


def write_page(files: RunFiles, trial: int, out: Path | None = None) -> Path:
    """The page of samples of a trial whose PPO has ended, from its files alone."""
    directory = files.trial(trial)
    if not (directory / "ppo" / "results.json").exists():
        raise ProximaError(
            f"{directory}: its PPO has not ended, so there are no samples to show yet"
        )
    from proxima.run.start import load_scenario

    results, samples = read_json(directory / "ppo" / "results.json"), read_json(directory / TABLE)
    scenario: Any = load_scenario(files)
    path = directory / PAGE if out is None else out
    write_samples_page(
        path,
        SamplesData(
            title=f"{scenario.name}: before and after",
            about=(
                files.run_id,
                f"trial {trial}",
                f"{results['updates']} updates",
                f"{results['evaluation']['episodes']} held-out prompts",
            ),
            samples=samples,
            metrics=read_rows(directory / "ppo" / "metrics.jsonl"),
            before=results["by_prompt"]["before"],
            after=results["by_prompt"]["after"],
            alarms=results["alarms"],
            kl_budget=scenario.evaluation.alarms.kl_budget,
        ),
    )
    return path


def _described(found: Measured) -> dict[str, Any]:
    """Rewards of the held-out prompts as results.json holds evaluations."""
    return describe(Evaluation(found.reward[None], found.length[None]), 0)


def _save_policy(place: Place, material: Material, parts: PPOParts, policy: Part) -> None:
    trial = place.directory.parent
    save_model(merged_decoder(parts.base, policy), trial / MODEL, material.folder)
    material.tokenizer.save(trial / MODEL)
    lora = place.run.scenario.lora
    if lora is not None and policy.adapters is not None:
        tuned = place.run.scenario.sft is not None
        base = trial / REFERENCE_FOLDER if tuned or material.folder is None else material.folder
        save_adapters(policy.adapters, lora, trial / ADAPTER, base)


def finish_trial(
    run: LanguageRun, trial: int, seed: int, stages: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """What a trial's results.json holds; of PPO what every algorithm's has, a token being a step."""
    results = {
        "scenario": run.scenario.name,
        "algorithm": list(stages)[-1],
        "run_id": run.files.run_id,
        "trial": trial,
        "seed": seed,
        "stopped": list(stages.values())[-1]["stopped"],
        "training_seconds": sum(each["training_seconds"] for each in stages.values()),
        "stages": {name: _without_prompts(each) for name, each in stages.items()},
        "mlflow_run_id": None,
    }
    if "ppo" in stages:
        ppo, config = stages["ppo"], run.scenario.ppo
        assert config is not None
        rows = read_rows(Place(run, trial, "ppo").metrics)
        tokens = round(config.batch_size * sum(row.get("train/length", 0.0) for row in rows))
        results |= {
            "environment_steps": tokens,
            "updates": ppo["updates"],
            "episodes": ppo["updates"] * config.batch_size,
            "steps_per_second": tokens / max(ppo["training_seconds"], 1e-9),
            "converged": ppo["converged"],
            "converged_at_step": None,
            "evaluation": ppo["evaluation"],
            "reference": ppo["reference"],
            "baselines": {"reference": ppo["reference"]["return_mean"]},
        }
    write_json(run.files.trial(trial) / "results.json", results)
    return results


def _without_prompts(stage: dict[str, Any]) -> dict[str, Any]:
    """A stage's results without what stands in them prompt by prompt."""
    left_out = ("by_prompt", "evaluation", "reference")
    return {key: value for key, value in stage.items() if key not in left_out}


def finish_run(run: LanguageRun, results: list[dict[str, Any]]) -> dict[str, Any]:
    """Plots of the stages, the summary over trials, and the tracker's last word."""
    files, scenario = run.files, run.scenario
    stages = stages_of(scenario)
    with timed(run.clock, "finish"):
        for result in results:
            for stage in stages:
                _draw_stage(Place(run, result["trial"], stage))
        summary = summarize(run, results)
        write_json(files.summary, summary)
        write_report(files)
    for path in (files.scenario, files.summary, files.root / REPORT):
        run.tracker.log_artifacts(None, path, None)
    run.tracker.log_parent_metrics(0, _flat(summary["figures"]))
    with timed(run.clock, "tracking"):
        ends: list[Status] = ["finished" for _ in results for _ in stages]
        outcome = run.tracker.finish(ends, "finished")
    for result in results:
        last = len(stages) * (result["trial"] + 1) - 1  # its last stage speaks for it
        if outcome.child_run_ids:
            result["mlflow_run_id"] = outcome.child_run_ids[last]
        write_json(files.trial(result["trial"]) / "results.json", result)
    summary |= {
        "trials": results,
        "time": time_summary(run.clock),
        "memory_peak_mb": peak_bytes() / MEGABYTE,
        "mlflow_run_id": outcome.run_id,
        "mlflow_uri": outcome.uri,
        "tracking_error": outcome.error,
    }
    write_json(files.summary, summary)
    run.info.update(
        status="finished",
        mlflow_run_id=outcome.run_id,
        mlflow_children=list(outcome.child_run_ids),
        mlflow_uri=outcome.uri,
        time=dict(run.clock.seconds),
    )
    write_json(files.info, run.info)
    write_report(files)  # again: now it knows its tracked run and where the time went
    run.display.close()
    return summary


def _draw_stage(place: Place) -> None:
    picture = place.directory / "plots" / f"{place.stage}.png"
    title = f"{place.run.scenario.name}, {place.stage.replace('_', ' ')}"
    language.stage(picture, read_rows(place.metrics), title)
    place.run.tracker.log_artifacts(place.child, picture, "plots")


def summarize(run: LanguageRun, results: list[dict[str, Any]]) -> dict[str, Any]:
    """What summary.json holds: figures over trials, before and after, with intervals."""
    scenario, files = run.scenario, run.files
    stages = stages_of(scenario)
    figures = {
        f"{stage}/{name}": {
            "before": _over_trials(results, stage, "first", name),
            "after": _over_trials(results, stage, "last", name),
        }
        for stage in stages
        for name in results[0]["stages"][stage]["last"]
        if not name.endswith("_error")
    }
    summary = {
        "scenario": scenario.name,
        "domain": "language",
        "algorithm": stages[-1],
        "run_id": files.run_id,
        "metric": METRIC,
        "trials": results,
        "figures": figures,
        "alarms": [
            alarm | {"trial": each["trial"]}
            for each in results
            for alarm in each["stages"].get("ppo", {}).get("alarms", [])
        ],
        "paths": {
            "run": str(files.root),
            "summary": str(files.summary),
            "report": str(files.root / REPORT),
            "samples": str(files.trial(0) / PAGE),
            "model": str(files.trial(0) / (MODEL if scenario.ppo else REFERENCE_FOLDER)),
        },
    }
    if scenario.ppo is not None:
        summary |= {
            "aggregate": figures["ppo/reward"]["after"],
            "baselines": {"reference": figures["ppo/reward"]["before"]},
            "converged": sum(result["converged"] for result in results),
        }
    return summary


def _over_trials(results: list[dict[str, Any]], stage: str, when: str, name: str) -> dict[str, Any]:
    values = [result["stages"][stage][when].get(name) for result in results]
    return statistics.aggregate([np.nan if value is None else value for value in values])


def _flat(figures: dict[str, dict[str, Any]]) -> dict[str, float]:
    """The figures by one name each, those that exist."""
    named = {
        f"final/{name}_{when}": each[when]["iqm"]
        for name, each in figures.items()
        for when in ("before", "after")
    }
    return {name: value for name, value in named.items() if value is not None}
