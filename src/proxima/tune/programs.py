"""The programs of a search: configurations that differ in numbers alone share one.

    settings ─► scenario ─► agent and environments ─┬─► structure: which program
                                                    └─► arrays: the numbers that a lane has of its own

Nothing declares which settings are numbers: two configurations share a program if their agents and
environments have the same structure, which is what decides whether JAX compiles anew.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, final

import jax
import numpy as np

from proxima.build import domain_of
from proxima.core.errors import ProximaError
from proxima.core.types import PyTree
from proxima.domains.domain import Prepared
from proxima.scenario import Scenario, changed, to_mapping
from proxima.train.program import Lanes, Program
from proxima.tune.check import SOURCE
from proxima.tune.method import Settings

Numbers = tuple[np.ndarray | None, ...]  # leaves of `Lanes.settings`; None: what all lanes share


class Loaded(NamedTuple):
    """A program that is ready to run."""

    number: int
    program: Program
    lanes: Lanes
    updates: int  # of a whole training


@final
class Programs:
    """Finds the program of every configuration, and loads one at a time."""

    def __init__(self, scenario: Scenario, width: int, paths: Sequence[str]):
        self._scenario = replace(scenario, trials=width)
        self._env_varies = any(not path.startswith("algorithm.") for path in paths)
        self._ground = ""
        self._prepared: Prepared | None = None
        self._keys: list[Any] = []  # of the programs
        self._first: list[Settings] = []  # a configuration of each
        self._known: dict[str, int] = {}
        self._loaded: Loaded | None = None

    def __len__(self) -> int:
        return len(self._keys)

    def scenario(self, settings: Settings) -> Any:
        """The scenario with these settings."""
        return changed(self._scenario, dict(settings), SOURCE)

    def of(self, settings: Settings) -> int:
        """The number of the program that trains such a configuration."""
        name = json.dumps(settings, sort_keys=True)
        if name not in self._known:
            scenario = self.scenario(settings)
            key = self._key(scenario, self._settled(scenario))
            if key not in self._keys:
                self._keys.append(key)
                self._first.append(settings)
            self._known[name] = self._keys.index(key)
        return self._known[name]

    def load(self, number: int) -> Loaded:
        """The program, ready to run; another one that was loaded is given up."""
        if self._loaded is not None and self._loaded.number == number:
            return self._loaded
        scenario = self.scenario(self._first[number])
        program = self._prepare(scenario)
        if self._key(scenario, _lanes(program).settings) != self._keys[number]:
            program = self._prepare(scenario, anew=True)  # the same environments, other sizes
        updates = -(-scenario.training.max_steps // program.steps_per_update)
        self._loaded = Loaded(number, program, _lanes(program), updates)
        return self._loaded

    def numbers(self, settings: Settings) -> Numbers:
        """The numbers of a configuration of the loaded program."""
        assert self._loaded is not None
        tree = self._settled(self.scenario(settings))
        leaves = jax.tree.leaves(tree)
        is_whole = self._env_varies and self._loaded.lanes.env_varies
        own = len(leaves) if is_whole else len(jax.tree.leaves(tree.agent))  # the agent comes first
        return (*(np.asarray(leaf) for leaf in leaves[:own]), *[None] * (len(leaves) - own))

    def own(self, lanes: Sequence[Numbers]) -> PyTree:
        """What lanes with these numbers have of their own, as `Lanes` takes it."""
        assert self._loaded is not None
        stacked = [
            None if column[0] is None else np.stack(column) for column in zip(*lanes, strict=True)
        ]
        return jax.tree.unflatten(jax.tree.structure(self._loaded.lanes.settings), stacked)

    def close(self) -> None:
        """Free the environments."""
        if self._prepared is not None:
            self._prepared.close()
        self._ground, self._prepared, self._loaded = "", None, None

    def _settled(self, scenario: Any) -> PyTree:
        """The scenario as `Lanes.settings`."""
        lanes = _lanes(self._prepare(self._scenario) if self._prepared is None else self._program())
        if lanes.env_varies and self._ground != ground(scenario):
            lanes = _lanes(self._prepare(scenario))
        return lanes.with_algorithm(scenario.algorithm)

    def _key(self, scenario: Any, tree: PyTree) -> Any:
        """What decides which program it is: the structure; on the host also which environments there are."""
        leaves, structure = jax.tree.flatten(tree)
        shapes = tuple((np.shape(leaf), np.asarray(leaf).dtype.str) for leaf in leaves)
        env = "" if _lanes(self._program()).env_varies else ground(scenario)
        return structure, shapes, env

    def _program(self) -> Program:
        assert self._prepared is not None
        program = self._prepared.program
        if program is None or program.lanes is None:
            raise ProximaError("this scenario's trials do not train side by side in one program")
        return program

    def _prepare(self, scenario: Any, anew: bool = False) -> Program:
        if anew or self._prepared is None or self._ground != ground(scenario):
            if self._prepared is not None:
                self._prepared.close()
            self._ground, self._prepared = ground(scenario), domain_of(scenario).prepare(scenario)
        return self._program()


def ground(scenario: Any) -> str:
    """All settings but those of the algorithm."""
    sections = {key: value for key, value in to_mapping(scenario).items() if key != "algorithm"}
    return json.dumps([sections, scenario.algorithm.name], sort_keys=True)


def _lanes(program: Program) -> Lanes:
    assert program.lanes is not None
    return program.lanes
