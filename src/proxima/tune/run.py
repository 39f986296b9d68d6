"""Searches planned, started and resumed, and what they leave on the disk."""

import os
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from proxima.build import importable_directories, make_importable
from proxima.run.files import read_json, read_text, write_json, write_text
from proxima.scenario import Scenario, changed, dump, from_mapping, parse
from proxima.tune import table
from proxima.tune.check import SOURCE
from proxima.tune.files import SearchFiles, create_search
from proxima.tune.lineage import last_settings
from proxima.tune.results import SearchResult
from proxima.tune.search import (
    Search,
    Watch,
    check_first,
    drawn_at_first,
    expected_steps,
    make_ready,
    measured_speed,
    prepare_search,
    run_search,
    steps_again,
)


class Plan(NamedTuple):
    """What a search is going to do."""

    method: str
    configs: int
    seeds: int
    lanes: int | None  # None: configurations run one after the other
    programs: int | None  # None: it depends on what is drawn later
    steps: float  # of environments, about
    again: int  # environment steps of what is run again to confirm the best
    speed: float  # steps of environments per second


def plan_search(scenario: Scenario) -> Plan:
    """The plan of a search, its speed measured; an error where it cannot be run."""
    search = prepare_search(scenario, Watch(lambda text: None, lambda standing: None))
    config, steps = search.config, expected_steps(search, search.configs, search.config.seeds)
    if search.programs is None:
        return Plan(config.method, search.configs, config.seeds, None, None, steps, 0, 1.0)
    make_ready(search)
    try:
        drawn = drawn_at_first(search)
        kinds = {search.programs.of(settings) for settings in drawn}
        programs = len(kinds) if len(drawn) == search.configs else None
        speed = measured_speed(search, drawn[0])
    finally:
        search.programs.close()
    again = steps_again(search)
    sizes = config.method, search.configs, config.seeds, search.width
    return Plan(*sizes, programs, steps, again, speed)


def start_search(scenario: Scenario, watch: Watch) -> tuple[SearchFiles, SearchResult]:
    """A new search over the scenario's settings."""
    search = prepare_search(scenario, watch)
    make_ready(search)
    check_first(search)  # what cannot be run leaves nothing behind
    files = create_search(scenario.output_directory, scenario.name)
    write_text(files.scenario, dump(scenario))
    return files, _run(search._replace(files=files), _started())


def resume_search(files: SearchFiles, watch: Watch) -> SearchResult:
    """A search gone on with where it was saved; a finished one is read again."""
    info = read_json(files.info)
    if info["status"] == "finished":
        watch.say(f"{files.root} is finished; there is nothing to resume.")
        return read_result(files)
    return _run(prepare_search(load_scenario(files), watch, files), info)


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
    at_home = files.output.resolve() == Path("logs").resolve()
    options = "" if at_home else f" --output {shlex.quote(str(files.output))}"
    write_page(path, search_page(result, root, options), "report")
    return path


def _run(search: Search, info: dict[str, Any]) -> SearchResult:
    files = search.files
    write_json(files.info, info | {"status": "running"})
    try:
        result = run_search(search)
    except BaseException as error:
        status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        write_json(files.info, info | {"status": status})
        raise
    _write_result(search, result)
    write_json(files.info, info | {"status": "finished"})
    return result


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
