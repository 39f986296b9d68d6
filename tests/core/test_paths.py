"""The home directory in paths."""

import pytest

from proxima.core.paths import expand_home


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
