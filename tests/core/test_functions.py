"""Objects by their dotted paths: what is no path, cannot be imported or fails is told in words."""

import json

import pytest

from proxima import ProximaError
from proxima.core.functions import object_at


def test_an_object_by_either_spelling():
    assert object_at("json:loads", "env.backend") is object_at("json.loads", "x") is json.loads


@pytest.mark.parametrize(
    "path", ["", "x", ".", "..a", "./json:loads", "a..b", "a b:c", "a:", ":a", "\0.a", "a/b:c"]
)
def test_what_is_no_dotted_path(path):
    with pytest.raises(ProximaError, match=r"env.backend: .* is not a dotted path"):
        object_at(path, "env.backend")


def test_a_module_that_fails_when_it_is_imported(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "breaks_at_once.py").write_text("1 / 0\n")
    (tmp_path / "not_python.py").write_text("def (:\n")
    with pytest.raises(ProximaError, match=r"breaks_at_once fails .* ZeroDivisionError"):
        object_at("breaks_at_once:x", "env.backend")
    with pytest.raises(ProximaError, match=r"not_python fails .* SyntaxError"):
        object_at("not_python:x", "env.backend")
    with pytest.raises(ProximaError, match="cannot import nowhere_at_all"):
        object_at("nowhere_at_all:x", "env.backend")
