"""How trials and environments lie on the machine's devices.

On a CPU each host device runs on one core. Trials share nothing, so they are divided over the devices;
a single trial is divided along its environments only when each device still gets large minibatches,
for otherwise the waiting costs more than the second core gives.
"""

import os
from pathlib import Path

import jax

from proxima.train.compiled.chunk import Layout

SMALLEST_SHARE = 1_000  # samples of a minibatch per device below which one device is faster


def prepare_host(trials: int, threads: int) -> None:
    """Ask for as many host devices as the trials can use; no effect once JAX has started."""
    # XLA's CPU client sizes its pool by NPROC. A pool of helpers costs small nets more than it gives.
    os.environ.setdefault("NPROC", str(threads))
    try:
        # Dispatched to that small pool, a program that itself waits for the pool (a QR decomposition of
        # the first weights is one) can hang for ever; on the calling thread it cannot.
        jax.config.update("jax_cpu_enable_async_dispatch", False)
        jax.config.update("jax_num_cpu_devices", wanted_devices(trials, os.cpu_count() or 1))
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


def plan_layout(trials: int, num_envs: int, minibatch_size: int, devices: int) -> Layout:
    """The layout that uses the devices best."""
    if trials > 1:
        return Layout(max(d for d in range(1, devices + 1) if trials % d == 0), 1)
    fits = [
        d
        for d in range(1, devices + 1)
        if num_envs % d == 0 and minibatch_size % d == 0 and minibatch_size // d >= SMALLEST_SHARE
    ]
    return Layout(1, max(fits, default=1))
