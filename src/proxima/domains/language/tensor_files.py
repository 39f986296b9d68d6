"""Safetensors files of models: read with distrust, written whole.

The library refuses offsets that overlap, leave gaps or reach beyond the file. Here its errors get words, and
weights of a type that nobody expects, or that are no numbers, are refused. Read tensor by tensor: beside the
weights at most one is in memory.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from proxima.core.errors import ProximaError
from proxima.files import replacing

DTYPES = ("F32", "F16", "BF16")


class Tensor(NamedTuple):
    """A tensor of a file that is read when it is asked for."""

    file: Path
    name: str
    dtype: str  # as the file has it
    shape: tuple[int, ...]

    def read(self) -> np.ndarray:
        """Its numbers; one that is none is an error."""
        if self.dtype not in DTYPES:
            raise ProximaError(
                f"{self.file}: {self.name} is of type {self.dtype}; known are {', '.join(DTYPES)}"
            )
        # opened anew for each: what was read of an open file stays in memory
        with safe_open(self.file, framework="numpy") as opened:
            array = opened.get_tensor(self.name)
        check_finite(array, self.name, self.file)
        return array


class TensorFile(NamedTuple):
    """What a file has: tensors by name, and notes in words."""

    tensors: dict[str, Tensor]
    notes: dict[str, str]


def open_tensors(file: Path) -> TensorFile:
    """A file's tensors, none of them read yet."""
    if not file.is_file():
        raise ProximaError(f"{file}: no such file{', but a folder' if file.is_dir() else ''}")
    try:
        with safe_open(file, framework="numpy") as opened:
            slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
            tensors = {
                name: Tensor(file, name, part.get_dtype(), tuple(part.get_shape()))
                for name, part in slices.items()
            }
            return TensorFile(tensors, opened.metadata() or {})
    except (OSError, SafetensorError) as error:
        raise ProximaError(
            f"{file}: not a safetensors file, or cut short; fetch or copy it again ({error})"
        ) from None


def check_finite(array: np.ndarray, name: str, file: Path) -> None:
    """Refuse weights that are no numbers: whatever they are used for is none either."""
    if not np.isfinite(array).all():
        count = int(np.sum(~np.isfinite(array)))
        raise ProximaError(
            f"{file}: {name} is NaN or infinite in {count:,} of {array.size:,} places; take an undamaged copy"
        )


def write_tensors(
    tensors: Mapping[str, np.ndarray], file: Path, what: str, notes: Mapping[str, str] | None = None
) -> None:
    """A safetensors file, whole or not at all; `what` is for the error's words."""
    with replacing(file, what) as temporary:
        try:
            save_file(dict(tensors), temporary, metadata={"format": "pt", **(notes or {})})
        except SafetensorError as error:  # what the library makes of a full disk, for one
            raise OSError(str(error)) from error
        temporary.chmod(0o644)  # the library's files are readable by their owner only
