"""Numbers of a config as scalar arrays."""

import math
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from annotated_types import Ge, Gt
from jax import Array

from proxima.core.hyper import make_hyper, without_numbers


@dataclass(frozen=True, kw_only=True)
class Config:
    name: str = "mine"
    rate: Annotated[float, Gt(0)] = 3e-4
    period: Annotated[int, Ge(1)] = 4
    limit: Annotated[float, Gt(0)] | None = field(default=None, metadata={"none": math.inf})
    longest: Annotated[int, Ge(1)] | None = field(default=None, metadata={"none": 7})
    size: int = 64
    weight: float = 0.5  # a number that becomes a leaf by another name


class Hyper(NamedTuple):
    rate: Array
    final_rate: Array
    period: Array
    limit: Array
    longest: Array


def test_numbers_are_scalars_of_the_declared_kind():
    hyper = make_hyper(Hyper, Config(rate=1), final_rate=jnp.float32(0.0))
    expected = (np.float32(1), np.float32(0), np.int32(4), np.float32(math.inf), np.int32(7))
    for ours, theirs in zip(hyper, expected, strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == () and ours == theirs


def test_a_setting_that_is_not_null_is_itself():
    hyper = make_hyper(Hyper, Config(limit=0.5, longest=3), final_rate=jnp.float32(0.0))
    assert (float(hyper.limit), int(hyper.longest)) == (0.5, 3)


def test_a_derived_number_comes_before_the_setting_of_its_name():
    hyper = make_hyper(Hyper, Config(), final_rate=jnp.float32(0.0), rate=jnp.float32(2.0))
    assert float(hyper.rate) == 2.0


def test_a_number_that_nobody_gives_or_takes_is_an_error():
    with pytest.raises(TypeError, match="final_rate"):
        make_hyper(Hyper, Config())
    with pytest.raises(TypeError, match="other"):
        make_hyper(Hyper, Config(), final_rate=jnp.float32(0.0), other=jnp.float32(0.0))


def test_configs_that_differ_in_numbers_alone_are_one_static_part():
    one = without_numbers(Config(rate=1e-3, period=2, limit=0.5, weight=0.1), Hyper)
    other = without_numbers(Config(rate=2e-3, period=9, limit=0.1), Hyper)
    assert one == other and hash(one) == hash(other)
    assert one != without_numbers(Config(limit=0.5, size=32), Hyper), "sizes shape a program"
    assert without_numbers(Config(), Hyper).limit is None and one.limit is not None
    assert one == without_numbers(Config(), Hyper, "limit"), "here null is a number like any other"
    with pytest.raises(TypeError):
        jnp.float32(1.0) * one.rate  # the number is the learner's
