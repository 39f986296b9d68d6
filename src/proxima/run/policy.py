"""A trained policy as a function: loaded from its directory, a trial or a run, without its environment."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

from proxima.build import domain
from proxima.core.errors import ProximaError
from proxima.core.paths import usable_path
from proxima.domains.domain import Domain, RawPolicy
from proxima.files import explaining
from proxima.run.files import find_policy, is_policy
from proxima.run.read import make_run_importable
from proxima.track.registry import POLICY_FILES, load_exported
from proxima.track.served_policy import Player, is_single, nested, play


@final
class Policy:
    """An exported policy; call it, or `predict`, with an observation or a batch of them.

    One with a memory remembers the episodes that it plays, one a row, from call to call. `step` remembers
    nothing: it takes and gives the memory, for whoever plays several sets of episodes in turn.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._loaded = load_exported(directory)
        self.about = self._loaded.about
        self._player = Player(self._loaded)
        self._raw = _raw_policy(directory, self.about)

    def reset(self) -> None:
        """Forget: the next observations are the first of their episodes."""
        self._player.reset()

    def predict(self, observations: Any, state: Any = None, episode_start: Any = None) -> Any:
        """The greedy action at one observation, or those at a batch (n, ...), as the environment has them.

        Where the environment's actions are a Dict or a Tuple, so is an action; of a batch, every array in it
        has n rows. `episode_start`, a flag a row, says where an episode begins; without a memory it makes no
        difference. Of what comes before observations, as `about["raw"]` says where a policy takes such a
        thing, it is what to do there; `state` goes with it.
        """
        if self._raw is not None and self._raw.takes(observations):
            _refuse_flags(episode_start)
            return self._raw.decide(self._loaded.step, observations, state)
        if state is not None:
            raise ProximaError(
                "predict: a state goes with raw input, and this is an observation; step takes a state"
            )
        with _in_our_words("predict"):
            actions = self._player.act(observations, episode_start)
            return self._given(actions, observations)

    def step(
        self, observations: Any, state: Any = None, episode_start: Any = None
    ) -> tuple[Any, Any]:
        """What `predict` gives, and the state to give with what comes next; without one it begins.

        What `predict` and other states remember is left alone. A state of observations is the memory, arrays
        by name with a row for each episode, none without a memory; that of raw input is its domain's.
        """
        if self._raw is not None and self._raw.takes(observations):
            _refuse_flags(episode_start)
            return self._raw.step(self._loaded.step, observations, state)
        if not isinstance(state, Mapping | None):
            raise ProximaError(
                f"step: the state is a {type(state).__name__}; give back what step gave, or none at the start"
            )
        with _in_our_words("step"):
            actions, memory = play(self._loaded, observations, state or {}, episode_start)
            return self._given(actions, observations), memory

    def _given(self, actions: Any, observations: Any) -> Any:
        """Actions as the environment nests them, without rows where there was one observation."""
        single = is_single(observations, self.about["observation"])
        if "fields" not in self.about["action"]:
            return actions[0] if single else actions
        by_name = {name: array[0] if single else array for name, array in actions.items()}
        return nested(by_name, self.about["action"]["layout"])

    __call__ = predict

    def save(self, path: str | Path) -> Path:
        """A copy of the policy's files; `load_policy` reads it, and so does anything that has JAX."""
        target = Path(usable_path(str(path)))
        if target.exists() and not is_policy(target):
            raise ProximaError(f"{target}: exists and is no policy; choose another place")
        with explaining(target):
            target.mkdir(parents=True, exist_ok=True)
            for name in POLICY_FILES:  # and not an account that is kept beside them
                shutil.copy2(self.directory / name, target / name)
        return target

    def __repr__(self) -> str:
        kind, action = self.about["observation"], self.about["action"]
        seen = ", ".join(kind["fields"]) if "fields" in kind else tuple(kind["shape"])
        if "fields" in action:
            done = ", ".join(action["fields"])
        else:
            done = f"{tuple(action['shape'])} {action['dtype']}"
        taken = self.about["checkpoint"]
        return (
            f"Policy({self.about['algorithm']} on {self.about['env']}, observation {seen} → action "
            f"{done}, {taken['kind']} checkpoint, step {taken['step']:,}, from {self.directory})"
        )


def load_policy(reference: str | Path, output_directory: str = "logs") -> Policy:
    """The policy in a directory, of a trial, or of the first trial of a run or an experiment.

    Of a trial it is that of the checkpoint by which the trial was judged; `about["checkpoint"]` says which.
    """
    return Policy(find_policy(str(reference), output_directory))


@contextmanager
def _in_our_words(where: str) -> Iterator[None]:
    """What is wrong with observations or a memory as an error of ours."""
    try:
        yield
    except ValueError as error:
        raise ProximaError(f"{where}: {error}") from error


def _refuse_flags(episode_start: Any) -> None:
    if episode_start is not None:
        raise ProximaError(
            "episode_start: goes with observations, and this is raw input; without a state it begins anew"
        )


def _raw_policy(directory: Path, about: Mapping[str, Any]) -> RawPolicy | None:
    """How the policy is used on raw input, where it says so and its domain knows."""
    owner = raw_domain(directory, about)
    return None if owner is None or owner.raw_policy is None else owner.raw_policy(about)


def raw_domain(directory: Path, about: Mapping[str, Any]) -> Domain | None:
    """The domain that knows what lies between raw input and a policy's observations; None: nothing does."""
    raw = about.get("raw")
    if not isinstance(raw, Mapping) or not isinstance(raw.get("domain"), str):
        return None
    make_run_importable(directory)
    return domain(raw["domain"])
