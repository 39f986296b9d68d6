"""Objects of the user's, by their dotted path.

object_at("my_package.module:NAME", setting)    imported
object_at("python:NAME-1a2b3c4d", setting)      one that a program gave us, known in that process only
path_to(thing, name)                            the path of an object: the first kind where there is one
"""

import difflib
import importlib
import importlib.util
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from proxima.core.errors import ProximaError

GIVEN = "python:"  # begins the paths of objects that only the process that was given them can find
OURS = __name__.partition(".")[0]
_given: dict[str, Any] = {}
_imported: dict[str, str] = {}  # modules that settings named, and their files


def object_at(path: str, setting: str, kind: str = "object") -> Any:
    """What `setting` names: package.module.name, or package.module:name; errors call it a `kind`."""
    if path in _given:
        return _given[path]
    if path.startswith(GIVEN):
        raise ProximaError(
            f"{setting}: the {kind} {path.removeprefix(GIVEN)} lives in the program that made it, and in no "
            f"module; go on in that program, or put it into a module and name it package.module:{kind}"
        )
    module, _, name = path.replace(":", ".").rpartition(".")
    if not module or not all(part.isidentifier() for part in (*module.split("."), name)):
        raise ProximaError(
            f"{setting}: {path[:80]!r} is not a dotted path such as package.module.{kind}"
        )
    try:
        names = vars(importlib.import_module(module))
    except ImportError as failure:
        raise ProximaError(
            f"{setting}: cannot import {module} ({failure}); it must be installed, or stand in the "
            "working directory or beside the scenario's file"
        ) from failure
    except Exception as failure:  # the module's own code, which may do anything
        raise ProximaError(
            f"{setting}: {module} fails when it is imported: {type(failure).__name__}: {failure}"
        ) from failure
    note_import(module)
    if name not in names or (kind == "function" and not callable(names[name])):
        near = difflib.get_close_matches(name, names, 1)
        hint = f"; did you mean {near[0]}?" if near and near[0] != name else ""
        raise ProximaError(f"{setting}: {module} has no {kind} {name}{hint}")
    return names[name]


def note_import(module: str) -> None:
    """A setting named this module, and it was imported."""
    _imported[module] = vars(sys.modules[module]).get("__file__") or "built in"


def imports_in(settings: Mapping[str, Any]) -> list[str]:
    """What was imported because these settings name it, a sentence each; our own modules are left out."""
    named: dict[str, list[str]] = {}
    for key, value in _texts_in(settings, ""):
        path = value.replace(":", ".")
        for module in _imported:
            if path.startswith(f"{module}.") and module.partition(".")[0] != OURS:
                named.setdefault(module, []).append(key)
    return [
        f"Imports {module} ({_imported[module]}), named by {', '.join(keys)}."
        for module, keys in named.items()
    ]


def _texts_in(value: Any, key: str) -> Iterator[tuple[str, str]]:
    """Every text in settings, with its dotted key."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _texts_in(inner, f"{key}.{name}".lstrip("."))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _texts_in(inner, f"{key}.{number}")


def function_at(path: str, setting: str) -> Callable[..., Any]:
    """The function that `setting` names: package.module.function, or package.module:function."""
    function: Callable[..., Any] = object_at(path, setting, "function")
    return function


def path_to(thing: Any, name: str) -> str:
    """A path that leads to the object: an importable one, or one with this name for this process only."""
    imported = _imported_path(thing)
    if imported is not None:
        return imported
    path = next((path for path, given in _given.items() if given is thing), None)
    if path is None:
        path = f"{GIVEN}{name}-{secrets.token_hex(4)}"
        _given[path] = thing
    return path


def _imported_path(thing: Any) -> str | None:
    """The path of a class or a function that any process can import; None of everything else."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    loaded = sys.modules.get(module or "")
    if module == "__main__" or name is None or vars(loaded or object).get(name) is not thing:
        return None
    try:
        spec = importlib.util.find_spec(module or "")
    except (ImportError, ValueError):  # a module that was not made by an import
        return None
    same = spec is not None and spec.origin == getattr(loaded, "__file__", None)
    return f"{module}:{name}" if same else None
