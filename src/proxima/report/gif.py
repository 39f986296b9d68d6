"""Films as GIF files: one palette for all frames, and of each frame only what changed.

Pillow's own writer gives every frame its palette and repeats what did not change, which makes files
several times as large.
"""

import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Frame = NDArray[np.uint8]  # (height, width, 3)

SHADES = 64  # colours of a film; the last stands for "as before"


def write_gif(path: str | Path, frames: Sequence[Frame], fps: int = 30) -> None:
    """Write frames as an endless GIF in one shared palette; the last is held for a second.

    GIF counts time in hundredths of a second, and equal neighbours become one longer frame.
    """
    from PIL import Image

    sample = [Image.fromarray(frame) for frame in frames[:: max(1, len(frames) // 8)]]
    images = (Image.fromarray(frame) for frame in frames)
    write_images(path, images, sample, len(frames), fps)


def write_images(
    path: str | Path, images: Iterable[Any], sample: Sequence[Any], count: int, fps: int = 30
) -> None:
    """Write `count` Pillow images one by one, in a palette that suits the sample of them."""
    from PIL import Image
    from PIL.GifImagePlugin import getdata

    pixels = Image.fromarray(np.concatenate([np.asarray(image) for image in sample]))
    palette: Any = pixels.quantize(SHADES - 1, method=Image.Quantize.MAXCOVERAGE)
    delay = max(20, 10 * round(100 / fps))  # viewers slow anything below 20 ms down to 100 ms
    parts: list[tuple[Any, tuple[int, int], int]] = []
    before = None
    for index, image in enumerate(images):
        lasts = delay if index < count - 1 else 1000
        flat = np.asarray(image.quantize(palette=palette, dither=Image.Dither.NONE))
        shown, corner = (flat, (0, 0)) if before is None else _difference(before, flat)
        if shown.size:
            parts.append((Image.fromarray(shown), corner, lasts))
        else:
            parts[-1] = (*parts[-1][:2], parts[-1][2] + lasts)
        before = flat

    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with Path(path).open("wb") as file:
        file.write(_header(image.size, bytes(palette.getpalette())))
        for image, corner, lasts in parts:
            options = {"duration": lasts, "transparency": SHADES - 1, "disposal": 1}
            file.write(b"".join(getdata(image, corner, **options)))
        file.write(b";")


def _difference(before: Frame, after: Frame) -> tuple[Frame, tuple[int, int]]:
    """The rectangle in which the frames differ, see-through where they do not, and its corner."""
    changed = before != after
    rows, columns = (np.flatnonzero(changed.any(axis=axis)) for axis in (1, 0))
    if not len(rows):
        return after[:0, :0], (0, 0)
    region = slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)
    shown = np.where(changed[region], after[region], np.uint8(SHADES - 1))
    return shown, (int(columns[0]), int(rows[0]))


def _header(size: tuple[int, int], colours: bytes) -> bytes:
    """The beginning of a GIF: size, palette, and that it is shown again and again."""
    table = 0xF0 | (SHADES.bit_length() - 2)  # one palette for all, of 2 ** (n + 1) colours
    screen = struct.pack("<HHBBB", *size, table, 0, 0)
    endless = b"!\xff\x0bNETSCAPE2.0\x03\x01\x00\x00\x00"
    return b"GIF89a" + screen + colours[: 3 * SHADES].ljust(3 * SHADES, b"\0") + endless
