"""Where a search's files are.

<output>/<name>/tune/<search id>/    scenario, result, table, best settings and page of a search
<output>/<name>/tune/latest          a link to the newest one
"""

import difflib
import os
import secrets
from pathlib import Path
from typing import NamedTuple

from proxima.core.errors import ProximaError
from proxima.core.paths import usable_path
from proxima.files import explaining
from proxima.run.files import new_run_id


class SearchFiles(NamedTuple):
    """The directory of one search."""

    root: Path

    @property
    def search_id(self) -> str:
        return self.root.name

    @property
    def scenario(self) -> Path:
        return self.root / "scenario.yaml"

    @property
    def info(self) -> Path:
        return self.root / "info.json"

    @property
    def result(self) -> Path:
        return self.root / "search.json"

    @property
    def table(self) -> Path:
        return self.root / "configurations.parquet"

    @property
    def best(self) -> Path:
        return self.root / "best.yaml"

    @property
    def report(self) -> Path:
        return self.root / "report.html"

    @property
    def output(self) -> Path:
        """The directory that holds the runs and searches of all experiments."""
        return self.root.parent.parent.parent


def create_search(output_directory: str, name: str) -> SearchFiles:
    """A new search's directory, and the link to it."""
    searches = Path(usable_path(output_directory)) / name / "tune"
    with explaining(searches):
        searches.mkdir(parents=True, exist_ok=True)
        files = SearchFiles(searches / new_run_id())
        files.root.mkdir()
        fresh = searches / f".latest-{secrets.token_hex(4)}"
        fresh.symlink_to(files.search_id)
        os.replace(fresh, searches / "latest")
    return files


def find_search(reference: str, output_directory: str = "logs") -> SearchFiles:
    """The search meant by an experiment's name (its latest one), a search's id, or a path."""
    matches = searches_of(reference, output_directory)
    if matches:
        return matches[0]
    output = Path(usable_path(output_directory))
    searches = sorted(path.parent for path in output.glob("*/tune/*/info.json"))
    names = [*{root.parent.parent.name for root in searches}, *(root.name for root in searches)]
    hint = f"there are no searches in {output}/ yet"
    if near := difflib.get_close_matches(Path(reference).name, names):
        hint = f"did you mean {' or '.join(near)}?"
    elif names:
        hint = f"there are: {', '.join(sorted(names))}"
    raise ProximaError(f"{reference}: no search of that name; {hint}")


def searches_of(reference: str, output_directory: str = "logs") -> list[SearchFiles]:
    """The search that a name, an id or a path means; none where it means no search."""
    reference, output = usable_path(reference), Path(usable_path(output_directory))
    for candidate in (Path(reference), output / reference):
        for root in (candidate, candidate / "latest", candidate / "tune" / "latest"):
            if (root / "info.json").is_file() and root.resolve().parent.name == "tune":
                return [SearchFiles(root.resolve())]
    paths = sorted(output.glob("*/tune/*/info.json"))
    return [SearchFiles(path.parent.resolve()) for path in paths if path.parent.name == reference][
        :1
    ]
