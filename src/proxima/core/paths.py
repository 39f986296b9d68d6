"""Paths as people write them."""

import os

_SQLITE = "sqlite:///"


def expand_home(text: str) -> str:
    """A path, or the address of a sqlite file, whose leading `~` is the user's home directory."""
    if text.startswith(_SQLITE):
        return _SQLITE + os.path.expanduser(text.removeprefix(_SQLITE))
    return os.path.expanduser(text)
