"""Scenarios: their config tree (tree.py), reading them strictly (read.py), and what is wrong in words."""

from proxima.domains.language.scenario import LanguageScenario
from proxima.scenario.read import (
    AnyScenario,
    describe,
    dump,
    from_mapping,
    json_schema,
    load,
    parse,
    shipped,
    to_mapping,
    to_stored,
    with_environment,
)
from proxima.scenario.tree import Scenario

__all__ = [
    "AnyScenario",
    "LanguageScenario",
    "Scenario",
    "describe",
    "dump",
    "from_mapping",
    "json_schema",
    "load",
    "parse",
    "shipped",
    "to_mapping",
    "to_stored",
    "with_environment",
]
