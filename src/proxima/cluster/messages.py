"""What driver and workers say to each other: JSON, and states as safetensors.

order   which block of which stage, where it stands, how many chunks; the states of its lanes
answer  a report per chunk, how it stands now; the states of its lanes, and those at their best

Orders of a search's lanes are in tune/blocks.py; which kind an order is of, the message says.
"""

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple, TypeVar

from pydantic import TypeAdapter

from proxima.train.books import Progress
from proxima.train.stage import Row, Score

T = TypeVar("T")


class Message(NamedTuple):
    """A message as it travels: text, and bytes by name."""

    text: str
    states: Mapping[str, bytes]
    kind: str = "stage"  # of an order: a key of `worker.KINDS`


class Order(NamedTuple):
    """A block of a stage, to be trained for some chunks."""

    planned: int  # which of the scenario's stages
    block: int
    progress: Progress | None  # None: from the beginning
    chunks: int


class ChunkReport(NamedTuple):
    """A report of a chunk, without states."""

    progress: Progress
    rows: list[Row | None]
    scores: list[Score | None] | None
    seconds: float
    evaluate_seconds: float
    best: list[int]
    save: bool
    notices: list[str]


class Answer(NamedTuple):
    """What came of an order."""

    reports: list[ChunkReport]
    leaves: dict[str, list[Any]]  # shapes and types of a lane's state
    compile_seconds: float
    seconds: float  # in all


def written(content: Any) -> str:
    """A named tuple as JSON; numbers that are not finite stay what they are."""
    return json.dumps(_adapter(type(content)).dump_python(content, mode="python"))


def read(text: str, kind: type[T]) -> T:
    """The named tuple that JSON holds."""
    content: T = _adapter(kind).validate_python(json.loads(text))
    return content


def _made(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


_adapter: Callable[[Any], TypeAdapter[Any]] = cache(_made)  # making one takes milliseconds
