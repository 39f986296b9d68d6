"""Films of an episode, drawn from its observations alone: no simulator, no display.

In every environment below the observation determines the picture: the classic-control ones hold
the positions and angles, the MinAtar ones are the picture.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proxima.domains.control import classic
from proxima.report.gif import write_gif, write_images
from proxima.report.style import INK
from proxima.train.program import Recording

WIDTH, SCENE, STRIP = classic.WIDTH, classic.HEIGHT, 36
HEIGHT = SCENE + STRIP
# MinAtar's channels: the player is channel 0 in every game
CHANNELS = (
    *("#FFFFFF", "#56B4E9", "#E69F00", "#D55E00", "#009E73"),
    *("#F0E442", "#CC79A7", "#0072B2", "#999999", "#7F3C8D"),
)
BOARD = "#16202B"
ACTIONS = {
    "CartPole-v1": ("left", "right"),
    "Acrobot-v1": ("torque −1", "torque 0", "torque +1"),
    "MountainCar-v0": ("left", "coast", "right"),
    "Asterix-MinAtar": ("stay", "left", "up", "right", "down"),
    "Breakout-MinAtar": ("stay", "left", "right"),
    "Freeway-MinAtar": ("stay", "up", "down"),
    "Seaquest-MinAtar": ("stay", "left", "up", "right", "down", "fire"),
    "SpaceInvaders-MinAtar": ("stay", "left", "right", "fire"),
}


def can_draw(env_name: str, obs_shape: Sequence[int]) -> bool:
    """Whether `scene` knows the environment and its observations have the form it expects."""
    shape = tuple(obs_shape)
    if env_name in classic.DRAWINGS:
        return shape == classic.DRAWINGS[env_name].shape
    return _is_minatar(env_name) and shape[:2] == (10, 10) and len(shape) == 3


def film_of(path: Path, env_name: str, recording: Recording) -> bool:
    """Draw an episode: from the environment's own pictures, or from its observations where we know how."""
    if recording.frames:
        write_gif(path, recording.frames)
        return True
    if isinstance(recording.obs, dict) or not can_draw(env_name, recording.obs.shape[1:]):
        return False
    film(path, env_name, recording.obs, recording.actions, recording.rewards)
    return True


def film(
    path: str | Path,
    env_name: str,
    observations: ArrayLike,
    actions: ArrayLike,
    rewards: ArrayLike,
    max_frames: int = 500,
) -> None:
    """Write an episode as a GIF captioned with step, return so far and action.

    Row t holds what was seen at step t, the action taken there and the reward it brought; one
    observation more than actions is the end of the episode. A longer episode than max_frames is
    shown whole by leaving out frames evenly.
    """
    seen, taken = np.asarray(observations), np.asarray(actions)
    returns = np.cumsum([0.0, *np.ravel(rewards)])
    steps = np.arange(len(seen))
    if len(seen) > max_frames:
        steps = np.linspace(0, len(seen) - 1, max_frames).round().astype(int)

    def images(steps: Sequence[int]) -> Iterator[Any]:
        for step in steps:
            action = taken[step] if step < len(taken) else None
            texts = (
                f"{step:,}",
                f"{returns[step]:,.1f}".replace("-", "−"),
                "end" if action is None else _action_text(env_name, action),
            )
            yield _captioned(scene(env_name, seen[step], action), texts)

    sample = steps[:: max(1, len(steps) // 8)].tolist()
    write_images(path, images(steps.tolist()), list(images(sample)), len(steps))


def scene(env_name: str, observation: ArrayLike, action: ArrayLike | None = None) -> Any:
    """The image that an observation shows, 400 × 264, and the action as an arrow if it is a push."""
    seen = np.asarray(observation)
    if _is_minatar(env_name):
        return _minatar(seen)
    return classic.scene(env_name, seen, _push(env_name, action))


def _minatar(observation: NDArray[Any]) -> Any:
    """The 10 × 10 cells, where several channels meet the lowest on top."""
    from PIL import Image, ImageDraw

    cell = (SCENE - 14) // 10
    left, top = (WIDTH - 10 * cell) // 2, (SCENE - 10 * cell) // 2
    image = Image.new("RGB", (WIDTH, SCENE), classic.PAPER)
    pen = ImageDraw.Draw(image)
    pen.rectangle((left, top, left + 10 * cell - 1, top + 10 * cell - 1), BOARD)
    for channel in reversed(range(observation.shape[2])):
        for row, column in np.argwhere(observation[:, :, channel] > 0).tolist():
            x, y = left + column * cell, top + row * cell
            # a gap of one pixel keeps neighbours apart
            pen.rectangle((x + 1, y + 1, x + cell - 2, y + cell - 2), CHANNELS[channel % 10])
    return image


def _is_minatar(env_name: str) -> bool:
    return "MinAtar" in env_name  # Breakout-MinAtar in gymnax, MinAtar/Breakout-v1 in gymnasium


def _push(env_name: str, action: ArrayLike | None) -> float:
    """The action as a push from −1 (left, or clockwise) to 1; 0 where none is known."""
    if action is None:
        return 0.0
    first = float(np.ravel(action)[0])
    if env_name in ACTIONS:
        last = len(ACTIONS[env_name]) - 1
        return 2 * first / last - 1
    largest = 2.0 if env_name == "Pendulum-v1" else 1.0
    return min(1.0, max(-1.0, first / largest))


def _action_text(env_name: str, action: NDArray[Any]) -> str:
    flat = np.ravel(action)
    if env_name in ACTIONS:
        return ACTIONS[env_name][int(flat[0])]
    if np.issubdtype(flat.dtype, np.floating):
        return f"action {flat[0]:+.2f}".replace("-", "−")
    return f"action {int(flat[0])}"


def _captioned(image: Any, texts: Sequence[str]) -> Any:
    """The scene above step, return and action."""
    from PIL import ImageDraw

    frame = _blank().copy()
    frame.paste(image, (0, 0))
    pen = ImageDraw.Draw(frame)
    for text, x in zip(texts, (57, 178, 276), strict=True):
        pen.text((x, SCENE + STRIP / 2), text, fill=INK, font=_font(), anchor="lm")
    return frame


@cache
def _blank() -> Any:
    """A frame with the words that all have."""
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (WIDTH, HEIGHT), "#F2F2F2")
    pen = ImageDraw.Draw(image)
    for text, x in (("step", 52), ("return", 173)):
        pen.text((x, SCENE + STRIP / 2), text, fill=INK, font=_font(), anchor="rm")
    return image


@cache
def _font() -> Any:
    import matplotlib
    from PIL import ImageFont

    # the face of the plots, which is installed wherever they can be drawn
    face = f"{matplotlib.get_data_path()}/fonts/ttf/DejaVuSans.ttf"
    return ImageFont.truetype(face, 15, layout_engine=ImageFont.Layout.BASIC)
