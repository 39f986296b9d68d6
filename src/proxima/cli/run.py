"""Commands that run something: experiment, resume, evaluate."""

import json as json_module
from pathlib import Path
from typing import Any

from rich.console import Console

from proxima.cli.terminal import run_console
from proxima.core.errors import ProximaError


def run_experiment(
    scenario: str | None,
    config: Path | None,
    flags: dict[str, Any],
    settings: list[str],
    generate_data: bool,
    json: bool,
) -> None:
    """The `experiment` command."""
    named = config or scenario
    if named is None or (scenario and config):
        raise ProximaError(
            "name one scenario: --scenario NAME (proxima scenarios lists them) or --config FILE"
        )
    from proxima.scenario import load

    given = [
        f"{key}={json_module.dumps(value)}" for key, value in flags.items() if value is not None
    ]
    loaded = load(named, [*settings, *given])

    from proxima.cli.console import live_display, print_summary
    from proxima.run.start import run_multiple_experiments

    console = run_console(stderr=json)
    if generate_data:
        from proxima.run.data import generate_for

        written = generate_for(loaded)
        what = "Prices" if written.parent.name == "synthetic" else "Texts"
        console.print(f"{what} written to {written}", soft_wrap=True)
    display = live_display(console, loaded)
    try:
        summary = run_multiple_experiments(loaded, display=display)
    finally:
        display.close()
    _show(console, summary, json, print_summary)


def run_resume(reference: str, output: str, json: bool) -> None:
    """The `resume` command."""
    from proxima.cli.console import live_display, print_summary
    from proxima.run.files import find_run
    from proxima.run.start import load_scenario, resume_experiment

    files = find_run(reference, output)
    console = run_console(stderr=json)
    display = live_display(console, load_scenario(files))
    try:
        summary = resume_experiment(str(files.root), display=display)
    finally:
        display.close()
    _show(console, summary, json, print_summary)


def run_evaluation(
    reference: str, episodes: int, film: Path | None, output: str, json: bool
) -> None:
    """The `evaluate` command."""
    from proxima.run.evaluation import evaluate_reference

    console = run_console(stderr=json)
    result = evaluate_reference(reference, episodes, film, output)
    if json:
        print(json_module.dumps(result, indent=2))
        return
    console.print(f"{result['checkpoint']}  (step {result['step']:,})", soft_wrap=True)
    for name, label in (("evaluation", "greedy "), ("sampled", "sampled"), ("random", "random ")):
        row = result[name]
        console.print(
            f"{label}  return {row['return_mean']:9.2f} ± {row['return_std']:.2f}"
            f"  (min {row['return_min']:.1f}, max {row['return_max']:.1f})"
            f"  length {row['length_mean']:.1f}  over {row['episodes']} episodes",
            soft_wrap=True,
        )
    if film is not None:
        console.print(f"Film: {film}", soft_wrap=True)


def _show(console: Console, summary: dict[str, Any], json: bool, print_summary: Any) -> None:
    if json:
        run_console().file.write(json_module.dumps(summary, indent=2) + "\n")
    elif summary.get("domain") == "language":
        from proxima.domains.language.summary import print_language_summary

        print_language_summary(console, summary)
    else:
        print_summary(console, summary)
    if all(result["stopped"] == "nan" for result in summary["trials"]):
        raise ProximaError(
            "no trial came through: the loss of every one stopped being a number; their last good "
            f"states are in {summary['paths']['run']}; try a lower algorithm.learning_rate"
        )
