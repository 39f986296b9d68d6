"""A trained policy as a function: loaded from its directory, a trial or a run, without its environment."""

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, final

import numpy as np

from proxima.core.errors import ProximaError
from proxima.core.paths import usable_path
from proxima.files import explaining
from proxima.run.files import find_run
from proxima.track.registry import POLICY_FILES, load_exported


@final
class Policy:
    """An exported policy; call it, or `predict`, with an observation or a batch of them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._act = load_exported(directory)
        self.about: dict[str, Any] = json.loads((directory / "policy.json").read_text())
        translation = self.about.get("translation", {})
        self._one_hot: dict[str, tuple[int, int]] = translation.get("one_hot", {})
        start = translation.get("action_start")
        self._start = None if start is None else np.array(start)

    def predict(self, observations: Any) -> np.ndarray:
        """The greedy action at one observation, or those at a batch (n, ...), as the environment has them."""
        observations = self._encoded(observations)
        try:
            actions = self._act(observations)
        except ValueError as error:
            raise ProximaError(f"predict: {error}") from error
        if self._start is not None:
            actions = actions + self._start.astype(actions.dtype).reshape(actions.shape[1:])
        space = self.about["action_space"]
        if "low" in space:  # the environment was given clipped actions too
            low, high = (np.reshape(space[bound], space["shape"]) for bound in ("low", "high"))
            actions = np.clip(actions, low, high).astype(actions.dtype)
        return actions[0] if self._is_single(observations) else actions

    __call__ = predict

    def save(self, path: str | Path) -> Path:
        """A copy of the policy's directory; `load_policy` reads it, and so does anything that has JAX."""
        target = Path(usable_path(str(path)))
        if target.exists() and not _is_policy(target):
            raise ProximaError(f"{target}: exists and is no policy; choose another place")
        with explaining(target):
            shutil.copytree(self.directory, target, dirs_exist_ok=True)
        return target

    def _encoded(self, observations: Any) -> Any:
        """Numbers of a Discrete space as flags, entries of a Dict within a Dict under one name."""
        if "fields" not in self.about["observation"]:
            return _flags(observations, self._one_hot.get(""))
        if not isinstance(observations, Mapping):
            names = ", ".join(self.about["observation"]["fields"])
            raise ProximaError(f"predict: this policy takes named arrays: {names}")
        flat = dict(_flattened(observations, ""))
        return {name: _flags(entry, self._one_hot.get(name)) for name, entry in flat.items()}

    def _is_single(self, observations: Any) -> bool:
        kind = self.about["observation"]
        if "fields" in kind:
            name, kind = next(iter(kind["fields"].items()))
            observations = observations[name]
        return bool(np.shape(observations) == tuple(kind["shape"]))

    def __repr__(self) -> str:
        kind = self.about["observation"]
        seen = ", ".join(kind["fields"]) if "fields" in kind else tuple(kind["shape"])
        action = self.about["action"]
        return (
            f"Policy({self.about['algorithm']} on {self.about['env']}, observation {seen} → action "
            f"{tuple(action['shape'])} {action['dtype']}, from {self.directory})"
        )


def _flags(observations: Any, numbers: tuple[int, int] | None) -> Any:
    values = np.asarray(observations)
    if numbers is None or not np.issubdtype(values.dtype, np.integer):
        return observations
    first, count = numbers
    return values[..., None] == np.arange(first, first + count)


def _flattened(observations: Mapping[str, Any], above: str) -> Iterator[tuple[str, Any]]:
    for name, entry in observations.items():
        if isinstance(entry, Mapping):
            yield from _flattened(entry, f"{above}{name}.")
        else:
            yield f"{above}{name}", entry


def load_policy(reference: str | Path, output_directory: str = "logs") -> Policy:
    """The policy in a directory, of a trial's directory, or of the first trial of a run or an experiment."""
    path = Path(usable_path(str(reference)))
    for candidate in (path, path / "policy"):
        if _is_policy(candidate):
            return Policy(candidate)
    return Policy(find_run(str(reference), output_directory).trial(0) / "policy")


def _is_policy(directory: Path) -> bool:
    return all((directory / name).is_file() for name in POLICY_FILES)
