"""Commands that run something: experiment, resume, evaluate, profile."""

import json as json_module
from pathlib import Path
from typing import Annotated, Any

import typer

from proxima.cli.options import Debug, Json, Output, Settings, expand

INNER = ("env", "act", "search")  # the parts of a rollout


def add_commands(app: typer.Typer) -> None:
    """These commands to the command line."""
    for command in (experiment, resume, evaluate, profile):
        app.command()(command)


def experiment(
    scenario: Annotated[str | None, typer.Option(help="A shipped scenario's name.")] = None,
    config: Annotated[
        Path | None, typer.Option(help="A scenario file of your own.", callback=expand)
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Independent repetitions.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the first trial.")] = None,
    max_steps: Annotated[int | None, typer.Option(help="Environment steps per trial.")] = None,
    set_: Settings = None,
    generate_data: Annotated[
        bool, typer.Option("--generate-data", help="Write the scenario's data first.")
    ] = False,
    no_mlflow: Annotated[bool, typer.Option("--no-mlflow", help="Local files only.")] = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Train, evaluate, track and compare all trials of a scenario."""
    from proxima.core.errors import ProximaError
    from proxima.scenario import load

    named = config or scenario
    if named is None or (scenario and config):
        raise ProximaError(
            "name one scenario: --scenario NAME (proxima scenarios lists them) or --config FILE"
        )
    flags = {
        "trials": trials,
        "seed": seed,
        "training.max_steps": max_steps,
        "tracking.enabled": False if no_mlflow else None,
    }
    given = [
        f"{key}={json_module.dumps(value)}" for key, value in flags.items() if value is not None
    ]
    loaded = load(named, [*(set_ or []), *given])

    from proxima.run.screen import live_display
    from proxima.run.start import run_multiple_experiments
    from proxima.terminal import run_console

    console = run_console(stderr=json)
    if generate_data:
        _generate(console, loaded)
    display = live_display(console, loaded)
    try:
        summary = run_multiple_experiments(loaded, display=display)
    finally:
        display.close()
    _show(console, summary, json)


def resume(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="An experiment (its latest run) or a run id.", callback=expand
        ),
    ],
    set_: Settings = None,
    output: Output = "logs",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Go on with a run that was stopped or killed, exactly where it was saved."""
    from proxima.run.files import find_run
    from proxima.run.read import load_scenario
    from proxima.run.screen import live_display
    from proxima.run.start import resume_experiment
    from proxima.terminal import run_console

    files = find_run(run, output)
    console = run_console(stderr=json)
    display = live_display(console, load_scenario(files))
    try:
        summary = resume_experiment(str(files.root), changes=set_ or [], display=display)
    finally:
        display.close()
    _show(console, summary, json)


def evaluate(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="An experiment, a run, a trial or a checkpoint.", callback=expand
        ),
    ],
    episodes: Annotated[int, typer.Option(help="Episodes per policy.", min=1)] = 100,
    film: Annotated[
        Path | None, typer.Option(help="Draw a GIF of the trained policy here.", callback=expand)
    ] = None,
    output: Output = "logs",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure a trained policy on the fixed evaluation episodes."""
    from proxima.cli.console import write
    from proxima.run.evaluate import evaluate_reference
    from proxima.terminal import plain_console

    result = evaluate_reference(run, episodes, film, output)
    if json:
        print(json_module.dumps(result, indent=2))
        return
    console = plain_console()
    write(console, f"{result['checkpoint']}  (step {result['step']:,})")
    for name, label in (("evaluation", "greedy "), ("sampled", "sampled"), ("random", "random ")):
        row = result[name]
        write(
            console,
            f"{label}  return {row['return_mean']:9.2f} ± {row['return_std']:.2f}"
            f"  (min {row['return_min']:.1f}, max {row['return_max']:.1f})"
            f"  length {row['length_mean']:.1f}  over {row['episodes']} episodes",
        )
    if film is not None:
        write(console, f"Film: {film}")


def profile(
    scenario: Annotated[
        str,
        typer.Argument(
            metavar="SCENARIO", help="A shipped scenario's name, or a file.", callback=expand
        ),
    ],
    trials: Annotated[int | None, typer.Option(help="Independent repetitions.")] = None,
    set_: Settings = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure where a scenario's time goes: environments, acting or search, learning."""
    from proxima.cli.console import write
    from proxima.run.evaluate import profile_scenario
    from proxima.scenario import load
    from proxima.terminal import plain_console

    given = [] if trials is None else [f"trials={trials}"]
    loaded: Any = load(scenario, [*(set_ or []), *given])
    measured = profile_scenario(loaded)
    if json:
        print(json_module.dumps(measured, indent=2))
        return
    console, memory = plain_console(), measured["memory"]
    write(
        console,
        f"{measured['scenario']} · {measured['algorithm']}, {measured['trials']} trial(s), "
        f"{measured['steps_per_update']:,} steps per update",
    )
    console.print(phase_table(measured))
    write(
        console,
        f"An evaluation of {loaded.evaluation.eval_episodes} episodes takes "
        f"{measured['evaluate']:.2f} s, compiling took {measured['compile']:.1f} s.",
    )
    write(
        console,
        f"Memory: {memory['memory/rss_mb']:,.0f} MB, at most {memory['memory/peak_mb']:,.0f} MB; "
        f"arrays on devices {memory['memory/arrays_mb']:,.1f} MB.",
    )


def phase_table(measured: dict[str, Any]) -> Any:
    """A row per part of an update; shares are of rollout and learning together."""
    from rich.table import Table

    phases, steps = measured["phases"], measured["steps_per_update"]
    whole = phases["rollout"] + phases["learn"]
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("phase", no_wrap=True)
    for name in ("ms per update", "share", "steps/s"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, seconds in phases.items():
        table.add_row(
            f"  {name}" if name in INNER else name,
            f"{seconds * 1e3:,.3f}",
            "" if name == "update" else f"{100 * seconds / whole:.0f} %",
            f"{steps / seconds:,.0f}" if seconds > 0 else "–",
        )
    return table


def _generate(console: Any, scenario: Any) -> None:
    from proxima.cli.console import write
    from proxima.cli.data import generate_for

    what, path = generate_for(scenario)
    write(console, f"{what} written to {path}")


def _show(console: Any, summary: Any, json: bool) -> None:
    """The results of a run; an error where no trial came through."""
    from proxima.cli.console import print_summary
    from proxima.core.errors import ProximaError
    from proxima.run.results import to_json
    from proxima.terminal import run_console

    if json:
        run_console().file.write(json_module.dumps(to_json(summary), indent=2) + "\n")
    else:
        print_summary(console, summary)
    if all(trial.stopped == "nan" for trial in summary.trials):
        raise ProximaError(
            "no trial came through: the loss of every one stopped being a number; their last good "
            f"states are in {summary.paths['run']}; try a lower learning_rate"
        )
