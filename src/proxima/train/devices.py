"""How trials and environments lie on the machine's devices.

On a CPU each host device runs on one core. Trials share nothing, so they are divided over the devices;
a single trial is divided along its environments only when each device still gets large minibatches,
for otherwise the waiting costs more than the second core gives.
"""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import distributed  # jax.process_count would start JAX
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from proxima.core.types import PerEnv, PyTree, Streams, TrainState

TRIAL, DATA = "trial", "data"  # the axes of the devices' grid
SMALLEST_SHARE = 1_000  # samples of a minibatch per device below which one device is faster

Result = TypeVar("Result")


class Layout(NamedTuple):
    """How many devices share the trials, and how many share one trial's environments."""

    trial_devices: int
    data_devices: int


def process_count() -> int:
    """The processes of the gang that this one is in, 1 outside of one; does not start JAX."""
    return int(distributed.global_state.num_processes)


def prepare_host(trials: int, threads: int, alone: bool = False) -> None:
    """Ask for as many host devices as the trials can use; no effect once JAX has started.

    `alone` says that a single trial runs on one device. It is then the only one, because XLA has a thread for
    each device and divides even small products among all threads.
    """
    # In a gang one for each process: more machines are more processes, however many cores each has.
    alone = (alone and trials == 1) or process_count() > 1
    devices = 1 if alone else wanted_devices(trials, os.cpu_count() or 1)
    ask_for_devices(devices, threads)


def ask_for_devices(devices: int, threads: int) -> None:
    """Ask for host devices and the threads they share; what the user's environment says stays."""
    # XLA's CPU client sizes its pool by NPROC. A pool of helpers costs small nets more than it gives.
    os.environ.setdefault("NPROC", str(threads))
    try:
        # Dispatched to that small pool, a program that itself waits for the pool (a QR decomposition of
        # the first weights is one) can hang for ever; on the calling thread it cannot.
        jax.config.update("jax_cpu_enable_async_dispatch", False)
        if "JAX_NUM_CPU_DEVICES" not in os.environ:
            jax.config.update("jax_num_cpu_devices", devices)
    except RuntimeError:  # already started: the layout takes what there is
        return


def use_compilation_cache() -> None:
    """Keep compiled programs in the user's cache directory, so that each is compiled once a machine."""
    if jax.config.jax_compilation_cache_dir is None:  # type: ignore[attr-defined]
        root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        jax.config.update("jax_compilation_cache_dir", str(Path(root) / "proxima" / "xla"))
    # Small programs too: a run has dozens, and compiling them again is a sixth of a second start.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def wanted_devices(trials: int, cores: int) -> int:
    """Enough devices to keep every core busy: a divisor of the trials where there are several."""
    if trials == 1:
        return cores
    return min(d for d in range(1, trials + 1) if trials % d == 0 and (d >= cores or d == trials))


def plan_layout(
    trials: int, num_envs: int, minibatch_size: int, devices: int, sequence: int = 1
) -> Layout:
    """The layout that uses the devices best; `sequence` samples of a minibatch stay together."""
    if trials > 1:
        return Layout(max(d for d in range(1, devices + 1) if trials % d == 0), 1)
    fits = [
        d
        for d in range(1, devices + 1)
        if num_envs % d == 0
        and minibatch_size % (d * sequence) == 0
        and minibatch_size // d >= SMALLEST_SHARE
    ]
    return Layout(1, max(fits, default=1))


def over_trials(function: Callable[[PyTree], PyTree], states: PyTree) -> PyTree:
    """`function` over the leading trial axis; one trial is not batched, which is faster and simpler."""
    if jax.tree.leaves(states)[0].shape[0] == 1:
        alone = function(jax.tree.map(lambda leaf: leaf[0], states))
        return jax.tree.map(lambda leaf: leaf[None], alone)
    return jax.vmap(function)(states)


def zeros_like(shapes: PyTree) -> PyTree:
    """Zeros of the shapes that `jax.eval_shape` returns."""
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


copied = jax.jit(partial(jax.tree.map, jnp.copy))  # what a donating program is given instead


def on_devices(
    layout: Layout, function: Callable[..., Result], in_specs: PyTree, out_specs: PyTree
) -> Callable[..., Result]:
    """The function on every device of the layout at once, each with its part of the arrays."""
    sharded: Callable[..., Result] = jax.shard_map(
        function, mesh=make_mesh(layout), in_specs=in_specs, out_specs=out_specs, check_vma=False
    )
    return sharded


def specs(states: TrainState) -> PyTree:
    """Which axes of the states lie on which mesh axis: trials and, within one, environments."""
    whole: PyTree = P(TRIAL)
    divided: PyTree = P(TRIAL, DATA)
    actors = jax.tree.map(lambda _: divided, states.actors)
    curriculum = jax.tree.map(lambda _: whole, states.curriculum)
    streams = Streams(whole, divided, whole)
    return TrainState(learner_specs(states.learner), actors, streams, curriculum)


def learner_specs(learners: PyTree) -> PyTree:
    """The learners' part of `specs`."""

    def of_part(part: PyTree) -> PyTree:
        return PerEnv(P(TRIAL, DATA)) if isinstance(part, PerEnv) else P(TRIAL)

    return jax.tree.map(of_part, learners, is_leaf=lambda part: isinstance(part, PerEnv))


def lay_out(states: TrainState, layout: Layout) -> TrainState:
    """The states laid out on the devices as the chunk wants them."""
    shardings = jax.tree.map(partial(NamedSharding, make_mesh(layout)), specs(states))
    laid_out: TrainState
    if process_count() > 1:
        laid_out = jax.tree.map(_put_over_processes, states, shardings)
    else:
        laid_out = jax.device_put(states, shardings)
    return laid_out


def _put_over_processes(leaf: jax.Array, sharding: NamedSharding) -> jax.Array:
    """A leaf that every process has, over the devices of all; JAX itself does not do so with keys."""
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    numbers = jax.device_put(jax.random.key_data(leaf) if is_key else leaf, sharding)
    put: jax.Array = numbers
    if is_key:
        put = jax.random.wrap_key_data(numbers, impl=jax.random.key_impl(leaf))
    return put


def make_mesh(layout: Layout) -> Mesh:
    """The first devices as a trial × data grid."""
    count = layout.trial_devices * layout.data_devices
    grid = np.array(jax.devices()[:count]).reshape(layout.trial_devices, layout.data_devices)
    return Mesh(grid, (TRIAL, DATA))
