"""Which arrays of an observation are pictures, and how they lie: decided by shape and dtype alone.

    rank 3                a picture; of its first and last axis the shorter one has the channels, the last
                          one if both are equal
    rank 2, uint8         a picture in shades of grey: one channel
    anything else, or fewer than SMALLEST_SIDE pixels high or wide: no picture

So (84, 84, 4) and (4, 84, 84) are the same picture, (10, 10, 10) has its channels last, and a board of
flags (10, 10) is none.
"""

from typing import Any, NamedTuple

from proxima.core.spaces import ACTION_MASK, Box, Fields, ObservationSpace

SMALLEST_SIDE = 5  # pixels; what is smaller is a table rather than a picture
WHOLE = ""  # the name of an observation that has no fields


class Picture(NamedTuple):
    """A picture's size, and where its channels lie."""

    height: int
    width: int
    channels: int
    channel_axis: int | None  # 0, 2, or None where the array has no such axis

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.height, self.width, self.channels


def picture_of(shape: tuple[int, ...], dtype: Any) -> Picture | None:
    """How an array of this shape and dtype is a picture, None where it is none."""
    if len(shape) == 2 and str(dtype) == "uint8":
        found = Picture(*shape, 1, None)
    elif len(shape) == 3 and shape[0] < shape[2]:
        found = Picture(shape[1], shape[2], shape[0], 0)
    elif len(shape) == 3:
        found = Picture(*shape, 2)
    else:
        return None
    return found if min(found.height, found.width) >= SMALLEST_SIDE else None


def is_bytes_picture(shape: tuple[int, ...], dtype: Any) -> bool:
    """Whether this is a picture of bytes, which nets scale themselves and nothing else touches."""
    return str(dtype) == "uint8" and picture_of(shape, dtype) is not None


def parts_of(space: ObservationSpace) -> dict[str, Box]:
    """The arrays that a net sees, by name; the action mask is not among them."""
    if isinstance(space, Fields):
        return {name: part for name, part in space.items() if name != ACTION_MASK}
    return {WHOLE: space}


def pictures_of(space: ObservationSpace) -> dict[str, Picture]:
    """The pictures among the arrays of an observation, by name."""
    found = {name: picture_of(part.shape, part.dtype) for name, part in parts_of(space).items()}
    return {name: picture for name, picture in found.items() if picture is not None}
