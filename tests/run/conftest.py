"""Runs that several files compare theirs with, made once for each."""

from pathlib import Path

import pytest
from resume import Case


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Uninterrupted runs, each made once."""
    made: dict[Case, Path] = {}

    def get(case: Case) -> Path:
        if case not in made:
            made[case] = case.uninterrupted(tmp_path_factory.mktemp("whole"))
        return made[case]

    return get
