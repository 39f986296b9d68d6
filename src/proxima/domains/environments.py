"""What the makers of environments share: refusals that name what is near, and types that stay.

Worker processes import this file too: JAX is imported where it is used.
"""

import difflib
from collections.abc import Iterable

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


def check_params(params: Iterable[str], known: Iterable[str], owner: str) -> None:
    """An error in words where a key of env.params is none of the owner's settings."""
    settings = sorted(known)
    for key in params:
        if key not in settings:
            hint = suggestion(key, settings, 1, 0.6)
            raise ProximaError(f"env.params.{key}: {owner} has no such setting; {hint}")


def strongly_typed(tree: PyTree) -> PyTree:
    """The leaves as arrays of their own types.

    What came from Python numbers is weakly typed, what came from a checkpoint is not; as arguments of a
    compiled program they would be two kinds, and the program compiled twice.
    """
    import jax
    import jax.numpy as jnp

    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.asarray(leaf).dtype), tree)
