"""Commands that train: experiment, resume."""

import json as json_module
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from proxima.cli.options import (
    Cluster,
    Coordinator,
    Debug,
    Hosts,
    Json,
    NoMLflow,
    Output,
    Processes,
    ProcessId,
    Restarts,
    RunId,
    ScenarioFile,
    ScenarioName,
    ScenarioOption,
    Settings,
    argument,
    as_settings,
    run_names,
)


def add_commands(app: typer.Typer) -> None:
    """These commands to the command line."""
    for command in (experiment, resume):
        app.command()(command)


def experiment(
    name: ScenarioName = None,
    scenario: ScenarioOption = None,
    config: ScenarioFile = None,
    trials: Annotated[int | None, typer.Option(help="Independent repetitions.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the first trial.")] = None,
    max_steps: Annotated[int | None, typer.Option(help="Environment steps per trial.")] = None,
    set_: Settings = None,
    generate_data: Annotated[
        bool, typer.Option("--generate-data", help="Write the scenario's data first.")
    ] = False,
    cluster: Cluster = None,
    hosts: Hosts = None,
    restarts: Restarts = 3,
    no_mlflow: NoMLflow = False,
    run_id: RunId = None,
    process_id: ProcessId = None,
    processes: Processes = None,
    coordinator: Coordinator = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Train all trials of a scenario, evaluate and track them."""
    from proxima.core.errors import ProximaError
    from proxima.run.gang import follow_gang, gang_of, leading
    from proxima.scenario import load

    gang = gang_of(process_id, processes, coordinator)
    if gang is not None and gang.process > 0:
        return follow_gang(gang)  # it hears from process 0 what to train
    given = [each for each in (name, scenario, config) if each]
    if len(given) != 1:
        raise ProximaError(
            "name one scenario: proxima experiment NAME (proxima scenarios lists them) or --config FILE"
        )
    flags = {
        "trials": trials,
        "seed": seed,
        "training.max_steps": max_steps,
        "tracking.enabled": False if no_mlflow else None,
    }
    settings = [*(set_ or []), *as_settings(flags)]
    loaded = load(given[0], settings)
    if hosts is not None:
        from proxima.run.files import new_run_id

        words = ["experiment", str(given[0]), *_as_words(settings, json, debug)]
        words += [
            *(["--generate-data"] if generate_data else []),
            "--run-id",
            run_id or new_run_id(),
        ]
        return _over_hosts(cluster, hosts, restarts, gang, words)
    if cluster is not None:
        from proxima.cluster.blocks import in_blocks

        loaded = in_blocks(loaded)

    from proxima.cli.console import write
    from proxima.cli.data import generate_for, origin_lines
    from proxima.run.files import begun_run
    from proxima.run.resume import resume_experiment
    from proxima.run.screen import live_display
    from proxima.run.start import run_multiple_experiments
    from proxima.terminal import keep_output, run_console

    console = run_console(stderr=json)
    if generate_data:
        what, path = generate_for(loaded)
        write(console, f"{what} written to {path}")
        for line in origin_lines(path):
            write(console, line)
    if json and gang is not None:
        keep_output()  # gloo says there whom it is connected with
    begun = begun_run(loaded.output_directory, loaded.name, run_id) if run_id else None
    display = live_display(console, loaded)
    try:
        with leading(gang) as member, _workers(cluster, loaded) as workers:
            if begun is None:
                summary = run_multiple_experiments(
                    loaded, display=display, cluster=workers, gang=member, run_id=run_id
                )
            else:
                summary = resume_experiment(
                    str(begun.root), display=display, cluster=workers, gang=member
                )
    finally:
        display.close()
    _show(console, summary, json)


def resume(
    run: Annotated[str, argument("RUN", "An experiment (its latest run) or a run id.", run_names)],
    max_steps: Annotated[
        int | None, typer.Option(help="Environment steps per trial; more: beyond its end.")
    ] = None,
    set_: Settings = None,
    cluster: Cluster = None,
    hosts: Hosts = None,
    restarts: Restarts = 3,
    output: Output = "logs",
    process_id: ProcessId = None,
    processes: Processes = None,
    coordinator: Coordinator = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Go on with a run where it was saved, also beyond its end."""
    from proxima.run.files import find_run
    from proxima.run.gang import follow_gang, gang_of, leading
    from proxima.run.read import load_scenario
    from proxima.run.resume import resume_experiment
    from proxima.run.screen import live_display
    from proxima.terminal import keep_output, run_console

    gang = gang_of(process_id, processes, coordinator)
    if gang is not None and gang.process > 0:
        return follow_gang(gang)  # it needs no files of the run
    if json and gang is not None:
        keep_output()
    changes = [*(set_ or []), *as_settings({"training.max_steps": max_steps})]
    if hosts is not None:
        words = ["resume", run, "--output", output, *_as_words(changes, json, debug)]
        return _over_hosts(cluster, hosts, restarts, gang, words)
    files = find_run(run, output)
    scenario = load_scenario(files)
    console = run_console(stderr=json)
    display = live_display(console, scenario)
    try:
        with leading(gang) as member, _workers(cluster, scenario) as workers:
            summary = resume_experiment(
                str(files.root), changes=changes, display=display, cluster=workers, gang=member
            )
    finally:
        display.close()
    _show(console, summary, json)


def _workers(cluster: str | None, scenario: Any) -> Any:
    """What trains blocks on the cluster, while this is open; None where this process trains."""
    from contextlib import nullcontext

    if cluster is None:
        return nullcontext()
    from proxima.cluster.blocks import on_cluster

    return on_cluster(cluster, scenario)


def _as_words(settings: Sequence[str], json: bool, debug: bool) -> list[str]:
    """Settings and switches as another process has them on its command line."""
    switches = {"--json": json, "--debug": debug}
    words = [word for setting in settings for word in ("--set", setting)]
    return words + [switch for switch, is_on in switches.items() if is_on]


def _over_hosts(
    cluster: str | None, hosts: int, restarts: int, gang: Any, words: list[str]
) -> None:
    """The command with these words as process 0 of a gang over hosts of the cluster; ends as it does."""
    from proxima.core.errors import ProximaError
    from proxima.terminal import run_console

    if gang is not None:
        raise ProximaError(
            "--hosts: starts all processes itself; leave --process-id, --processes and --coordinator out"
        )
    if cluster is None:
        raise ProximaError(
            "--hosts: say where they are: --cluster HOST:PORT, or --cluster local:N to try it on this machine"
        )
    from proxima.cluster.gang import train_over_hosts

    console = run_console(stderr=True)
    status = train_over_hosts(cluster, hosts, restarts, words, console.print)
    raise typer.Exit(status)


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
