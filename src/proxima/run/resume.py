"""Going on with a run that was stopped or killed: with the settings and the data it was started with."""

from proxima.core.errors import ProximaError
from proxima.report.numbers import first_few
from proxima.run.display import Callback, Display, silent
from proxima.run.files import RunFiles, find_run, write_text
from proxima.run.lock import locked
from proxima.run.read import load_scenario, read_info, read_summary
from proxima.run.restore import saved_scenario
from proxima.run.results import RunInfo, Summary
from proxima.run.screen import shown_progress
from proxima.run.start import make_runnable, run_stages
from proxima.scenario import Overrides, Scenario, changed, differences, dump, to_stored

MOST_KEYS = 4  # that a message names
# What a run is called by and made of.
FIXED = ("name", "domain", "seed", "trials", "output_directory")


def resume_experiment(
    reference: str,
    *,
    output_directory: str = "logs",
    changes: Overrides = (),
    callback: Callback | None = None,
    display: Display | None = None,
    progress: bool = False,
) -> Summary:
    """Go on with a run from its newest checkpoint; a finished run is returned as it is.

    `changes` are settings to go on with instead of those it was started with.
    """
    files = find_run(reference, output_directory)
    if read_info(files).status == "finished":
        return _finished(files, display or silent())
    with (
        locked(files.root),  # from here on nobody else changes what is read
        shown_progress(load_scenario(files), display, progress) as shown,
    ):
        info = read_info(files)
        if info.status == "finished":  # by another process, just now
            return _finished(files, shown)
        return _resume(files, info, changes, callback, shown)


def _finished(files: RunFiles, display: Display) -> Summary:
    display.say(f"{files.root} is finished; there is nothing to resume.")
    return read_summary(files)


def _resume(
    files: RunFiles, info: RunInfo, changes: Overrides, callback: Callback | None, display: Display
) -> Summary:
    start = make_runnable(_scenario_to_resume(files, changes, display))
    try:
        facts = start.prepared.facts
        if facts is not None and info.data is not None:
            difference = facts.check(info.data)  # an error where the data is another
            if difference is not None:
                display.say(difference)
        return run_stages(start, files, info, callback, display)
    finally:
        start.prepared.close()


def _scenario_to_resume(files: RunFiles, changes: Overrides, display: Display) -> Scenario:
    """The scenario that the run was started with, and the changes; refused where its file was edited."""
    scenario = load_scenario(files)
    saved = saved_scenario(files)
    edited = [] if saved is None else differences(saved, to_stored(scenario))
    if edited:
        settings = " ".join(f"--set {key}=VALUE" for key in edited[:MOST_KEYS])
        raise ProximaError(
            f"{files.scenario}: was edited since the run was started: {first_few(edited)} differ from what "
            f"its checkpoints were made with; put the old values back, or say what you want:  "
            f"proxima resume {files.run_id} {settings}"
        )
    if not changes:
        return scenario
    wanted = changed(scenario, changes, "--set")
    keys = differences(to_stored(scenario), to_stored(wanted))
    fixed = [key for key in keys if key in FIXED]
    if fixed:
        raise ProximaError(
            f"--set: {first_few(fixed)}: cannot change within a run; start a new one"
        )
    if keys:
        write_text(files.scenario, dump(wanted))
        display.say(f"Goes on with other settings than before: {first_few(keys)}.")
    return wanted
