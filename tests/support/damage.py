"""Files as they should never be: one damage of some bytes, or of a JSON text, for each seed.

Pure functions: the same seed damages the same content in the same way, whatever the machine. Now and then
a damage leaves a file that may still be read (a flipped bit of a weight, a key that nobody asks for), so what
reads it may succeed; it may not hang, nor fail in anything but words.
"""

import json
import random
import struct
from collections.abc import Iterator
from typing import Any

# What stands where something else should: other types, no number, too much of one, text that is hard to read.
STRANGE: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 0.5, -0.0, 2**31, -(2**31), 2**63, 10**30, 1e300, -1e300),
    *(float("nan"), float("inf"), float("-inf")),
    *("", " ", "0", "12", "nan", "../../x", "/dev/null", "\x00", "\ud800", "\u202e", "é" * 300),
    *([], [None], [[]], [-1, 2**63], {}, {"": None}, {"0": {"0": {}}}),
)


def damaged_bytes(data: bytes, seed: int) -> bytes:
    """The bytes with one damage: cut, flipped, filled, doubled, shifted, a number in them made absurd."""
    chance = random.Random(seed)
    damages = (_flipped, _cut, _without_a_piece, _filled, _doubled, _with_noise, _with_a_number)
    return chance.choice(damages)(data, chance)


def damaged_json(text: str, seed: int) -> str:
    """The JSON text with one damage: of a value somewhere in it, of its keys, or of the text itself."""
    chance = random.Random(seed)
    if chance.random() < 0.2:
        return damaged_bytes(text.encode(), chance.getrandbits(32)).decode(errors="replace")
    document = json.loads(text)
    places = list(_places(document))
    if not places or chance.random() < 0.05:
        return json.dumps(chance.choice(STRANGE))
    holder, key = chance.choice(places)
    if isinstance(holder, dict) and chance.random() < 0.1:
        return _with_a_second(document, holder, key, chance.choice(STRANGE))
    chance.choice((_replaced, _replaced, _nudged, _deleted, _wrapped, _renamed))(
        holder, key, chance
    )
    return json.dumps(document)


def _place(data: bytes, chance: random.Random) -> int:
    """Anywhere, but half the time near the start, where headers are."""
    limit = min(len(data), 512) if chance.random() < 0.5 else len(data)
    return chance.randrange(limit) if limit else 0


def _flipped(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 8)) if data else 0):
        changed[_place(data, chance)] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.choice((0, 1, 8, len(data) - 1, _place(data, chance)))]


def _without_a_piece(data: bytes, chance: random.Random) -> bytes:
    start = _place(data, chance)
    return data[:start] + data[start + chance.randint(1, 64) :]


def _filled(data: bytes, chance: random.Random) -> bytes:
    start, length = _place(data, chance), chance.randint(1, 64)
    piece = bytes([chance.choice((0x00, 0xFF, 0x20))]) * len(data[start : start + length])
    return data[:start] + piece + data[start + length :]


def _doubled(data: bytes, chance: random.Random) -> bytes:
    start, length = _place(data, chance), chance.randint(1, 64)
    return data[: start + length] + data[start:]


def _with_noise(data: bytes, chance: random.Random) -> bytes:
    start = _place(data, chance)
    return data[:start] + chance.randbytes(chance.randint(1, 64)) + data[start:]


def _with_a_number(data: bytes, chance: random.Random) -> bytes:
    """Eight or four bytes that read as a length or a float of no sense."""
    start = chance.choice((0, 8, _place(data, chance)))
    whole = chance.choice((0, 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1, len(data)))
    real = chance.choice((float("nan"), float("inf"), 1e30))
    number = chance.choice((struct.pack("<Q", whole), struct.pack("<f", real)))
    return data[:start] + number + data[start + len(number) :]


def _places(document: Any) -> Iterator[tuple[Any, Any]]:
    """Every value below a JSON document, as what holds it and its key there."""
    keys: Any = document if isinstance(document, dict) else ()
    keys = range(len(document)) if isinstance(document, list) else keys
    for key in keys:
        yield document, key
        yield from _places(document[key])


def _replaced(holder: Any, key: Any, chance: random.Random) -> None:
    holder[key] = chance.choice(STRANGE)


def _nudged(holder: Any, key: Any, chance: random.Random) -> None:
    """A number a little or far off, a text longer or cut; else as `_replaced`."""
    value = holder[key]
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return _replaced(holder, key, chance)
    if isinstance(value, str):
        holder[key] = chance.choice((value[:-1], value + value, value.upper(), f" {value}"))
    else:
        changes = (value + 1, value - 1, -value, value * 2, value * 10**12, value / 3, str(value))
        holder[key] = chance.choice(changes)


def _deleted(holder: Any, key: Any, chance: random.Random) -> None:
    del holder[key]


def _wrapped(holder: Any, key: Any, chance: random.Random) -> None:
    deep = value = holder[key]
    for _ in range(chance.choice((1, 1, 900))):
        deep = [deep]
    holder[key] = chance.choice((deep, {"": value}))


def _renamed(holder: Any, key: Any, chance: random.Random) -> None:
    """A key of another name, or a list in another order."""
    if isinstance(holder, list):
        chance.shuffle(holder)
        return
    value = holder.pop(key)
    holder[chance.choice((key.upper(), f"{key} ", f"_{key}", "../x", "", key[:-1]))] = value


def _with_a_second(document: Any, holder: dict, key: str, value: Any) -> str:
    """The text in which one key stands twice; readers disagree on which counts."""
    mark = "\x00twice\x00"
    holder[mark] = value
    return json.dumps(document).replace(json.dumps(mark), json.dumps(key))
