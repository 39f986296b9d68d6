"""Other settings for a run that goes on: which may change, what that means, and where it is noted.

    asked for ─► what differs ─► may it? ─► noted in run.json ─► scenario.yaml written anew

`run.json` comes first: killed in between, the next resume writes the file that is missing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from proxima.build import algorithm, domain_of
from proxima.core.errors import ProximaError
from proxima.domains.domain import Planned
from proxima.report.numbers import first_few
from proxima.run import results
from proxima.run.files import RunFiles, read_rows, write_text
from proxima.run.read import load_scenario
from proxima.run.record import STAGE
from proxima.run.restore import books_of, furthest_step, saved_scenario, saved_trials
from proxima.run.results import RunInfo, SettingsChange
from proxima.run.session import Start
from proxima.scenario import (
    EnvironmentScenario,
    Overrides,
    Scenario,
    changed,
    differences,
    dump,
    to_stored,
)
from proxima.scenario.tree import dotted, free_mappings
from proxima.train import checkpoint
from proxima.train.books import Book
from proxima.train.reinforcement import chunk_updates
from proxima.train.stage import Stage

MOST_KEYS = 4  # that a message names
# What a run is called by and made of.
FIXED = ("name", "domain", "seed", "trials", "output_directory")
BUDGET = ("training.max_steps", "training.max_episodes")


def present_scenario(files: RunFiles, info: RunInfo) -> Scenario:
    """The scenario that the run goes on with; refused where its file was edited."""
    scenario = load_scenario(files)
    noted = {key: value for change in info.changes for key, value in change.after.items()}
    written, saved = to_stored(scenario), saved_scenario(files)
    keys = [] if saved is None else _differing(scenario, saved, written)
    edited = [key for key in keys if key not in noted or _at(written, key) not in _known(info, key)]
    if edited:
        settings = " ".join(f"--set {key}=VALUE" for key in edited[:MOST_KEYS])
        raise ProximaError(
            f"{files.scenario}: was edited since the run was started: {first_few(edited)} differ from what "
            f"its checkpoints were made with; put the old values back, or say what you want:  "
            f"proxima resume {files.run_id} {settings}"
        )
    if not noted:
        return scenario
    present = changed(scenario, noted, str(files.scenario))
    if to_stored(present) != written:
        write_text(files.scenario, dump(present))
    return present


def settings_change(scenario: Scenario, changes: Overrides) -> tuple[Scenario, list[str]]:
    """The scenario with the changes, and the keys in which it differs; refused where one may not."""
    if not changes:
        return scenario, []
    wanted = changed(scenario, changes, "--set")
    keys = _differing(scenario, to_stored(scenario), to_stored(wanted))
    fixed = [key for key in keys if key in FIXED]
    if fixed:
        raise ProximaError(
            f"--set: {first_few(fixed)}: cannot change within a run; start a new one"
        )
    return wanted, keys


def amend(
    start: Start, before: Scenario, keys: Sequence[str], files: RunFiles, info: RunInfo
) -> tuple[RunInfo, list[str]]:
    """The change noted and written, and what it means in sentences; refused if nothing would come of it."""
    stages, wanted = start.prepared.stages, start.scenario
    _check_stages(files, stages, keys, info)
    effects: list[str] = []
    for planned in stages:
        if not planned.kept:
            effects += _effects(planned, before, wanted, keys, files, info)
    reached = furthest_step(files, stages)
    old, new = to_stored(before), to_stored(wanted)
    change = SettingsChange(
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        stage=reached.stage if reached else "",
        trial=reached.trial if reached else 0,
        step=reached.step if reached else 0,
        before={key: _at(old, key) for key in keys},
        after={key: _at(new, key) for key in keys},
    )
    info = replace(info, status="interrupted", changes=(*info.changes, change))
    results.write(files.info, info)
    write_text(files.scenario, dump(wanted))
    words = ", ".join(change.words()[:MOST_KEYS]) + (", …" if len(keys) > MOST_KEYS else "")
    where = f"from {reached} on" if reached else "from the beginning"
    return info, [f"Goes on with other settings than before, {where}: {words}.", *effects]


def _check_stages(
    files: RunFiles, stages: Sequence[Planned], keys: Sequence[str], info: RunInfo
) -> None:
    """An error where a stage that has ended, which is not trained again, would have to be."""
    ended = {
        planned.name
        for planned in stages
        for trial in planned.trials
        if planned.kept and (files.trial(trial) / planned.name / STAGE).exists()
    }
    late = [key for key in keys if key.partition(".")[0] in ended]
    if info.status == "finished" and ended:
        late = list(keys)
    if late:
        raise ProximaError(
            f"--set: {first_few(late)}: cannot change: {first_few(sorted(ended))} of this run ended, and a "
            "stage that has ended is not trained again; start a new run"
        )


def _effects(
    planned: Planned,
    before: Scenario,
    wanted: Scenario,
    keys: Sequence[str],
    files: RunFiles,
    info: RunInfo,
) -> list[str]:
    """What the change means for a stage; an error where its checkpoints do not fit or nothing would go on."""
    trainable = planned.make(files.trial)
    try:
        stage, settings = trainable.stage, to_stored(wanted)
        saved = saved_trials(files, planned, stage.schedule, settings)
        if not saved:
            return []
        paths = list(saved.values())
        checkpoint.check_shapes(paths[0], stage.split(stage.init())[0])
        books = books_of(paths, stage.schedule, settings)
        if info.status == "finished" and all(book.stopped for book in books):
            raise _nothing_goes_on(files, books)
        sentences = [
            f"Trial {trial} stays as it is: {_STOPPED[book.stopped]} at step {book.steps:,}."
            for trial, book in zip(saved, books, strict=True)
            if book.stopped is not None
        ]
        if set(keys) & set(BUDGET):
            folders = [files.trial(trial) / planned.name for trial in saved]
            sentences.append(_comparison(before, wanted, stage, folders, books))
        return sentences
    finally:
        trainable.close()


_STOPPED = {
    "converged": "it had converged",
    "budget": "it has used its budget",
    "nan": "its loss was no longer a number",
    "alarm": "an alarm had stopped it",
    "callback": "it was stopped",
}


def _nothing_goes_on(files: RunFiles, books: Sequence[Book]) -> ProximaError:
    reasons = [f"trial {k}: {_STOPPED[book.stopped or '']}" for k, book in enumerate(books)]
    remedies = {
        "budget": f"say --max-steps with more than {max(book.steps for book in books):,}",
        "converged": "name another target: --set convergence.target_reward=VALUE",
    }
    stopped = [book.stopped for book in books]
    remedy = [words for reason, words in remedies.items() if reason in stopped]
    return ProximaError(
        f"{files.root}: is finished, and no trial would go on with these settings ({first_few(reasons)}); "
        f"{', or '.join([*remedy, 'start a new run'])}"
    )


def _comparison(
    before: Scenario, wanted: Scenario, stage: Stage, folders: list[Path], books: Sequence[Book]
) -> str:
    """Whether the run will be what one with this budget from the start would have been, and why not."""
    reasons = list(_budget_effects(before, wanted, stage, folders, books))
    if not reasons:
        return "What comes of it is what a run with this budget from the start gives, to the bit."
    return f"It will not be what a run with this budget from the start gives: {'; '.join(reasons)}."


def _budget_effects(
    before: Any, wanted: Any, stage: Stage, folders: list[Path], books: Sequence[Book]
) -> Iterator[str]:
    if not isinstance(wanted, EnvironmentScenario):
        return
    for key in algorithm(wanted.algorithm.name).over_budget(wanted.algorithm):
        yield f"algorithm.{key} changes over the budget, and until now over another one"
    levels = wanted.curriculum
    if levels is not None and levels.by == "steps" and levels.at is None:
        yield "curriculum.at is null, so that its levels begin at other steps now"
    usual = stage.schedule.updates_per_chunk
    if chunk_updates(before.training, stage.steps_per_update) != usual:
        yield (
            "training.updates_per_chunk is null, so that chunks, and with them evaluations and "
            "checkpoints, are of another length now"
        )
    elif not _ended_as_usual(stage, folders, books):
        yield "at its first end it was evaluated or saved out of turn"


def _ended_as_usual(stage: Stage, folders: list[Path], books: Sequence[Book]) -> bool:
    """Whether the last chunk, evaluation and checkpoint were as they are in the middle of a run."""
    schedule = stage.schedule
    count = "episode/total" if schedule.evaluate_by == "episodes" else "step"
    due, whole = False, True
    for folder, book in zip(folders, books, strict=True):
        if book.stopped is not None:
            continue
        rows = read_rows(folder / "metrics.jsonl")
        evaluated = [row for row in rows if any(name.startswith("eval/") for name in row)]
        seen = [0, *(row.get(count, 0) for row in evaluated)]
        is_last = bool(evaluated) and evaluated[-1]["step"] == rows[-1]["step"]
        due = due or not is_last or seen[-1] - seen[-2] >= schedule.evaluate_every
        chunks = -(-book.updates // schedule.updates_per_chunk)
        saved = stage.exact_anywhere or chunks % schedule.save_every == 0
        whole = whole and saved and book.updates % schedule.updates_per_chunk == 0
    return due and whole


def _differing(
    scenario: Scenario, first: Mapping[str, Any], second: Mapping[str, Any]
) -> list[str]:
    """The keys in which two scenarios differ; of settings that are not ours, the key that holds them all."""
    free = [dotted(path) for path in free_mappings(domain_of(scenario).scenario)]
    keys = differences(first, second)
    owners = [[above for above in free if key.startswith(f"{above}.")] for key in keys]
    return list(dict.fromkeys((*owner, key)[0] for owner, key in zip(owners, keys, strict=True)))


def _at(settings: Mapping[str, Any], key: str) -> Any:
    value: Any = settings
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _known(info: RunInfo, key: str) -> list[Any]:
    """The values that a setting has had in the run."""
    changes = [change for change in info.changes if key in change.after]
    return [value for change in changes for value in (change.before[key], change.after[key])]
