"""Checkpoints: the whole TrainState, written atomically, checked strictly, never pickled.

    <trial>/checkpoints/step_000000100352/state.safetensors   every leaf under its path in the state
                                          manifest.json       versions, step, scenario, loop, leaves
    <trial>/checkpoints/{last,best}                           relative links to such directories

Whoever kills the process leaves either the old directory or the new one (`atomic.py`). A state here
is one trial's: NumPy arrays without the trial axis, and typed PRNG keys. Static parts of a state
(activations, spaces) are not in the file; the scenario in the manifest stands for them.
"""

import contextlib
import errno
import functools
import hashlib
import importlib.metadata
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge

from proxima.core.errors import ProximaError
from proxima.core.types import PyTree, TrainState
from proxima.train import atomic

FORMAT = 1  # of the files; one more whenever an older reader would misread them
STATE, MANIFEST = "state.safetensors", "manifest.json"
DIGEST = "manifest_sha256"  # of everything else in the manifest; a checkpoint of before has none
LAST, BEST = "last", "best"
_STEP = re.compile(r"step_\d{12}")
_MANIFEST_TYPES = {
    **{"format": int, "versions": dict, "step": int, "sha256": str},
    **{"scenario": dict, "loop": dict, "leaves": dict, "resumable": bool},
}
_SHOWN = 4  # differing leaves an error spells out


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """How often a run is saved and how much of it is kept."""

    frequency: Annotated[int, Ge(1)] = 10
    """Chunks between two checkpoints; a stop and the end always save."""
    keep: Annotated[int, Ge(2)] = 2
    """Checkpoints of a trial kept besides the best one."""


class Judged(NamedTuple):
    """A trial's checkpoint, and which of them it is."""

    kind: str  # LAST or BEST
    path: Path

    @property
    def step(self) -> int:
        return int(self.path.name.removeprefix("step_"))


class Stored(NamedTuple):
    """A lane's state as safetensors, and the shapes and types of its leaves."""

    content: bytes
    leaves: dict[str, list[Any]]


def split_trials(states: TrainState) -> list[TrainState]:
    """The states of all trials, fetched from the devices at once."""
    host = _fetch(states)

    def one(trial: int) -> TrainState:
        # Copies: a view would hold on to device memory that the next chunk wants to reuse.
        rows = jax.tree.map(lambda values: np.array(values[trial]), host)
        state: TrainState = jax.tree.map(_as_kind_of, states, rows)
        return state

    return [one(trial) for trial in range(len(jax.tree.leaves(host)[0]))]


def lane_of(states: TrainState, trial: int) -> TrainState:
    """The state of one trial, fetched from the device that has it."""

    def one(leaf: Any) -> np.ndarray:
        values = jax.random.key_data(leaf) if _is_key(leaf) else leaf
        for shard in values.addressable_shards:
            first = shard.index[0].start or 0
            if first <= trial < first + len(shard.data):
                return np.array(np.asarray(shard.data)[trial - first])
        raise IndexError(trial)

    state: TrainState = jax.tree.map(lambda leaf: _as_kind_of(leaf, one(leaf)), states)
    return state


def stack_trials(trials: Sequence[TrainState]) -> TrainState:
    """The batched states, trials first, that `split_trials` takes apart."""

    def stack(first: Any, *values: np.ndarray) -> Any:
        return _as_kind_of(first, jax.device_put(np.stack(values)))  # jnp.asarray would compile

    states: TrainState = jax.tree.map(stack, trials[0], *map(_fetch, trials))
    return states


def save(
    directory: Path,
    step: int,
    state: TrainState | Stored,
    manifest: Mapping[str, Any],
    keep: int,
    best: bool,
    last: bool = True,
) -> Path:
    """The new checkpoint of a trial, which becomes its `last`, its `best` or both.

    `manifest` brings `scenario` and `loop`, mappings that JSON can hold. One that is not `last` is
    no place to resume from. The `keep` newest to resume from stay, and those linked to.
    """
    target = at_step(directory, step)
    files = _contents(step, state, {**manifest, "resumable": last})
    # best first: killed in between, the loop repeats the step but cannot lose the best one
    links = [link for link, is_due in ((BEST, best), (LAST, last)) if is_due]
    try:
        atomic.write_directory(target, files, links)
    except OSError as failure:
        raise _unwritable(target.parent, step, failure) from failure
    with contextlib.suppress(OSError):  # the checkpoint is safe; what could not be tidied can wait
        atomic.prune(target.parent, _superfluous(target.parent, keep))
    return target


def load(path: Path, template: TrainState) -> tuple[TrainState, dict[str, Any]]:
    """The state, structured like the template, and the manifest of a checkpoint, or of a trial's last."""
    from safetensors import SafetensorError
    from safetensors.numpy import load as tensors_in

    checkpoint = resolve(path)
    manifest = check_shapes(checkpoint, template)
    try:
        tensors = tensors_in(_read_state(checkpoint, manifest))
        named = {name: _restored(tensors[name], leaf) for name, leaf in _named(template).items()}
    except (SafetensorError, KeyError, TypeError, ValueError) as failure:
        raise _damaged(checkpoint, f"{STATE} is not what {MANIFEST} says: {failure}") from failure
    if _described(named) != _described(_named(template)):
        raise _damaged(checkpoint, f"{STATE} has other shapes or types than {MANIFEST} says")
    return jax.tree.unflatten(jax.tree.structure(template), list(named.values())), manifest


def stored_state(state: PyTree) -> Stored:
    """A lane's state as it is stored."""
    from safetensors.numpy import save as tensor_bytes

    named = {name: _storable(leaf) for name, leaf in _named(_fetch(state)).items()}
    return Stored(tensor_bytes(named), _described(state))


def state_of(content: bytes, template: PyTree) -> PyTree:
    """The state that safetensors hold, structured like the template."""
    from safetensors.numpy import load as tensors_in

    tensors = tensors_in(content)
    named = {name: _restored(tensors[name], leaf) for name, leaf in _named(template).items()}
    return jax.tree.unflatten(jax.tree.structure(template), list(named.values()))


def stored_blocks(states: TrainState, width: int, blocks: Iterable[int]) -> dict[int, bytes]:
    """Some blocks of so many lanes as they are stored, all fetched from the devices at once."""
    from safetensors.numpy import save as tensor_bytes

    named = _named(_fetch(states))
    return {
        block: tensor_bytes(
            {
                name: _storable(leaf[block * width : (block + 1) * width])
                for name, leaf in named.items()
            }
        )
        for block in blocks
    }


def with_blocks(states: TrainState, width: int, contents: Mapping[int, bytes]) -> TrainState:
    """The states with those of some blocks replaced, to be laid out on the devices."""
    from safetensors.numpy import load as tensors_in

    host = {name: np.array(leaf) for name, leaf in _named(_fetch(states)).items()}
    for block, content in contents.items():
        for name, values in tensors_in(content).items():
            lanes = host[name][block * width : (block + 1) * width]
            lanes[:] = values.view(lanes.dtype) if lanes.dtype.kind == "V" else values
    leaves = [_as_kind_of(leaf, host[name]) for name, leaf in _named(states).items()]
    replaced: TrainState = jax.tree.unflatten(jax.tree.structure(states), leaves)
    return replaced


def check_shapes(checkpoint: Path, template: TrainState) -> dict[str, Any]:
    """The manifest of a checkpoint whose leaves are those of the template; else an error that names some."""
    manifest = load_manifest(checkpoint)
    _compare(checkpoint, manifest["leaves"], _described(template))
    return manifest


def load_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a checkpoint, or of a trial's last one, if this version can read it."""
    checkpoint = resolve(path)
    manifest = _read_manifest(checkpoint)
    versions = manifest.get("versions")
    made_by = versions.get("proxima") if isinstance(versions, dict) else None
    ours = _versions()["proxima"]
    if manifest["format"] != FORMAT:
        problem = f"is a checkpoint of format {manifest['format']}, and this version reads {FORMAT}"
    elif str(made_by).split(".")[0] != ours.split(".")[0]:
        problem = f"was made by proxima {made_by}, and this is {ours}: another major version"
    else:
        return manifest
    install = f"install proxima {made_by}" if made_by else "install the version that made it"
    remedy = f"{install} to go on from it, or start a new run"
    raise ProximaError(f"{checkpoint}: {problem}; {remedy}")


def at_step(trial_directory: Path, step: int) -> Path:
    """Where a trial's checkpoint of that step is, or would be."""
    return Path(trial_directory) / "checkpoints" / _name(step)


def _name(step: int) -> str:
    return f"step_{step:012d}"


def step_of(checkpoint: Path) -> int:
    """The step that a checkpoint is named by."""
    return int(checkpoint.name.removeprefix("step_"))


def available_steps(trial_directory: Path) -> list[int]:
    """The steps of a trial's checkpoints, oldest first, their content not yet checked."""
    whole = _steps_in(Path(trial_directory) / "checkpoints", MANIFEST, STATE)
    return [step_of(path) for path in whole]


def common_moment(
    trial_directories: Iterable[Path], has_stopped: Callable[[Path, Mapping[str, Any]], bool]
) -> list[Path] | None:
    """Each trial's checkpoint of the newest moment from which all can go on; None: there is none.

    A moment is a number of chunks: trials may be at different steps. One that has stopped, as
    `has_stopped` says of a checkpoint and its manifest, is not saved again and is in every later moment.
    """
    of_trials = [_moments(directory) for directory in trial_directories]
    is_usable = functools.cache(_is_usable)  # reads all of it

    def at(moment: int, moments: Mapping[int, Path]) -> Path | None:
        until = sorted((chunks for chunks in moments if chunks <= moment), reverse=True)
        chunks = next((chunks for chunks in until if is_usable(moments[chunks])), None)
        if chunks is None:
            return None
        path = moments[chunks]
        is_there = chunks == moment or has_stopped(path, _read_manifest(path))
        return path if is_there else None

    for moment in sorted({chunks for moments in of_trials for chunks in moments}, reverse=True):
        found = [path for moments in of_trials if (path := at(moment, moments)) is not None]
        if len(found) == len(of_trials):
            return found
    return None


def _moments(trial_directory: Path) -> dict[int, Path]:
    """A trial's checkpoints to resume from by the chunks done then, as far as their manifests say so."""
    moments = {}
    for step in available_steps(trial_directory):
        path = at_step(trial_directory, step)
        with contextlib.suppress(ProximaError):  # damaged: no place to go on from
            manifest = _read_manifest(path)
            loop = manifest.get("loop")
            chunks = loop.get("chunks") if isinstance(loop, dict) else None
            # a loop that does not say it is for whoever loads it to refuse, in words
            moments[chunks if isinstance(chunks, int) else step] = path
    return moments


def go_back(to: Path) -> bool:
    """Make a checkpoint its trial's last and remove the later ones; whether the best was among them.

    They are of a future that will not be, or comes again.
    """
    root = to.parent
    later = [path for path in _steps_in(root) if path.name > to.name]
    lost_best = (root / BEST).resolve() in [path.resolve() for path in later]
    try:
        atomic.point(root / LAST, to.name)
        if lost_best:
            (root / BEST).unlink()
        atomic.prune(root, later)
    except OSError as failure:
        raise ProximaError(f"{root}: cannot write there ({failure.strerror})") from failure
    return lost_best


def resolve(path: Path) -> Path:
    """The checkpoint that a path means: itself, what a link points to, or a trial's last one."""
    path = Path(path)
    if path.is_symlink():
        path = path.resolve()
    if _STEP.fullmatch(path.name) or (path / MANIFEST).exists() or (path / STATE).exists():
        if not path.exists():
            raise ProximaError(f"{path}: no such checkpoint; {_others(path)}")
        return path
    root = path if path.name == "checkpoints" else path / "checkpoints"
    if (root / LAST).exists():
        return resolve(root / LAST)
    steps = available_steps(root.parent)  # copies often lose their links
    if steps:
        return at_step(root.parent, steps[-1])
    problem = "has no checkpoint" if path.exists() else "no such directory"
    remedy = "name a trial's directory, such as logs/cartpole/trial_0, or a checkpoint in it"
    raise ProximaError(f"{path}: {problem}; {remedy}")


def is_checkpoint(path: Path) -> bool:
    """Whether a path means a checkpoint itself, there or not, and no trial that has some."""
    return path.parent.name == "checkpoints" or any(
        (path / name).exists() for name in (MANIFEST, STATE)
    )


def judged(trial_directory: Path, wanted: str) -> Judged:
    """The checkpoint by which a trial is judged and from which its policy is exported.

    That is its best where that is `wanted` and there is one: a trial that broke down at its start has none.
    """
    best = Path(trial_directory) / "checkpoints" / BEST
    if wanted == BEST and best.exists():
        return Judged(BEST, resolve(best))
    return Judged(LAST, resolve(trial_directory))


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _fetch(tree: PyTree) -> PyTree:
    """NumPy arrays, keys as their numbers."""
    data = jax.tree.map(lambda leaf: jax.random.key_data(leaf) if _is_key(leaf) else leaf, tree)
    return jax.device_get(data)


def _as_kind_of(leaf: Any, values: Any) -> Any:
    """The values, wrapped as keys where the leaf is keys."""
    if not _is_key(leaf):
        return values
    implementations = []  # asked within a trace, because a template may be shapes only
    jax.eval_shape(lambda key: implementations.append(jax.random.key_impl(key)), leaf)
    return jax.random.wrap_key_data(values, impl=implementations[0])


def _named(tree: PyTree) -> dict[str, Any]:
    paths = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(path).removeprefix("."): leaf for path, leaf in paths}


def _described(tree: PyTree) -> dict[str, list[Any]]:
    return {name: [list(leaf.shape), str(leaf.dtype)] for name, leaf in _named(tree).items()}


def _storable(values: np.ndarray) -> np.ndarray:
    """In C order, which safetensors takes for granted; bfloat16, unknown to it, as bits."""
    values = np.asarray(values, order="C")
    return values.view(f"u{values.itemsize}") if values.dtype.kind == "V" else values


def _restored(stored: np.ndarray, leaf: Any) -> Any:
    if _is_key(leaf):
        return _as_kind_of(leaf, stored)
    return stored.view(leaf.dtype) if np.dtype(leaf.dtype).kind == "V" else stored


@functools.cache
def _versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in ("proxima", "jax", "numpy")}


def _contents(
    step: int, state: TrainState | Stored, manifest: Mapping[str, Any]
) -> dict[str, bytes]:
    stored = state if isinstance(state, Stored) else stored_state(state)
    described = {
        **manifest,
        "format": FORMAT,
        "versions": _versions(),
        "step": step,
        "sha256": hashlib.sha256(stored.content).hexdigest(),
        "leaves": stored.leaves,
    }
    # NumPy's numbers come as what Python has for them
    plain = json.loads(json.dumps(described, default=lambda number: number.item()))
    signed = plain | {DIGEST: _digest(plain)}
    return {STATE: stored.content, MANIFEST: json.dumps(signed).encode()}


def _digest(manifest: Mapping[str, Any]) -> str:
    """The SHA-256 of everything that a manifest says besides it."""
    said = {key: value for key, value in manifest.items() if key != DIGEST}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def _compare(checkpoint: Path, saved: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """An error that names the first leaves in which the two differ."""

    def words(name: str) -> str:
        if name not in saved:
            return f"{name} is missing in the checkpoint"
        if name not in wanted:
            return f"{name} is only in the checkpoint"
        theirs, ours = (" ".join(map(str, reversed(leaves[name]))) for leaves in (saved, wanted))
        return f"{name} is {theirs} in the checkpoint and {ours} here"

    names = [name for name in {**wanted, **saved} if saved.get(name) != wanted.get(name)]
    if names:
        shown = "; ".join(map(words, names[:_SHOWN]))
        more = f"; and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        remedy = f"take the scenario in its {MANIFEST}, or start a new run"
        raise ProximaError(f"{checkpoint}: is of another shape: {shown}{more}; {remedy}")


def _read(checkpoint: Path, name: str) -> bytes:
    try:
        return (checkpoint / name).read_bytes()
    except FileNotFoundError as failure:
        raise _damaged(checkpoint, f"{name} is missing") from failure
    except OSError as failure:
        raise _damaged(checkpoint, f"{name} cannot be read: {failure.strerror}") from failure


def _read_manifest(checkpoint: Path) -> dict[str, Any]:
    """The manifest, whole if it is of our format."""
    try:
        manifest = json.loads(_read(checkpoint, MANIFEST))
    except (ValueError, RecursionError) as failure:
        raise _damaged(checkpoint, f"{MANIFEST} is not valid JSON: {failure}") from failure
    if not isinstance(manifest, dict) or not isinstance(manifest.get("format"), int):
        raise _damaged(checkpoint, f"{MANIFEST} does not say its format")
    if manifest["format"] != FORMAT:
        return manifest
    for key, kind in _MANIFEST_TYPES.items():
        if not isinstance(manifest.get(key), kind):
            raise _damaged(checkpoint, f"{MANIFEST} has no proper {key}")
    if not all(isinstance(leaf, list) for leaf in manifest["leaves"].values()):
        raise _damaged(checkpoint, f"{MANIFEST} has no proper leaves")
    if manifest.get(DIGEST, _digest(manifest)) != _digest(manifest):
        raise _damaged(checkpoint, f"{MANIFEST} was changed: its SHA-256 is another one")
    if _STEP.fullmatch(checkpoint.name) and checkpoint.name != _name(manifest["step"]):
        raise _damaged(checkpoint, f"{MANIFEST} is of step {manifest['step']}")
    return manifest


def _read_state(checkpoint: Path, manifest: Mapping[str, Any]) -> bytes:
    content = _read(checkpoint, STATE)
    if hashlib.sha256(content).hexdigest() != manifest["sha256"]:
        raise _damaged(checkpoint, f"{STATE} was cut or changed: its SHA-256 is another one")
    return content


def _is_usable(checkpoint: Path) -> bool:
    """Whether a run may go on from it; another format is for `load` to refuse, in words."""
    with contextlib.suppress(ProximaError):
        manifest = _read_manifest(checkpoint)
        if manifest["format"] == FORMAT:
            _read_state(checkpoint, manifest)
        return manifest.get("resumable") is not False
    return False


def _is_resumable(checkpoint: Path) -> bool:
    """Whether it was made to resume from; one that cannot tell gets the benefit of the doubt."""
    with contextlib.suppress(ProximaError):
        return _read_manifest(checkpoint).get("resumable") is not False
    return True


def _damaged(checkpoint: Path, problem: str) -> ProximaError:
    return ProximaError(f"{checkpoint}: is damaged: {problem}; {_others(checkpoint)}")


def _others(checkpoint: Path) -> str:
    whole = _steps_in(checkpoint.parent, MANIFEST, STATE)
    names = [path.name for path in whole if path.name != checkpoint.name]
    return f"beside it there is {', '.join(names)}" if names else "there is no other beside it"


def _unwritable(root: Path, step: int, failure: OSError) -> ProximaError:
    last = root / LAST
    earlier = "there is no earlier one"
    if last.exists():
        earlier = f"the previous one, {last.resolve().name}, is intact"
    full = failure.errno in (errno.ENOSPC, errno.EDQUOT)
    remedy = "free some space" if full else "make it a writable directory"
    return ProximaError(
        f"{root}: the checkpoint of step {step} could not be written: {failure.strerror}; {earlier}; "
        f"{remedy}, or set output_directory to another place"
    )


def _steps_in(root: Path, *files: str) -> list[Path]:
    """The checkpoints in a directory that have these files, oldest first."""
    paths = [path for path in sorted(root.glob("step_*")) if _STEP.fullmatch(path.name)]
    own = [path for path in paths if path.is_dir() and not path.is_symlink()]
    return [path for path in own if all((path / name).is_file() for name in files)]


def _superfluous(root: Path, keep: int) -> list[Path]:
    """All checkpoints but the newest to resume from, `keep` of them, and the linked."""
    linked = {(root / link).resolve() for link in (LAST, BEST)}
    steps = _steps_in(root)
    newest = [path for path in reversed(steps) if _is_resumable(path)][:keep]
    return [path for path in steps if path not in newest and path.resolve() not in linked]
