"""Where a run's files are, and how they are written: nothing half, nothing of an earlier run lost.

<output>/<name>/runs/<run id>/…    every run has its own directory
<output>/<name>/{latest, summary.json, trial_0, …}    links into the newest one
"""

import difflib
import json
import math
import os
import re
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from proxima.core.errors import ProximaError
from proxima.core.paths import usable_path
from proxima.files import explaining, replacing
from proxima.track.registry import ABOUT, POLICY_FILES


class RunFiles(NamedTuple):
    """The directory of one run."""

    root: Path

    @property
    def run_id(self) -> str:
        return self.root.name

    @property
    def experiment(self) -> Path:
        return self.root.parent.parent

    @property
    def info(self) -> Path:
        return self.root / "run.json"

    @property
    def scenario(self) -> Path:
        return self.root / "scenario.yaml"

    @property
    def summary(self) -> Path:
        return self.root / "summary.json"

    @property
    def plots(self) -> Path:
        return self.root / "plots"

    def trial(self, index: int) -> Path:
        return self.root / f"trial_{index}"


def create_run(
    output_directory: str, name: str, trials: int, run_id: str | None = None
) -> RunFiles:
    """A new run's directory with one for each trial, and the links to it."""
    runs = Path(usable_path(output_directory)) / name / "runs"
    files = RunFiles(runs / (run_id or new_run_id()))
    try:
        runs.mkdir(parents=True, exist_ok=True)
        while not _is_new(files.root) and run_id is None:
            # another run began in the same second and drew the same number
            files = RunFiles(runs / new_run_id())
        for index in range(trials):
            (files.trial(index) / "plots").mkdir(parents=True, exist_ok=True)
        files.plots.mkdir(exist_ok=True)
        link_latest(files, trials)
    except OSError as error:
        raise ProximaError(
            f"{files.root}: cannot write there ({error.strerror}); "
            "choose another place with --set output_directory=DIRECTORY"
        ) from error
    return files


def begun_run(output_directory: str, name: str, run_id: str) -> RunFiles | None:
    """The run of that id, where it was begun."""
    if not re.fullmatch(r"[\w-][\w.-]*", run_id):
        raise ProximaError(
            f"--run-id: {run_id!r} is no name of a directory; use letters, digits, - and _"
        )
    files = RunFiles(Path(usable_path(output_directory)) / name / "runs" / run_id)
    return files if files.info.is_file() else None


def new_run_id() -> str:
    """The name of a run that begins now."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def _is_new(directory: Path) -> bool:
    """Whether the directory was not there; it is now."""
    try:
        directory.mkdir()
    except FileExistsError:
        return False
    return True


def link_latest(files: RunFiles, trials: int) -> None:
    """Point the experiment's links at this run, and drop those to trials it does not have."""
    for old in files.experiment.glob("trial_*"):
        if old.is_symlink():
            old.unlink(missing_ok=True)  # another run that starts just now does the same
    names = {"latest": files.root, "summary.json": files.summary}
    names |= {f"trial_{index}": files.trial(index) for index in range(trials)}
    for name, target in names.items():  # each in one step
        fresh = files.experiment / f".{name}-{secrets.token_hex(4)}"
        fresh.symlink_to(os.path.relpath(target, files.experiment))
        os.replace(fresh, files.experiment / name)


def write_json(path: Path, content: Any) -> None:
    """Write whole or not at all; a number that is not finite becomes null, as JSON has no such thing."""
    write_text(path, json.dumps(plain(content), indent=2, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write whole or not at all."""
    with replacing(path) as fresh:
        fresh.write_text(text)


def plain(content: Any) -> Any:
    """The content as JSON can hold it: a number that is not finite becomes null."""
    if isinstance(content, Mapping):
        return {str(key): plain(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [plain(value) for value in content]
    if isinstance(content, float) and not math.isfinite(content):
        return None
    return content


def read_json(path: Path) -> Any:
    """The content of one of our own files, or an error that names it."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError as error:
        raise ProximaError(f"{path}: no such file; did that run finish?") from error
    except (OSError, ValueError, RecursionError) as error:
        raise ProximaError(f"{path}: cannot be read ({error})") from error


def read_text(path: Path) -> str:
    """One of our own text files, or an error that names it."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ProximaError(f"{path}: cannot be read ({error})") from error


def append_row(path: Path, row: Mapping[str, Any]) -> None:
    """One more line of metrics."""
    with explaining(path), path.open("a") as file:
        file.write(json.dumps(plain(row), allow_nan=False) + "\n")


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The lines of metrics; a last line that a kill cut short is left out."""
    if not path.exists():
        return []
    *whole, cut = read_text(path).split("\n")
    rows = [_row(line) for line in whole]
    if None in rows:
        raise ProximaError(
            f"{path}: is damaged: line {rows.index(None) + 1} is no row of metrics, which has a whole "
            "number as its step, and numbers by name; delete that line, or run the scenario again"
        )
    last = _row(cut)  # whole but for its end
    return [row for row in (*rows, last) if row is not None]


def _row(line: str) -> dict[str, Any] | None:
    """A line's numbers; None where it is something else."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict) or type(row.get("step")) is not int:
        return None
    return row if all(map(_is_finite_or_null, row.values())) else None


def _is_finite_or_null(value: Any) -> bool:
    return value is None or (type(value) in (int, float) and math.isfinite(value))


def keep_rows_until(path: Path, step: int) -> None:
    """Drop what was recorded after `step`: a resumed run records it again."""
    rows = [row for row in read_rows(path) if row["step"] <= step]
    write_text(path, "".join(json.dumps(row) + "\n" for row in rows))


def keep_alarms_until(path: Path, step: int) -> None:
    """Drop the alarms that began after `step`, and a last line that a kill cut short."""
    if not path.exists():
        return
    whole = read_text(path).split("\n")[:-1]
    alarms = [line for line in whole if _alarm_step(line) <= step]
    write_text(path, "".join(line + "\n" for line in alarms))


def _alarm_step(line: str) -> float:
    """When an alarm began; never, where the line is something else: nobody goes on from alarms."""
    try:
        step = json.loads(line)["step"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return math.inf
    return step if isinstance(step, int) else math.inf


def find_run(reference: str, output_directory: str = "logs") -> RunFiles:
    """The run meant by an experiment's name (its latest run), a run id, an MLflow run's id, or a path."""
    reference, output = usable_path(reference), Path(usable_path(output_directory))
    for candidate in (Path(reference), output / reference):
        if (candidate / "run.json").is_file():
            return RunFiles(candidate.resolve())
        if (candidate / "latest").is_dir():
            return RunFiles((candidate / "latest").resolve())
        if candidate.is_dir() and (candidate.parent / "run.json").is_file():  # a trial's directory
            return RunFiles(candidate.parent.resolve())
    runs = sorted(output.glob("*/runs/*/"))
    matches = [run for run in runs if run.name == reference]
    matches += [run for run in runs if _mlflow_id(run / "run.json") == reference]
    if matches:
        return RunFiles(matches[0].resolve())
    experiments = sorted({run.parent.parent.name for run in runs})
    names = [*experiments, *(run.name for run in runs)]
    hint = f"there are no runs in {output}/ yet"
    if near := difflib.get_close_matches(Path(reference).name, names):
        hint = f"did you mean {' or '.join(near)}?"
    elif experiments:
        hint = f"there are: {', '.join(experiments)}"
    raise ProximaError(f"{reference}: no experiment, run or run directory of that name; {hint}")


def find_trial(reference: str, output_directory: str = "logs", trial: int | None = None) -> Path:
    """The directory of the trial meant by its path, or by a run: its first one, or the one asked for."""
    named = usable_path(reference)
    for candidate in (Path(named), Path(usable_path(output_directory)) / named):
        if _is_trial(candidate):
            if trial is not None:
                raise ProximaError(f"--trial {trial}: {reference} is a trial already; name its run")
            return candidate
    files = find_run(reference, output_directory)
    number = 0 if trial is None else trial
    if not files.trial(number).is_dir():
        paths = files.root.glob("trial_[0-9]*")
        known = sorted(int(path.name.removeprefix("trial_")) for path in paths)
        there = f"there are: {', '.join(map(str, known))}" if known else "there is none yet"
        raise ProximaError(f"{files.root}: has no trial {number}; {there}")
    return files.trial(number)


def find_policy(reference: str, output_directory: str = "logs", trial: int | None = None) -> Path:
    """The exported policy meant by its directory, a trial or a run; where there is none, in words why.

    Whoever loads one that lacks a file is told which.
    """
    path = Path(usable_path(reference))
    if (path / ABOUT).is_file():
        if trial is not None:
            raise ProximaError(f"--trial {trial}: {reference} is a policy already; name its run")
        return path
    home = find_trial(reference, output_directory, trial)
    if (home / "policy").is_dir():
        return home / "policy"
    files = RunFiles(home.resolve().parent)
    if any(home.glob("**/model/config.json")):
        why = "it trained a model that writes text, no such policy; copy that one with  proxima model export"
    elif not files.summary.is_file() and files.info.is_file():
        why = f"policies are exported at the end of a run; finish it with  proxima resume {files.run_id}"
    else:
        why = "run its scenario again"
    raise ProximaError(f"{home}: has no exported policy: {why}")


def is_policy(directory: Path) -> bool:
    """Whether all files of an exported policy are there."""
    return all((directory / name).is_file() for name in POLICY_FILES)


def _is_trial(directory: Path) -> bool:
    """Whether this is a trial's directory, of a run or copied out of it."""
    if any((directory / name).is_dir() for name in ("checkpoints", "policy")):
        return True
    whole = directory.resolve()
    of_run = whole.name.startswith("trial_") and (whole.parent / "run.json").is_file()
    return of_run and whole.is_dir()


def _mlflow_id(path: Path) -> str | None:
    """The MLflow run that a run.json names; None also where it cannot be read: it may be another run's."""
    try:
        info = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return None
    return info.get("mlflow_run_id") if isinstance(info, dict) else None
