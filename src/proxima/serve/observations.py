"""Observations between JSON and arrays: whatever a client sends becomes rows, or a sentence."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from proxima.serve.batching import Rows, mapped
from proxima.serve.http import Refusal
from proxima.track.served_policy import as_rows, by_name, first_memory, is_single, nested


def read_rows(given: Any, about: Mapping[str, Any], limit: int) -> tuple[Rows, bool]:
    """The rows that a client means, at the beginning of their episodes, and whether it is one observation."""
    kind = about["observation"]
    observations = _as_nested(given, kind.get("layout"))
    try:
        if "fields" in kind:
            flat = by_name(observations, kind)
            unknown = sorted(set(flat) - set(kind["fields"]))
            if unknown:
                raise ValueError(
                    f"there is no {unknown[0]!r:.60}; there are {', '.join(kind['fields'])}"
                )
            for name, value in flat.items():
                _check_numbers(value, f"observation.{name}")
        else:
            _check_numbers(observations, "observation")
        with np.errstate(all="ignore"):  # what does not fit the dtype is refused below
            rows, single = as_rows(observations, kind), is_single(observations, kind)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise Refusal(422, f"observation: {error}"[:500]) from error
    arrays = list(rows.values()) if isinstance(rows, dict) else [rows]
    if not all(np.isfinite(array).all() for array in arrays):
        raise Refusal(
            422, f"observation: a number does not fit {arrays[0].dtype}; send smaller ones"
        )
    count = len(arrays[0])
    if count > limit:
        raise Refusal(413, f"observation: {count:,} rows; at most {limit:,} are taken at once")
    return Rows(rows, first_memory(about, count), count), single


def _as_nested(given: Any, layout: Any) -> Any:
    """Lists as tuples where the environment has tuples, for JSON has none."""
    if isinstance(layout, list) and isinstance(given, list):
        inner = [*layout, *[None] * len(given)]
        return tuple(_as_nested(entry, inner[n]) for n, entry in enumerate(given))
    if isinstance(layout, dict) and isinstance(given, dict):
        return {key: _as_nested(entry, layout.get(key)) for key, entry in given.items()}
    return given


def _check_numbers(value: Any, where: str) -> None:
    """Refuses texts, nulls, objects and infinities, of which NumPy would make numbers or objects."""
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError) as error:
        raise Refusal(422, f"{where}: its lists are not equally long") from error
    if array.dtype.kind not in "biuf" or not np.isfinite(array).all():
        raise Refusal(
            422, f"{where}: expected numbers of at most 64 bits, in lists of equal length"
        )


def with_flags(rows: Rows, flags: Any) -> Rows:
    """The rows, those marked in the flags at the beginning of an episode."""
    if flags is None:
        return rows
    given = [flags] if isinstance(flags, bool) else flags
    is_list = isinstance(given, list) and all(isinstance(flag, bool) for flag in given)
    if not is_list or len(given) != rows.size:
        raise Refusal(422, f"episode_start: expected {rows.size} flags, true or false, one a row")
    begins = np.asarray(given, bool)

    def kept(part: np.ndarray) -> np.ndarray:
        return np.where(begins.reshape(-1, *(1,) * (part.ndim - 1)), 0, part).astype(part.dtype)

    return rows._replace(memory=mapped(kept, rows.memory))


def as_json(actions: Any, about: Mapping[str, Any], single: bool) -> Any:
    """Actions as JSON, as the environment nests them."""
    arrays = list(actions.values()) if isinstance(actions, dict) else [actions]
    if not all(np.isfinite(array).all() for array in arrays):
        raise Refusal(422, "observation: the policy's action there is no finite number")
    plain = mapped(lambda array: (array[0] if single else array).tolist(), actions)
    return nested(plain, about["action"]["layout"]) if "fields" in about["action"] else plain
