"""A trained policy as a function: loaded from its directory, a trial or a run, without its environment."""

import shutil
from pathlib import Path
from typing import Any, final

import numpy as np

from proxima.core.errors import ProximaError
from proxima.core.paths import usable_path
from proxima.files import explaining
from proxima.run.files import find_trial
from proxima.track.registry import POLICY_FILES, load_exported
from proxima.track.served_policy import is_single


@final
class Policy:
    """An exported policy; call it, or `predict`, with an observation or a batch of them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._act, self.about = load_exported(directory)

    def predict(self, observations: Any) -> np.ndarray:
        """The greedy action at one observation, or those at a batch (n, ...), as the environment has them."""
        try:
            actions = self._act(observations)
        except ValueError as error:
            raise ProximaError(f"predict: {error}") from error
        return actions[0] if is_single(observations, self.about["observation"]) else actions

    __call__ = predict

    def save(self, path: str | Path) -> Path:
        """A copy of the policy's directory; `load_policy` reads it, and so does anything that has JAX."""
        target = Path(usable_path(str(path)))
        if target.exists() and not is_policy(target):
            raise ProximaError(f"{target}: exists and is no policy; choose another place")
        with explaining(target):
            shutil.copytree(self.directory, target, dirs_exist_ok=True)
        return target

    def __repr__(self) -> str:
        kind, action = self.about["observation"], self.about["action"]
        seen = ", ".join(kind["fields"]) if "fields" in kind else tuple(kind["shape"])
        taken = self.about["checkpoint"]
        return (
            f"Policy({self.about['algorithm']} on {self.about['env']}, observation {seen} → action "
            f"{tuple(action['shape'])} {action['dtype']}, {taken['kind']} checkpoint, step "
            f"{taken['step']:,}, from {self.directory})"
        )


def load_policy(reference: str | Path, output_directory: str = "logs") -> Policy:
    """The policy in a directory, of a trial, or of the first trial of a run or an experiment.

    Of a trial it is that of the checkpoint by which the trial was judged; `about["checkpoint"]` says which.
    """
    path = Path(usable_path(str(reference)))
    if is_policy(path):
        return Policy(path)
    return Policy(find_trial(str(reference), output_directory) / "policy")


def is_policy(directory: Path) -> bool:
    """Whether all files of an exported policy are there."""
    return all((directory / name).is_file() for name in POLICY_FILES)
