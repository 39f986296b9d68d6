"""Spaces of Gymnasium within spaces: the leaves of a Dict or a Tuple, their names, and how they nest.

Names are joined by dots, a Tuple's entries are called "0", "1", …: `{"a": (x, {"b": y})}` has the leaves
"a.0" and "a.1.b". A layout is the nesting in plain values, with names at its leaves, as strict JSON has it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from gymnasium import spaces

from proxima.core import spaces as ours
from proxima.core.errors import ProximaError
from proxima.domains.interface import Description, described_box, described_choices

# Keys of Dicts and positions in Tuples; none where there is no nesting.
Path = tuple[str | int, ...]


def leaves(name: str, role: str, space: Any) -> list[tuple[Path, Any]]:
    """The spaces that a space of an environment is made of, in their order; its `role` is for errors."""
    found = list(_walk(name, role, space, ()))
    names = {name_of(path) for path, _ in found}
    if not found:
        raise ProximaError(
            f"{name}: its {role} space is {space}, in which there is nothing; give it an entry"
        )
    if len(names) < len(found):
        raise ProximaError(
            f"{name}: two fields of its {role} space have the same name when nested keys are joined "
            "by dots; rename a key that has a dot in it"
        )
    return found


def _walk(name: str, role: str, space: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(space, spaces.Tuple):
        for number, inner in enumerate(space.spaces):
            yield from _walk(name, role, inner, (*path, number))
    elif isinstance(space, spaces.Dict):
        for key, inner in space.spaces.items():
            if not isinstance(key, str):
                raise ProximaError(
                    f"{name}: its {role} space has the key {key!r}, and names of fields are texts; rename it"
                )
            yield from _walk(name, role, inner, (*path, key))
    else:
        yield path, space


def name_of(path: Path) -> str:
    """What the leaf at a path is called."""
    return ".".join(map(str, path))


def layout_of(space: Any, path: Path = ()) -> Any:
    """How a space nests: a Dict as a dict, a Tuple as a list, a leaf as its name."""
    if isinstance(space, spaces.Tuple):
        return [layout_of(inner, (*path, number)) for number, inner in enumerate(space.spaces)]
    if isinstance(space, spaces.Dict):
        return {key: layout_of(inner, (*path, key)) for key, inner in space.spaces.items()}
    return name_of(path)


def nested(layout: Any, by_name: Mapping[str, Any]) -> Any:
    """Values by their names as the layout nests them: as Gymnasium has them."""
    if isinstance(layout, list):
        return tuple(nested(inner, by_name) for inner in layout)
    if isinstance(layout, dict):
        return {key: nested(inner, by_name) for key, inner in layout.items()}
    return by_name[layout]


def has_tuple(space: Any) -> bool:
    """Whether a Tuple is somewhere in the space."""
    if isinstance(space, spaces.Dict):
        return any(map(has_tuple, space.spaces.values()))
    return isinstance(space, spaces.Tuple)


def described(space: Any) -> Description:
    """A leaf as JSON has it."""
    shape, dtype = tuple(space.shape), str(space.dtype)
    if isinstance(space, spaces.Discrete):
        return described_choices(int(space.n), int(space.start), shape, dtype)
    if isinstance(space, spaces.MultiDiscrete):
        return described_choices(space.nvec.tolist(), space.start.tolist(), shape, dtype)
    low, high = (0, 1) if isinstance(space, spaces.MultiBinary) else (space.low, space.high)
    return described_box(ours.box(low, high, shape, dtype))
