"""Small checkpoints to save, and states to compare."""

import json
from collections.abc import Iterable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from proxima.core.types import TrainState
from proxima.train import checkpoint

MANIFEST = {"scenario": {"name": "cartpole"}, "loop": {"chunks": 3, "best": 0.1}}


def small_state(value: float = 0.0, width: int = 3) -> TrainState:
    return TrainState({"weight": np.full(width, value, np.float32)}, None, np.arange(2))


def assert_identical(one, other) -> None:
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def save(directory: Path, step: int, state=None, keep=2, best=False, **more) -> Path:
    state = small_state(step) if state is None else state
    loop = MANIFEST["loop"] | {"chunks": step}
    return checkpoint.save(directory, step, state, MANIFEST | {"loop": loop}, keep, best, **more)


def common_step(directories: Iterable[Path]) -> int | None:
    """The newest step at which all of these can go on, where none has stopped."""
    paths = checkpoint.common_moment(directories, lambda path, manifest: False)
    return None if paths is None else max(map(checkpoint.step_of, paths))


def edit_manifest(saved: Path, **changes) -> None:
    """A manifest with changes that its digest would show, and without one, as those of before are."""
    file = saved / checkpoint.MANIFEST
    manifest = json.loads(file.read_text()) | changes
    manifest.pop(checkpoint.DIGEST, None)
    file.write_text(json.dumps(manifest))


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "checkpoints").iterdir())


def step_names(*steps: int) -> list[str]:
    return [f"step_{step:012d}" for step in steps]
