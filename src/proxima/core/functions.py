"""Objects of the user's, by their dotted path."""

import importlib
from collections.abc import Callable
from typing import Any

from proxima.core.errors import ProximaError


def object_at(path: str, setting: str, kind: str = "object") -> Any:
    """What `setting` names: package.module.name, or package.module:name; errors call it a `kind`."""
    module, _, name = path.replace(":", ".").rpartition(".")
    if not module or not name:
        raise ProximaError(
            f"{setting}: {path!r} is not a dotted path such as package.module.{kind}"
        )
    try:
        names = vars(importlib.import_module(module))
    except ImportError as failure:
        raise ProximaError(
            f"{setting}: cannot import {module} ({failure}); it must be installed, or stand in the "
            "working directory or beside the scenario's file"
        ) from failure
    if name not in names:
        raise ProximaError(f"{setting}: {module} has no {kind} {name}")
    return names[name]


def function_at(path: str, setting: str) -> Callable[..., Any]:
    """The function that `setting` names: package.module.function, or package.module:function."""
    function: object = object_at(path, setting, "function")
    if not callable(function):
        module, _, name = path.replace(":", ".").rpartition(".")
        raise ProximaError(f"{setting}: {module} has no function {name}")
    return function
