"""A CSV file as lines: each is text with as many cells as the header, or is named with what is wrong.

A reader that fills up short lines, cuts long ones, or reads on where a quote is left open gives numbers of
other columns and loses rows, in silence. So the lines are looked at before anything is read from them. A
quoted cell ends on its line: prices need no cells of several lines, and an open quote would swallow them.
"""

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import numpy as np

from proxima.core.errors import ProximaError

CHUNK = 1 << 24  # bytes looked at together
COMMA, NEWLINE = ord(","), ord("\n")
CELL = r'"(?:[^"]|"")*"|[^",]*'
CELLS = re.compile(rf"(?:{CELL})(?:,(?:{CELL}))*")
NEXT_CELL = re.compile(rf"(?:^|,)({CELL})")
MARKS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}  # what files of other text begin with


def read_header(path: Path) -> list[str]:
    """The names in the first line."""
    with path.open("rb") as file:
        line = file.readline(CHUNK)
    if not line:
        raise ProximaError(
            f"{path}: is empty; a file of prices has a header and a line for each bar"
        )
    if line[:2] in MARKS:
        raise ProximaError(f"{path}: is {MARKS[line[:2]]} text; save it as UTF-8")
    problem = line_problem(line, None)
    if problem is not None:
        raise ProximaError(f"{path}: header: {problem}")
    return cells_of(line)


def check_lines(path: Path, cells: int) -> None:
    """An error that names the first line below the header which has other than so many cells of text."""
    row = 0  # rows count from 1, below the header
    with path.open("rb") as file:
        file.readline()
        for chunk in _chunks(file):
            if not _is_plain(chunk, cells):
                for offset, line in enumerate(chunk.split(b"\n")[: chunk.count(b"\n")], 1):
                    problem = line_problem(line, cells)
                    if problem is not None:
                        raise ProximaError(f"{path}: row {row + offset:,}: {problem}")
            row += chunk.count(b"\n")


def cell_at(path: Path, row: int, column: int) -> str:
    """What is written in a row and a column of a file whose lines are right; both count from 0."""
    with path.open("rb") as file:
        return cells_of(next(islice(file, row + 1, None)))[column]


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    """The rest of a file in pieces of whole lines, the last one ended too."""
    while chunk := file.read(CHUNK):
        chunk += file.readline()
        yield chunk if chunk.endswith(b"\n") else chunk + b"\n"


def _is_plain(chunk: bytes, cells: int) -> bool:
    """Whether nothing in it needs a closer look: quotes, other letters, or another number of commas."""
    if not chunk.isascii() or b'"' in chunk or b"\0" in chunk:
        return False
    letters = np.frombuffer(chunk, np.uint8)
    commas = np.flatnonzero(letters == COMMA)
    ends = np.searchsorted(commas, np.flatnonzero(letters == NEWLINE))
    return bool((np.diff(ends, prepend=0) == cells - 1).all()) and cells > 1


def line_problem(line: bytes, cells: int | None) -> str | None:
    """What is wrong with a line; None: nothing. A header has any number of cells."""
    line = line.rstrip(b"\r\n")
    if b"\0" in line:
        return "has a NUL byte, so this is not text; the file is damaged or is no CSV"
    try:
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        return f"is not UTF-8 text ({failure.reason} at byte {failure.start + 1}); save the file as UTF-8"
    if not CELLS.fullmatch(text):
        return "has a quote that is not closed on its line, or in the middle of a cell; mend the quotes"
    if not line:
        return "is an empty line; delete it"
    if "\r" in text:
        return "has a carriage return within it; end every line with a line feed"
    if cells is None:
        return None
    count = len(cells_of(line))
    if count != cells:
        return (
            f"has {count} cell{'s' * (count != 1)}, the header has {cells}; "
            "give every row one for each column"
        )
    return None


def cells_of(line: bytes) -> list[str]:
    """The cells of a line whose quotes are closed, without them."""
    cells = NEXT_CELL.findall(line.rstrip(b"\r\n").decode("utf-8-sig"))
    return [cell[1:-1].replace('""', '"') if cell.startswith('"') else cell for cell in cells]
