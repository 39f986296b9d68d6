"""The rollout of `torchrl_cases` as TorchRL has it, and its draws made ours; needs the extra `oracle`."""

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import torch
import torchrl_cases as given
from tensordict import TensorDict
from torch import Tensor
from torchrl.data import LazyTensorStorage, MultiStep
from torchrl.data.replay_buffers.samplers import prioritized


def tensor(numbers: Any) -> Tensor:
    """Fractions in 64 bits, and whole numbers too, by which torch gathers."""
    made = torch.as_tensor(np.array(numbers))
    if made.dtype == torch.bool:
        return made
    return made.double() if made.is_floating_point() else made.long()


def by_env(numbers: np.ndarray) -> Tensor:
    """(T, B) as (B, T, 1), and (T, B, n) as (B, T, n)."""
    turned = tensor(numbers).transpose(0, 1)
    return turned if turned.ndim == 3 else turned.unsqueeze(-1)


def by_time(values: Tensor) -> list[Any]:
    """(B, T, 1) or (B, T) as (T, B), and (B, T, n) as (T, B, n)."""
    turned = values.transpose(0, 1)
    return (turned.squeeze(-1) if turned.shape[-1] == 1 else turned).tolist()


def along_time(action: str) -> TensorDict:
    """The rollout (B, T), with the actions of that field."""
    steps = given.rollout()
    after = {
        "observation": by_env(steps.next_obs),
        "mask": by_env(steps.next_mask),
        "reward": by_env(steps.reward),
        "terminated": by_env(steps.terminated),
        "done": by_env(steps.terminated | steps.truncated),  # theirs is either ending
    }
    taken = tensor(getattr(steps, action)).transpose(0, 1)
    before = {"observation": by_env(steps.obs), "mask": by_env(steps.mask), "action": taken}
    return TensorDict(before | {"next": after}, [given.ENVS, given.STEPS])


def samples(action: str) -> TensorDict:
    """The rollout as T · B samples, time first."""
    return along_time(action).transpose(0, 1).reshape(-1)


def three_steps(steps: TensorDict) -> TensorDict:
    """The steps as samples over three."""
    multi = MultiStep(given.GAMMA, 3)(steps)
    # Theirs keeps the first step's flags, and so values what follows a termination; ours has the last's.
    last = torch.arange(given.STEPS) + multi["steps_to_next_obs"] - 1
    multi["next", "terminated"] = steps["next", "terminated"].gather(1, last.unsqueeze(-1))
    return multi


class Leaves:
    """In the place of TorchRL's trees, which are compiled for other versions of torch: all rows, no tree."""

    def __init__(self, reduce: Callable[[np.ndarray], Any], rows: int) -> None:
        self.reduce, self.values = reduce, np.zeros(rows)

    def __setitem__(self, index: Any, values: Any) -> None:
        self.values[np.asarray(index)] = np.asarray(values)

    def __getitem__(self, index: Any) -> np.ndarray:
        return self.values[np.asarray(index)]

    def query(self, start: int, end: int) -> Any:
        return self.reduce(self.values[start:end])

    def scan_lower_bound(self, mass: np.ndarray) -> np.ndarray:
        return np.searchsorted(np.cumsum(self.values), mass)


def sampler_of(rows: int) -> prioritized.PrioritizedSampler:
    trees = {
        f"{name}SegmentTreeFp{bits}": functools.partial(Leaves, reduce)
        for name, reduce in (("Sum", np.sum), ("Min", np.min))
        for bits in (32, 64)
    }
    with mock.patch.multiple(prioritized, **trees):
        return prioritized.PrioritizedSampler(rows, given.ALPHA, given.BETA, eps=given.SMALLEST)


def draw(
    sampler: prioritized.PrioritizedSampler, storage: LazyTensorStorage, uniforms: np.ndarray
) -> tuple[Tensor, Tensor]:
    """Rows and weights."""
    # Theirs draws anywhere in the sum of all priorities, ours once in each of as many equal parts.
    shares = (np.arange(len(uniforms)) + uniforms.astype(np.float64)) / len(uniforms)
    with mock.patch.object(np.random, "uniform", lambda low, high, size: shares * high):
        rows, info = sampler.sample(storage, len(uniforms))
    weight = info["priority_weight"]
    return rows, weight / weight.max()  # theirs are relative to the whole buffer's largest


@contextlib.contextmanager
def fixed_noise(arrays: np.ndarray) -> Iterator[None]:
    """Whatever normal numbers are drawn meanwhile are these, one array after another and over again."""
    endless = itertools.cycle([tensor(array) for array in arrays])
    with (
        mock.patch("torch.distributions.normal._standard_normal", lambda *_, **__: next(endless)),
        mock.patch.object(torch, "randn_like", lambda *_: next(endless)),
    ):
        yield
