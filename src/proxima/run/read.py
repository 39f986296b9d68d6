"""A run's files, read strictly."""

from pathlib import Path

from proxima.build import domain_of, make_importable
from proxima.run import results
from proxima.run.files import RunFiles, read_text
from proxima.run.results import RunInfo, Summary
from proxima.scenario import Scenario, from_mapping, parse


def read_info(files: RunFiles) -> RunInfo:
    """What run.json says of a run."""
    return results.read(files.info, RunInfo)


def read_summary(files: RunFiles) -> Summary:
    """What a finished run came to."""
    return results.read(files.summary, Summary, domain_of(load_scenario(files)).details)


def load_scenario(files: RunFiles) -> Scenario:
    """The scenario a run was started with."""
    make_importable(Path.cwd())
    source = str(files.scenario)
    return from_mapping(parse(read_text(files.scenario), source), source)
