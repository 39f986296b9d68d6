"""Numbers of a config as scalar arrays, so that changing one in a running program compiles nothing."""

from dataclasses import fields, replace
from typing import Any, TypeVar, get_args, get_type_hints

import jax
import jax.numpy as jnp
from jax import Array

from proxima.core.types import PyTree

FIELD = jax.tree_util.GetAttrKey("hyper")  # of a learner: where its numbers are

Hyper = TypeVar("Hyper", bound=tuple[Any, ...])
Config = TypeVar("Config")


def make_hyper(kind: type[Hyper], config: Any, **derived: Array) -> Hyper:
    """The NamedTuple `kind` with the config's numbers, and `derived` ones that no setting holds as it is.

    A field of `kind` has the name of a config field: int32 where that is declared an int, else float32.
    A null setting becomes the number that its metadata name: `field(default=None, metadata={"none": 0.0})`.
    """
    hints = get_type_hints(type(config))
    numbers: dict[str, Array] = {}
    for field in fields(config):
        if field.name in kind._fields and field.name not in derived:  # type: ignore[attr-defined]
            hint, value = hints[field.name], getattr(config, field.name)
            scalar = jnp.int32 if int in (hint, *get_args(hint)) else jnp.float32
            numbers[field.name] = scalar(field.metadata["none"] if value is None else value)
    return kind(**numbers, **derived)


def without_numbers(config: Config, kind: type[tuple[Any, ...]], *null_numbers: str) -> Config:
    """The config as a static part of programs: configs that differ in numbers alone become equal.

    In the place of floats, and of integers that `kind` holds, stands a text: a program that takes one from
    here instead of from the learner fails. Null stays null, which may switch a part of the program off,
    but in the settings `null_numbers`, where it only stands for another number.
    """
    numbers = [
        name
        for name, value in vars(config).items()
        if isinstance(value, float) or (value is not None and name in kind._fields)  # type: ignore[attr-defined]
    ]
    texts = dict.fromkeys([*numbers, *null_numbers], "a leaf of the learner")
    return replace(config, **texts)  # type: ignore[type-var]


def with_numbers_of(fresh: PyTree, saved: PyTree) -> PyTree:
    """The saved state with the fresh one's numbers: all leaves below a field `hyper`.

    They are settings, not what was learnt: whoever goes on with other settings goes on with these.
    """

    def choose(path: Any, mine: Any, theirs: Any) -> Any:
        return mine if FIELD in path else theirs

    return jax.tree_util.tree_map_with_path(choose, fresh, saved)
