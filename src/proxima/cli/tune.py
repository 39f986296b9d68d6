"""The command that searches for settings: tune."""

import json as json_module
from typing import Annotated, Any

import typer

from proxima.cli.options import (
    Cluster,
    Debug,
    Json,
    NoMLflow,
    ScenarioFile,
    ScenarioName,
    ScenarioOption,
    Settings,
    as_settings,
    path_option,
)

SearchOutput = Annotated[
    str | None, path_option("Directory that holds the search; the scenario's own if not given.")
]


def add_commands(app: typer.Typer) -> None:
    """This command to the command line."""
    app.command()(tune)


def tune(
    name: ScenarioName = None,
    scenario: ScenarioOption = None,
    config: ScenarioFile = None,
    search: Annotated[
        list[str] | None,
        typer.Option(
            "--search",
            metavar="PATH=RANGE",
            help="A setting that varies: LOW:HIGH, log:LOW:HIGH, int:LOW:HIGH, choice:A,B; repeatable.",
        ),
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="auto, random, grid, sobol, asha, tpe, cma-es, pbt or table.")
    ] = None,
    configs: Annotated[int | None, typer.Option(help="Configurations to try.")] = None,
    seeds: Annotated[int | None, typer.Option(help="Trainings of each configuration.")] = None,
    max_steps: Annotated[int | None, typer.Option(help="Environment steps per training.")] = None,
    resume: Annotated[
        str | None, typer.Option(metavar="NAME", help="Go on with a search that was stopped.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say the plan, run nothing.")] = False,
    set_: Settings = None,
    cluster: Cluster = None,
    output: SearchOutput = None,
    no_mlflow: NoMLflow = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Search for better settings: many configurations in one program, the best confirmed on new seeds."""
    from proxima.core.errors import ProximaError

    given = [each for each in (name, scenario, config, resume) if each]
    if len(given) != 1:
        raise ProximaError(
            "name one scenario: proxima tune NAME (proxima scenarios lists them), --config FILE, or go on "
            "with a search: --resume NAME"
        )
    from proxima.terminal import run_console

    console = run_console(stderr=json)
    if resume:
        _resume(console, resume, output or "logs", json, cluster)
        return
    flags = {
        "search.method": method,
        "search.configs": configs,
        "search.seeds": seeds,
        "training.max_steps": max_steps,
        "output_directory": output,
        "tracking.enabled": False if no_mlflow else None,
    }
    settings = [*(set_ or []), *as_settings(flags)]
    loaded = _loaded(given[0], settings, search or [])
    if cluster is not None:
        from proxima.cluster.lanes import search_in_blocks

        loaded = search_in_blocks(loaded)
    if dry_run:
        _say_plan(console, loaded, json)
    else:
        _start(console, loaded, json, cluster)


def _loaded(source: Any, settings: list[str], ranges: list[str]) -> Any:
    """The scenario with these settings, and with these ranges instead of its own."""
    from proxima.core.errors import ProximaError
    from proxima.scenario import load

    for each in ranges:
        if not all(each.partition("=")[::2]):
            raise ProximaError(
                f"--search: {each}: expected PATH=RANGE, algorithm.learning_rate=log:1e-5:1e-1 for example"
            )
    if not ranges:
        return load(source, settings)
    space = {path.strip(): written for path, _, written in (each.partition("=") for each in ranges)}
    return load(source, [*settings, f"search.space={json_module.dumps(space)}"])


def _start(console: Any, scenario: Any, json: bool, cluster: str | None) -> None:
    from proxima.tune.run import start_search
    from proxima.tune.screen import watching

    with _workers(cluster) as elsewhere, watching(console, scenario.name) as watch:
        files, result = start_search(scenario, watch, elsewhere)
    _show(console, files, result, json)


def _resume(console: Any, reference: str, output: str, json: bool, cluster: str | None) -> None:
    from proxima.tune.files import find_search
    from proxima.tune.run import load_scenario, resume_search
    from proxima.tune.screen import watching

    files = find_search(reference, output)
    name = load_scenario(files).name
    with _workers(cluster) as elsewhere, watching(console, name) as watch:
        result = resume_search(files, watch, elsewhere)
    _show(console, files, result, json)


def _workers(cluster: str | None) -> Any:
    """What carries out blocks on the cluster, while this is open; None where this process does."""
    from contextlib import nullcontext

    if cluster is None:
        return nullcontext()
    from proxima.cluster.lanes import search_on_cluster

    return search_on_cluster(cluster)


def _say_plan(console: Any, scenario: Any, json: bool) -> None:
    from proxima.cli.console import write
    from proxima.tune.plan import plan_search
    from proxima.tune.screen import plan_words

    plan = plan_search(scenario)
    if json:
        run_json(plan._asdict())
    else:
        write(console, plan_words(plan))


def _show(console: Any, files: Any, result: Any, json: bool) -> None:
    """What came out of a search; an error where nothing did."""
    import os

    from proxima.cli.console import write
    from proxima.core.errors import ProximaError
    from proxima.tune.screen import result_lines
    from proxima.tune.table import to_json

    root = os.path.relpath(files.root)
    if json:
        run_json(to_json(result))
    else:
        for line in result_lines(result):
            write(console, line)
        pointers = {
            "All configurations": f"{root}/configurations.parquet",
            "The report, one page": f"{root}/report.html",
            "Run the best settings": f"proxima experiment --config {root}/best.yaml",
        }
        for what, where in pointers.items():
            write(console, f"{what + ':':<25}{where}")
    if result.chosen is None:
        raise ProximaError(
            "no configuration came through: the loss of every one stopped being a number; their settings "
            f"are in {root}/configurations.parquet; try lower learning rates"
        )


def run_json(content: Any) -> None:
    """JSON on standard output."""
    from proxima.terminal import run_console

    run_console().file.write(json_module.dumps(content, indent=2) + "\n")
