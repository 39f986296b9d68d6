"""Results as those read them who only look things up in them."""

from typing import Any, Protocol


class Record(Protocol):
    """What is read by name: a mapping from JSON, or a frozen result."""

    def __getitem__(self, name: str, /) -> Any: ...
