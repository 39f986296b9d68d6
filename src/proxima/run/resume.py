"""Going on with a run: one that was stopped or killed, or a finished one that gets more to do."""

from proxima.run.amend import amend, present_scenario, settings_change
from proxima.run.display import Callback, Display, silent
from proxima.run.files import RunFiles, find_run
from proxima.run.gang import Member
from proxima.run.lock import locked
from proxima.run.read import load_scenario, read_info, read_summary
from proxima.run.results import RunInfo, Summary
from proxima.run.screen import shown_progress
from proxima.run.start import make_runnable, run_stages
from proxima.run.train import TrainBlocks
from proxima.scenario import EnvironmentScenario, Overrides


def resume_experiment(
    reference: str,
    *,
    output_directory: str = "logs",
    changes: Overrides = (),
    callback: Callback | None = None,
    display: Display | None = None,
    progress: bool = False,
    cluster: TrainBlocks | None = None,
    gang: Member | None = None,
) -> Summary:
    """Go on with a run from its newest checkpoint; a finished run is returned as it is.

    `changes` are settings to go on with instead of those it was started with. A larger budget, or another
    target, lets a finished run go on too.
    """
    files = find_run(reference, output_directory)
    if read_info(files).status == "finished" and not changes:
        return _finished(files, display or silent())
    with (
        locked(files.root),  # from here on nobody else changes what is read
        shown_progress(load_scenario(files), display, progress) as shown,
    ):
        return _resume(files, read_info(files), changes, callback, shown, cluster, gang)


def _finished(files: RunFiles, display: Display) -> Summary:
    has_steps = isinstance(load_scenario(files), EnvironmentScenario)
    remedy = " To go on beyond its end, say how far: --max-steps." if has_steps else ""
    display.say(f"{files.root} is finished; there is nothing to resume.{remedy}")
    return read_summary(files)


def _resume(
    files: RunFiles,
    info: RunInfo,
    changes: Overrides,
    callback: Callback | None,
    display: Display,
    cluster: TrainBlocks | None,
    gang: Member | None,
) -> Summary:
    before = present_scenario(files, info)
    wanted, keys = settings_change(before, changes)
    if info.status == "finished" and not keys:
        return _finished(files, display)
    start = make_runnable(wanted, gang)
    try:
        facts = start.prepared.facts
        if facts is not None and info.data is not None:
            difference = facts.check(info.data)  # an error where the data is another
            if difference is not None:
                display.say(difference)
        if keys:
            info, sentences = amend(start, before, keys, files, info)
            for sentence in sentences:
                display.say(sentence)
        return run_stages(start, files, info, callback, display, cluster)
    finally:
        start.prepared.close()
