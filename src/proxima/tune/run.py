"""Searches planned, started and resumed, and what they leave on the disk and with the tracker."""

import os
import shlex
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from proxima.build import importable_directories, make_importable
from proxima.report.statistics import aggregate
from proxima.run import standing as standing_file
from proxima.run.files import read_json, read_text, write_json, write_text
from proxima.run.lock import locked
from proxima.run.signals import raising
from proxima.scenario import Scenario, changed, dump, from_mapping, parse, to_stored
from proxima.track.process import connect
from proxima.track.tracker import RunIds, Status
from proxima.tune import table
from proxima.tune.blocks import Elsewhere
from proxima.tune.check import SOURCE
from proxima.tune.files import SearchFiles, create_search
from proxima.tune.lineage import last_settings
from proxima.tune.outcomes import best_first
from proxima.tune.plan import (
    TUNING_ROLE,
    Search,
    Standing,
    Watch,
    check_first,
    make_ready,
    prepare_search,
)
from proxima.tune.results import SearchResult
from proxima.tune.screen import shown_search
from proxima.tune.search import run_search
from proxima.tune.tracking import Tracking
from proxima.tune.verdict import numbers


def search_settings(scenario: Scenario, *, progress: bool = False) -> SearchResult:
    """The scenario's search from a program; `progress` shows how far it is."""
    with shown_search(scenario.name, progress) as watch:
        return start_search(scenario, watch)[1]


def start_search(
    scenario: Scenario, watch: Watch, elsewhere: Elsewhere | None = None
) -> tuple[SearchFiles, SearchResult]:
    """A new search over the scenario's settings; `elsewhere` carries out its blocks."""
    search = prepare_search(scenario, watch, elsewhere=elsewhere)
    make_ready(search)
    check_first(search)  # what cannot be run leaves nothing behind
    files = create_search(scenario.output_directory, scenario.name)
    write_text(files.scenario, dump(scenario))
    return files, _run(search._replace(files=files), _started())


def resume_search(
    files: SearchFiles, watch: Watch, elsewhere: Elsewhere | None = None
) -> SearchResult:
    """A search gone on with where it was saved; a finished one is read again."""
    info = read_json(files.info)
    if info["status"] == "finished":
        watch.say(f"{files.root} is finished; there is nothing to resume.")
        return read_result(files)
    return _run(prepare_search(load_scenario(files), watch, files, elsewhere), info)


def load_scenario(files: SearchFiles) -> Scenario:
    """The scenario that a search was started with."""
    make_importable(Path.cwd(), *read_json(files.info)["directories"])
    source = str(files.scenario)
    return from_mapping(parse(read_text(files.scenario), source), source)


def read_result(files: SearchFiles) -> SearchResult:
    """What a finished search came to."""
    return table.from_json(read_json(files.result))


def write_report(files: SearchFiles, result: SearchResult, out: Path | None = None) -> Path:
    """The page of a search."""
    from proxima.report.html import write_page
    from proxima.tune.page import search_page

    path = out or files.report
    root = os.path.relpath(files.root)
    write_page(path, search_page(result, root, _output_option(files)), "report")
    return path


def _run(search: Search, started: dict[str, Any]) -> SearchResult:
    """While it runs, a search is this process's alone; an error is noted and passed on."""
    files, info = search.files, dict(started)

    def note(**changes: str) -> None:
        info.update(changes)
        write_json(files.info, info)

    with locked(files.root), raising():
        note(status="running")
        known = info.get("mlflow_run_id")
        tracking = _connect(search, known, lambda run_id: note(mlflow_run_id=run_id))
        try:
            watch = _noting(search, tracking)
            result = run_search(search._replace(watch=watch), tracking)
            _write_result(search, result)
            written = (files.best, files.result, files.table, files.report)
            tracking.hand_over_whole(result.steps, figures(result), written)
            tracking.finish("finished")
        except BaseException as error:
            status: Status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
            note(status=status)  # first of all: who asked us to stop may not wait for the tracker
            _say_how_to_go_on(search, status)
            tracking.finish(status)
            raise
        note(status="finished")
    return result


def _say_how_to_go_on(search: Search, status: Status) -> None:
    what = "Stopped." if status == "interrupted" else "The search failed."
    remedy = "To go on:" if status == "interrupted" else "To go on, once the cause is mended:"
    command = f"proxima tune --resume {search.files.search_id}{_output_option(search.files)}"
    search.watch.say(f"{what} {remedy}  {command}")


def _output_option(files: SearchFiles) -> str:
    """What a command needs besides a search's id to find it."""
    at_home = files.output.resolve() == Path("logs").resolve()
    return "" if at_home else f" --output {shlex.quote(str(files.output))}"


def _connect(search: Search, known: str | None, note: Callable[[str], None]) -> Tracking:
    """The search's tracked run, opened again where there is one."""
    scenario = search.scenario
    tracker = connect(
        scenario.tracking,
        scenario.name,
        search.files.search_id,
        to_stored(scenario),
        (),
        description=scenario.description,
        tags={"proxima.kind": "search"},
        resume_from=None if known is None else RunIds(known, ()),
        warn=search.watch.say,
    )
    return Tracking(tracker, search.rules(TUNING_ROLE, 1).objective.metric, note)


def _noting(search: Search, tracking: Tracking) -> Watch:
    """The search's own, and after every chunk its standing is noted, and the tracked run once it is known."""
    file = standing_file.StandingFile(search.files.root)
    figure = search.rules(TUNING_ROLE, 1).objective.metric

    def show(standing: Standing) -> None:
        tracking.note_run()
        file.write(lambda: _noted(standing, figure), at_once=standing.done == standing.total)
        search.watch.show(standing)

    return search.watch._replace(show=show)


def _noted(standing: Standing, figure: str) -> standing_file.Standing:
    return standing_file.Standing(
        stage=standing.phase,
        number=1,  # whether another phase follows is decided at its end
        stages=1,
        unit="steps",
        steps=standing.steps,
        fraction=standing.fraction,
        seconds=standing.seconds,
        figure=figure,
        best=standing.best,
    )


def figures(result: SearchResult) -> dict[str, float]:
    """A search in a few numbers, as the tracker has them; what cannot be said is left out."""
    best, tested = best_first(result), {each.number: each.values for each in result.test}
    known = {
        "search/configurations": len(result.configurations),
        "search/best_value": best[0].value if best else None,
        "search/chosen": result.chosen,
        "test/best_iqm": aggregate(numbers(tested.get(result.chosen, ())))["iqm"],
        "test/own_iqm": aggregate(numbers(tested.get(None, ())))["iqm"],
    }
    return {name: value for name, value in known.items() if value is not None}


def _started() -> dict[str, Any]:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"started": now, "directories": list(importable_directories())}


def _write_result(search: Search, result: SearchResult) -> None:
    """Result, table, the best settings as a scenario, and the page."""
    files = search.files
    write_json(files.result, table.to_json(result))
    table.write_table(files.table, result.configurations)
    if result.chosen is not None:
        write_text(files.best, best_scenario(search.scenario, result))
    write_report(files, result)


def best_scenario(scenario: Scenario, result: SearchResult) -> str:
    """The chosen settings as a scenario file, with where they come from."""
    assert result.chosen is not None
    tried = len(result.configurations)
    settings = dict(last_settings(result, result.configurations[result.chosen]))
    best = changed(scenario, settings | {"name": "best", "search": None, "tried": tried}, SOURCE)
    lines = [
        f"# {result.scenario} with the settings that `proxima tune` chose among {tried} configurations:",
        *(f"#   {path}: {value}" for path, value in settings.items()),
        f"# search {result.search_id}, method {result.method}",
    ]
    return "\n".join(lines) + "\n" + dump(best)
