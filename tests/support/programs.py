"""Compiled programs in the tests' own process."""

import gc

import jax


def forget_programs() -> None:
    """Drop all of them: each maps memory, and thousands in one process end it."""
    jax.clear_caches()
    gc.collect()
