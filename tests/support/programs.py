"""Compiled programs in the tests' own process."""

import gc
from contextlib import contextmanager

import jax


def forget_programs() -> None:
    """Drop all of them: each maps memory, and thousands in one process end it."""
    jax.clear_caches()
    gc.collect()


@contextmanager
def compilations():
    """A list of what is compiled meanwhile, or read from the compilation cache."""
    compiled: list[str] = []

    def listen(event: str, seconds: float, **_) -> None:
        if "backend_compile" in event:
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield compiled
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
