"""Observations of a space ↦ float32 feature vectors over any leading axes: what stands before every net.

Pictures (`core/pictures.py` says what is one) go through a convolutional torso (`torsos.py`), each field
through its own; all other fields are laid side by side as they are. A picture of bytes is divided by the
largest value of its space, 255 as a rule, also where no torso is wanted. Without pictures an encoder has
no weights.
"""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from proxima.core.errors import ProximaError
from proxima.core.pictures import (
    WHOLE,
    Picture,
    is_bytes_picture,
    parts_of,
    picture_of,
    pictures_of,
)
from proxima.core.spaces import Box, Fields, ObservationSpace, flat_size
from proxima.core.types import PyTree
from proxima.nets.torsos import NATURE_SIDE, Torso, TorsoName, features, torso

TorsoChoice = Literal["auto", "none", "nature", "impala", "minatar"]
STREAM = 1_000_000  # of keys: no net has so many layers, whose keys are numbered from 0


class Encoder(eqx.Module):
    """Observations ↦ vectors of `size` numbers; the action mask is no input of a net."""

    torsos: dict[str, Torso]  # by field; WHOLE where the observation is one array
    space: ObservationSpace = eqx.field(static=True)
    size: int = eqx.field(static=True)

    def __call__(self, obs: PyTree) -> Array:
        if not isinstance(self.space, Fields):
            return self._part(WHOLE, self.space, obs)
        parts = [self._part(name, part, obs[name]) for name, part in parts_of(self.space).items()]
        return jnp.concatenate(parts, axis=-1)

    def _part(self, name: str, space: Box, array: Array) -> Array:
        picture = picture_of(space.shape, space.dtype)
        if picture is None:
            return flat(array, len(space.shape))
        if name not in self.torsos:
            return flat(_scaled(array, space), len(space.shape))
        return self.torsos[name](_channels_last(_scaled(array, space), picture))


def encoder(
    key: Array, choice: TorsoChoice, observation_space: ObservationSpace, width: int = 1
) -> Encoder:
    """An encoder of fresh weights; the key may be the one that the nets behind it are made with.

    `width` times as many channels as the torso's paper has.
    """
    pictures = pictures_of(observation_space) if choice != "none" else {}
    keys = jax.random.split(jax.random.fold_in(key, STREAM), max(len(pictures), 1))
    torsos = {
        name: torso(one, chosen(choice, picture), picture, width)
        for one, (name, picture) in zip(keys, pictures.items(), strict=False)
    }
    others = {
        name: part for name, part in parts_of(observation_space).items() if name not in torsos
    }
    size = sum(map(flat_size, others.values())) + sum(map(features, torsos.values()))
    return Encoder(torsos, observation_space, size)


def chosen(choice: TorsoChoice, picture: Picture) -> TorsoName:
    """The torso for a picture: auto takes nature where the picture is large enough for it, else minatar."""
    if choice == "auto":
        return "nature" if min(picture.height, picture.width) >= NATURE_SIDE else "minatar"
    assert choice != "none"
    return choice


def has_torso(choice: TorsoChoice, observation_space: ObservationSpace) -> bool:
    """Whether the net sees pictures by a torso, which its policy and its value then share."""
    return choice != "none" and bool(pictures_of(observation_space))


def check_torso(choice: TorsoChoice, observation_space: ObservationSpace, env_name: str) -> None:
    """An error in words where the torso does not fit what is observed."""
    parts = parts_of(observation_space)
    if choice == "none":
        return
    for name, part in parts.items():
        if len(part.shape) > 3:
            raise ProximaError(
                f"network.torso: {_said(name, env_name)} of the shape {part.shape}, and pictures have "
                "three axes at most; frames belong into the channels, as env.frame_stack puts them "
                "there, or set network.torso to none to lay all numbers side by side"
            )
    pictures = pictures_of(observation_space)
    if choice != "auto" and not pictures:
        shapes = " and ".join(str(part.shape) for part in parts.values())
        raise ProximaError(
            f"network.torso: {choice} is for pictures, and {env_name} observes none (shape {shapes}); "
            "use auto or none"
        )
    for name, picture in pictures.items():
        if choice == "nature" and min(picture.height, picture.width) < NATURE_SIDE:
            raise ProximaError(
                f"network.torso: nature needs pictures of {NATURE_SIDE} × {NATURE_SIDE} pixels at least, "
                f"and {_said(name, env_name)} of {picture.height} × {picture.width}; use minatar or impala"
            )


def check_normalized(
    observation_space: ObservationSpace, env_name: str, normalize_observations: bool
) -> None:
    """An error in words where observations are to be normalised and all of them are pictures of bytes."""
    parts = parts_of(observation_space).values()
    if normalize_observations and all(is_bytes_picture(part.shape, part.dtype) for part in parts):
        raise ProximaError(
            f"algorithm.normalize_observations: {env_name} observes pictures of bytes, which the net "
            "scales itself and which stay bytes until then; set it to false"
        )


def flat(array: Array, rank: int) -> Array:
    """The last `rank` axes as one, float32."""
    return array.reshape(*array.shape[: array.ndim - rank], -1).astype(jnp.float32)


def _scaled(array: Array, space: Box) -> Array:
    """Bytes as numbers from 0 to 1; whatever else a picture is made of stays as it is."""
    if space.dtype != "uint8":
        return array
    return array.astype(jnp.float32) / max(1.0, *space.high)


def _channels_last(array: Array, picture: Picture) -> Array:
    if picture.channel_axis is None:
        array = array[..., None]
    elif picture.channel_axis == 0:
        array = jnp.moveaxis(array, -3, -1)
    return array.astype(jnp.float32)


def _said(name: str, env_name: str) -> str:
    return f"{env_name} observes an array" if name == WHOLE else f"its field {name!r} is an array"
