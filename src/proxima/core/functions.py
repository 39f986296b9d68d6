"""Functions of the user's, found by their dotted path."""

import importlib
from collections.abc import Callable
from typing import Any

from proxima.core.errors import ProximaError


def function_at(path: str, setting: str) -> Callable[..., Any]:
    """The function that `setting` names: package.module.function, or package.module:function."""
    module, _, name = path.replace(":", ".").rpartition(".")
    if not module or not name:
        raise ProximaError(
            f"{setting}: {path!r} is not a dotted path such as package.module.function"
        )
    try:
        found: object = vars(importlib.import_module(module)).get(name)
    except ImportError as failure:
        raise ProximaError(
            f"{setting}: cannot import {module} ({failure}); is its directory in PYTHONPATH?"
        ) from failure
    if not callable(found):
        raise ProximaError(f"{setting}: {module} has no function {name}")
    return found
