"""What driver and workers say to each other: JSON, and states as safetensors.

order   which block of which stage, where it stands, how many chunks; the states of its lanes
answer  a report per chunk, how it stands now; the states of its lanes, and those at their best
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

from pydantic import TypeAdapter

from proxima.train.books import Progress
from proxima.train.stage import Row, Score

T = TypeVar("T")


class Message(NamedTuple):
    """A message as it travels: text, and bytes by name."""

    text: str
    states: Mapping[str, bytes]


class Order(NamedTuple):
    """A block of a stage, to be trained for some chunks."""

    planned: int  # which of the scenario's stages
    block: int
    progress: Progress | None  # None: from the beginning
    chunks: int


class Heard(NamedTuple):
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

    reports: list[Heard]
    leaves: dict[str, list[Any]]  # shapes and types of a lane's state
    compile_seconds: float
    seconds: float  # in all


def written(content: Any) -> str:
    """A named tuple as JSON; numbers that are not finite stay what they are."""
    return json.dumps(TypeAdapter(type(content)).dump_python(content, mode="python"))


def read(text: str, kind: type[T]) -> T:
    """The named tuple that JSON holds."""
    return TypeAdapter(kind).validate_python(json.loads(text))
