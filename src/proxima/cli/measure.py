"""Commands that measure: evaluate a trained policy, profile a scenario."""

from pathlib import Path
from typing import Annotated, Any

import typer

from proxima.cli.console import print_json, say, show_table
from proxima.cli.options import Debug, Json, Output, Settings, Trial, argument, path_option

INNER = ("env", "act", "search")  # the parts of a rollout


def add_commands(app: typer.Typer) -> None:
    """These commands to the command line."""
    for command in (evaluate, profile):
        app.command()(command)


def evaluate(
    run: Annotated[str, argument("RUN", "An experiment, a run, a trial or a checkpoint.")],
    episodes: Annotated[int, typer.Option(help="Episodes per policy.", min=1, max=1_000_000)] = 100,
    trial: Trial = None,
    film: Annotated[Path | None, path_option("Draw a GIF of the trained policy here.")] = None,
    data: Annotated[
        Path | None, path_option("A file of new data, instead; RUN may be a policy's directory.")
    ] = None,
    output: Output = "logs",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure a trained policy on fixed episodes, or new data."""
    from proxima.core.errors import ProximaError
    from proxima.report.numbers import brief
    from proxima.run.evaluate import evaluate_on_data, evaluate_reference

    if data is not None:
        if film is not None:
            raise ProximaError("--film: shows an episode of evaluation; leave it out beside --data")
        figures = evaluate_on_data(run, data, output, trial)
        if json:
            print_json(figures.content)
            return
        for line in figures.lines:
            say(line)
        return

    result = evaluate_reference(run, episodes, film, output, trial)
    if json:
        print_json(result)
        return
    kind = f"{result['kind']} checkpoint".strip()
    say(f"{result['checkpoint']}  ({kind}, step {result['step']:,})")
    for name, label in (("evaluation", "greedy "), ("sampled", "sampled"), ("random", "random ")):
        row = result[name]
        say(
            f"{label}  return {brief(row['return_mean']):>9} ± {brief(row['return_std'])}"
            f"  (min {brief(row['return_min'])}, max {brief(row['return_max'])})"
            f"  length {row['length_mean']:,.1f}  over {row['episodes']} episodes",
        )
    if film is not None:
        say(f"Film: {film}")


def profile(
    scenario: Annotated[str, argument("SCENARIO", "A shipped scenario's name, or a file.")],
    trials: Annotated[int | None, typer.Option(help="Independent repetitions.")] = None,
    set_: Settings = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure where a scenario's time goes: environments, acting or search, learning."""
    from proxima.run.evaluate import profile_scenario
    from proxima.scenario import load

    given = [] if trials is None else [f"trials={trials}"]
    loaded: Any = load(scenario, [*(set_ or []), *given])
    measured = profile_scenario(loaded)
    if json:
        print_json(measured)
        return
    memory = measured["memory"]
    say(
        f"{measured['scenario']} · {measured['algorithm']}, {measured['trials']} trial(s), "
        f"{measured['steps_per_update']:,} steps per update",
    )
    show_table(phase_table(measured))
    say(
        f"An evaluation of {loaded.evaluation.eval_episodes} episodes takes "
        f"{measured['evaluate']:.2f} s, compiling took {measured['compile']:.1f} s.",
    )
    say(
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
