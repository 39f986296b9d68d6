"""The home directory in paths."""

import pytest

from proxima.core.errors import ProximaError
from proxima.core.paths import expand_home, usable_path


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("~", "/home/me"),
        ("~/logs", "/home/me/logs"),
        ("sqlite:///~/runs.db", "sqlite:////home/me/runs.db"),
        ("a/~/b", "a/~/b"),
        ("cartpole", "cartpole"),
        ("sqlite:///runs.db", "sqlite:///runs.db"),
        ("http://host/~me", "http://host/~me"),
        ("", ""),
    ],
)
def test_home_is_expanded_where_a_path_begins(monkeypatch, text, expanded):
    monkeypatch.setenv("HOME", "/home/me")
    assert expand_home(text) == expanded


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a\0b", "a\\x00b: is no path: it has a character of number zero"),
        ("\ud800", "\\ud800: is no path: it has half of a character"),
        ("x" * 256, "a name of 256 bytes is in it, and 255 is the most"),
        ("é" * 128, "a name of 256 bytes is in it, and 255 is the most"),
        ("x/" * 2048, "it has 4,096 bytes, and 4,095 is the most"),
    ],
)
def test_what_no_path_can_be_is_told_before_the_system_is_asked(text, told):
    with pytest.raises(ProximaError) as caught:
        usable_path(text)
    assert told in str(caught.value) and len(str(caught.value)) < 160


def test_paths_that_can_be():
    assert usable_path("x" * 255) == "x" * 255
    assert usable_path("") == ""
