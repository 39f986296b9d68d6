"""What is wrong with settings that are each right alone, said so that a user can mend it."""

from typing import NamedTuple

KeyPath = tuple[str | int, ...]


class Fault(NamedTuple):
    """What is wrong, and the keys that make it so, the one to name first."""

    paths: tuple[KeyPath, ...]
    text: str
