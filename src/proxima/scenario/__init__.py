"""Scenarios: their config tree (tree.py), reading them strictly (read.py), and what is wrong in words."""

from proxima.scenario.read import (
    Overrides,
    changed,
    differences,
    dump,
    from_mapping,
    load,
    parse,
    shipped,
    to_mapping,
    to_stored,
)
from proxima.scenario.schema import json_schema
from proxima.scenario.tree import EnvironmentScenario, Scenario

__all__ = [
    "EnvironmentScenario",
    "Overrides",
    "Scenario",
    "changed",
    "differences",
    "dump",
    "from_mapping",
    "json_schema",
    "load",
    "parse",
    "shipped",
    "to_mapping",
    "to_stored",
]
