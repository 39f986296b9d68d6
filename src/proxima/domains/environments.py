"""What the makers of environments share: refusals that name what is near, and types that stay.

Worker processes import this file too: JAX is imported where it is used.
"""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, SupportsFloat

from proxima.core.errors import ProximaError
from proxima.core.types import PyTree


def suggestion(
    name: str, known: Iterable[str], most: int = 3, cutoff: float = 0.5, otherwise: str = ""
) -> str:
    """The known names that are like this one; where none is, what `otherwise` says, or all of them."""
    names = list(known)
    near = difflib.get_close_matches(name, names, most, cutoff)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return otherwise or f"it has: {', '.join(names)}"


def check_params(params: Mapping[str, Any], known: Mapping[str, Any], owner: str) -> None:
    """An error in words where a key of env.params is none of the owner's settings, or its value is no number.

    `known` has what the settings are by default; from None nothing follows.
    """
    settings = sorted(known)
    for key, value in params.items():
        if key not in settings:
            hint = suggestion(key, settings, 1, 0.6)
            raise ProximaError(f"env.params.{key}: {owner} has no such setting; {hint}")
        default = known[key]
        if isinstance(value, str) and isinstance(default, SupportsFloat):
            raise ProximaError(
                f"env.params.{key}: expected a number, got {value!r}; {owner} has {default} there"
            )


def strongly_typed(tree: PyTree) -> PyTree:
    """The leaves as arrays of their own types.

    What came from Python numbers is weakly typed, what came from a checkpoint is not; as arguments of a
    compiled program they would be two kinds, and the program compiled twice.
    """
    import jax
    import jax.numpy as jnp

    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.asarray(leaf).dtype), tree)
