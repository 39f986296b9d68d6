"""Where names become things: the tables of algorithms and domains, and the users' own by dotted path.

These two tables are all that the house knows of any of them. An entry is imported when it is asked for.
"""

import difflib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proxima.core.errors import ProximaError
from proxima.core.functions import object_at

if TYPE_CHECKING:  # a list of commands should not wait for JAX
    from proxima.core.algorithm import Algorithm
    from proxima.domains.domain import Domain

ALGORITHMS = {
    "ppo": "proxima.algorithms.ppo:ALGORITHM",
    "ddpg": "proxima.algorithms.ddpg:ALGORITHM",
    "sac": "proxima.algorithms.sac:ALGORITHM",
    "spo": "proxima.algorithms.spo:ALGORITHM",
    "dqn": "proxima.algorithms.dqn:ALGORITHM",
    "pqn": "proxima.algorithms.pqn:ALGORITHM",
}
DOMAINS = {
    "control": "proxima.domains.control.domain:DOMAIN",
    "packing": "proxima.domains.packing.domain:DOMAIN",
    "trading": "proxima.domains.trading.domain:DOMAIN",
    "portfolio": "proxima.domains.trading.portfolio.domain:DOMAIN",
    "language": "proxima.domains.language.domain:DOMAIN",
}
_importable: dict[str, None] = {}  # in the order in which they were named


def algorithm(name: str) -> "Algorithm":
    """The algorithm of that name, or the user's own at package.module:NAME."""
    from proxima.core.algorithm import Algorithm

    return named(name, ALGORITHMS, "algorithm.name", Algorithm)


def domain(name: str) -> "Domain":
    """The Domain of that name, or the user's own at package.module:NAME."""
    from proxima.domains.domain import Domain

    return named(name, DOMAINS, "domain", Domain)


def domain_of(scenario: Any) -> "Domain":
    """The Domain that a scenario belongs to."""
    return domain(scenario.domain)


def backends() -> list[str]:
    """Every backend of every domain."""
    return [backend for name in DOMAINS for backend in domain(name).backends]


def domain_with_backend(backend: str) -> str:
    """The name of the domain whose environments have this backend; the first domain's where none has."""
    owners = [name for name in DOMAINS if backend in domain(name).backends]
    return owners[0] if owners else next(iter(DOMAINS))


def env_settings(env: Any) -> dict[str, Any]:
    """The section `env` of what a program gives as its environment, by the first domain that takes such."""
    takers = (domain(name).env_settings for name in DOMAINS)
    return dict(next(each for each in takers if each is not None)(env))


def named(name: str, table: Mapping[str, str], setting: str, kind: type) -> Any:
    """What a table has under a name, or what a dotted path leads to; an error in words otherwise."""
    path = table.get(name) or (name if ":" in name else None)
    if path is None:
        near = difflib.get_close_matches(name, table, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ProximaError(
            f"{setting}: {name!r} is not known; {hint}there are {', '.join(table)}, or your own as "
            "package.module:NAME"
        )
    thing = object_at(path, setting)
    if not isinstance(thing, kind):
        raise ProximaError(f"{setting}: {name} is a {type(thing).__name__}, not a {kind.__name__}")
    return thing


def make_importable(*directories: str | Path) -> None:
    """Modules in these directories can be named in settings from now on; installed ones come first."""
    for directory in directories:
        path = str(Path(directory).resolve())
        _importable[path] = None
        if path not in sys.path:
            sys.path.append(path)


def importable_directories() -> tuple[str, ...]:
    """The directories that were made importable, for a run to note: whoever resumes it needs them too."""
    return tuple(_importable)
