"""A run's files, read strictly."""

from contextlib import suppress
from pathlib import Path

from proxima.build import domain_of, make_importable
from proxima.core.errors import ProximaError
from proxima.run import results
from proxima.run.files import RunFiles, read_text
from proxima.run.results import RunInfo, Summary
from proxima.scenario import Scenario, from_mapping, parse


def read_info(files: RunFiles) -> RunInfo:
    """What run.json says of a run."""
    return results.read(files.info, RunInfo)


def make_run_importable(path: Path) -> None:
    """What the settings of a run name can be imported, as where it was started; of a file of it, likewise."""
    make_importable(Path.cwd())
    for directory in (path.resolve(), *path.resolve().parents):
        if (directory / "run.json").is_file():
            with suppress(ProximaError):  # whoever needs what is damaged says so
                make_importable(*read_info(RunFiles(directory)).directories)
            return


def read_summary(files: RunFiles) -> Summary:
    """What a finished run came to."""
    return results.read(files.summary, Summary, domain_of(load_scenario(files)).details)


def load_scenario(files: RunFiles) -> Scenario:
    """The scenario a run was started with."""
    make_run_importable(files.root)
    source = str(files.scenario)
    return from_mapping(parse(read_text(files.scenario), source), source)
