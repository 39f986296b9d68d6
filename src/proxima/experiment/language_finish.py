"""The end of a language run: samples and pages, the policy's folders, results, summary."""

from typing import Any

from proxima.domains.language.alarms import alarms, converged
from proxima.domains.language.hf import save_model
from proxima.domains.language.model import Part, merged_decoder
from proxima.domains.language.peft import save_adapters
from proxima.experiment.clock import time_summary, timed
from proxima.experiment.files import read_rows, write_json
from proxima.experiment.language_parts import Material, PPOParts
from proxima.experiment.stage import LanguageRun, Place, finish_stage
from proxima.report import language, statistics
from proxima.report.samples import SamplesData, gains, write_samples_page
from proxima.scenario import to_mapping
from proxima.scenario.language import stages_of
from proxima.train.memory import MEGABYTE, peak_bytes

PAGE, TABLE = "samples.html", "samples.json"
# The figures that are summed up over trials: after training, and what training changed.
FIGURES = ("reward", "judge", "kl", "eos_rate", "entropy", "length", "distinct_1", "distinct_2")


def finish_ppo(place: Place, material: Material, parts: PPOParts, policy: Part) -> None:
    """The policy's folders, the samples before and after, plots, and the stage's results."""
    trial, run = place.directory.parent, place.run
    rows = read_rows(place.metrics)
    history = [row for row in rows if "eval/reward" in row]
    config = run.scenario.evaluation
    sounded = [alarm._asdict() for alarm in alarms(history, config.alarms)]
    before, after = parts.evaluator.reference(), parts.evaluator.measure(policy)
    samples = parts.evaluator.samples(policy, parts.learnt(policy))
    write_json(trial / TABLE, samples)
    write_samples_page(
        trial / PAGE,
        SamplesData(
            title=f"{run.scenario.name}: what changed",
            about=(
                run.files.run_id,
                f"trial {place.trial}",
                f"{history[-1]['step']} updates",
                f"{config.prompts} held-out prompts",
            ),
            samples=samples,
            metrics=rows,
            before=before.by_prompt(),
            after=after.by_prompt(),
            alarms=sounded,
            kl_budget=config.alarms.kl_budget,
        ),
    )
    began = {each["kind"]: each["step"] for each in sounded}
    budget = config.alarms.kl_budget
    language.performance(place.directory / "plots" / "performance.png", rows, began, budget)
    _save_policy(place, material, parts, policy)
    for name in (PAGE, TABLE):
        run.tracker.log_artifacts(place.child, trial / name, None)
    finish_stage(
        place,
        {
            "alarms": sounded,
            "converged": converged(history, config),
            "gains": gains(before.by_prompt(), after.by_prompt()),
        },
    )


def _save_policy(place: Place, material: Material, parts: PPOParts, policy: Part) -> None:
    trial = place.directory.parent
    save_model(merged_decoder(parts.base, policy), trial / "model", material.folder)
    material.tokenizer.save(trial / "model")
    lora = place.run.scenario.lora
    if lora is not None and policy.adapters is not None:
        base = material.folder if material.folder is not None else trial / "reference"
        save_adapters(policy.adapters, lora, trial / "adapter", base)


def finish_trial(
    run: LanguageRun, trial: int, seed: int, stages: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """What a trial's results.json holds."""
    last = list(stages.values())[-1]
    results = {
        "scenario": run.scenario.name,
        "algorithm": "ppo" if "ppo" in stages else list(stages)[-1],
        "run_id": run.files.run_id,
        "trial": trial,
        "seed": seed,
        "stopped": last["stopped"],
        "stages": stages,
        "mlflow_run_id": None,
    }
    write_json(run.files.trial(trial) / "results.json", results)
    return results


def finish_run(run: LanguageRun, results: list[dict[str, Any]]) -> dict[str, Any]:
    """Plots of the stages, the summary over trials, and the tracker's last word."""
    files, scenario = run.files, run.scenario
    stages = stages_of(scenario)
    with timed(run.clock, "finish"):
        for result in results:
            for stage in stages:
                place = Place(run, result["trial"], stage)
                title = f"{scenario.name}, {stage.replace('_', ' ')}"
                picture = place.directory / "plots" / f"{stage}.png"
                language.stage(picture, read_rows(place.metrics), title)
                run.tracker.log_artifacts(place.child, picture, "plots")
        summary = summarize(run, results)
        write_json(files.summary, summary)
    run.tracker.log_artifacts(None, files.scenario, None)
    run.tracker.log_artifacts(None, files.summary, None)
    run.tracker.log_parent_metrics(0, _flat(summary["figures"]))
    with timed(run.clock, "tracking"):
        outcome = run.tracker.finish(["finished"] * len(results) * len(stages), "finished")
    for number, child in enumerate(outcome.child_run_ids):
        if (number + 1) % len(stages) == 0:  # a trial's last stage speaks for it
            results[number // len(stages)]["mlflow_run_id"] = child
    for result in results:
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
    run.info |= {
        "status": "finished",
        "mlflow_run_id": outcome.run_id,
        "mlflow_children": list(outcome.child_run_ids),
        "mlflow_uri": outcome.uri,
        "time": dict(run.clock.seconds),
    }
    write_json(files.info, run.info)
    run.display.close()
    return summary


def summarize(run: LanguageRun, results: list[dict[str, Any]]) -> dict[str, Any]:
    """What summary.json holds: figures over trials, before and after, with intervals."""
    scenario, files = run.scenario, run.files

    def over_trials(stage: str, when: str, name: str) -> dict[str, Any]:
        return statistics.aggregate([each["stages"][stage][when][name] for each in results])

    figures: dict[str, dict[str, Any]] = {}
    for stage in stages_of(scenario):
        for name in results[0]["stages"][stage]["last"]:
            if not name.endswith("_error"):
                figures[f"{stage}/{name}"] = {
                    "before": over_trials(stage, "first", name),
                    "after": over_trials(stage, "last", name),
                }
    trial = files.trial(0)
    return {
        "scenario": scenario.name,
        "domain": "language",
        "algorithm": results[0]["algorithm"],
        "run_id": files.run_id,
        "settings": to_mapping(scenario),
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
            "report": str(trial / PAGE),
            "model": str(trial / ("model" if scenario.ppo is not None else "reference")),
        },
    }


def _flat(figures: dict[str, dict[str, Any]]) -> dict[str, float]:
    """The figures by one name each, those that exist."""
    named = {
        f"final/{name}_{when}": each[when]["iqm"]
        for name, each in figures.items()
        for when in ("before", "after")
    }
    return {name: value for name, value in named.items() if value is not None}
