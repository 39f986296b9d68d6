"""A notebook's backend of matplotlib, where its package is not installed, is in nobody's way."""

import os
import subprocess
import sys

import pytest

from proxima.backend import use_available_backend

ABSENT = "module://package_that_nobody_has.backend"


@pytest.mark.parametrize(
    ("name", "used"),
    [
        (ABSENT, "agg"),
        ("module://", "agg"),
        ("module://json.tool", "module://json.tool"),
        ("pdf", "pdf"),
    ],
)
def test_only_a_backend_that_is_not_there_is_replaced(name, used, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", name)
    use_available_backend()
    assert os.environ["MPLBACKEND"] == used


def test_without_one_nothing_is_set(monkeypatch):
    monkeypatch.delenv("MPLBACKEND", raising=False)
    use_available_backend()
    assert "MPLBACKEND" not in os.environ


def test_pictures_are_drawn_with_a_notebooks_backend(tmp_path):
    """In a process of its own, for matplotlib looks at the environment once."""
    code = (
        "from proxima.report import style; style.save(style.new_figure(1.0), 'x.png');"
        "from proxima.domains.control import gymnax; gymnax.names()"
    )
    environment = os.environ | {"MPLBACKEND": ABSENT}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True)
    assert (tmp_path / "x.png").stat().st_size > 100
