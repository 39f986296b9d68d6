"""Films of an episode, drawn from its observations alone: no simulator, no display.

In every environment below the observation determines the picture: the classic-control ones hold
the positions and angles, the MinAtar ones are the picture.
"""

from collections.abc import Callable, Sequence
from functools import cache
from math import cos, hypot, pi, sin
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Frame = NDArray[np.uint8]
Point = tuple[float, float]

WIDTH, HEIGHT, STRIP = 400, 300, 36
SCENE = HEIGHT - STRIP
SMOOTH = 2  # drawn this much larger, then reduced: edges without stairs
PAPER, INK, SOFT, RAIL = "#FFFFFF", "#222222", "#D9D9D9", "#8C8C8C"
BLUE, VERMILLION, GREEN = "#0072B2", "#D55E00", "#009E73"
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
    """Whether `draw` knows the environment and its observations have the form it expects."""
    shape = tuple(obs_shape)
    if env_name in RENDERERS:
        return shape == RENDERERS[env_name][1]
    return _is_minatar(env_name) and shape[:2] == (10, 10) and len(shape) == 3


def draw(env_name: str, observation: ArrayLike, action: ArrayLike | None = None) -> Frame:
    """The scene an observation shows, (264, 400, 3), and the action as an arrow if it is a push."""
    from PIL import Image, ImageDraw

    values = np.asarray(observation)
    if _is_minatar(env_name):
        return _minatar(values)
    image = Image.new("RGB", (WIDTH * SMOOTH, SCENE * SMOOTH), PAPER)
    push = _push(env_name, action)
    # a policy that diverged can drive an env to NaN; its film should show that, not end the run
    finite = np.clip(np.nan_to_num(values.astype(float)), -100, 100)
    RENDERERS[env_name][0](ImageDraw.Draw(image), finite, push)
    return np.asarray(image.reduce(SMOOTH))


def film(
    path: str | Path,
    env_name: str,
    observations: ArrayLike,
    actions: ArrayLike,
    rewards: ArrayLike,
    fps: int = 30,
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
    frames = []
    for step in steps:
        action = taken[step] if step < len(taken) else None
        scene = draw(env_name, seen[step], action)
        texts = (
            f"step {step}",
            f"return {returns[step]:,.1f}".replace("-", "−"),
            "end" if action is None else _action_text(env_name, action),
        )
        frames.append(np.concatenate([scene, _caption(texts)]))
    write_gif(path, frames, fps)


def write_gif(path: str | Path, frames: Sequence[Frame], fps: int = 30) -> None:
    """Write frames as an endless GIF in one shared palette; the last is held for a second.

    GIF counts time in hundredths of a second, and equal neighbours become one longer frame.
    """
    from PIL import Image

    images = [Image.fromarray(frame) for frame in frames]
    sample = np.concatenate(frames[:: max(1, len(frames) // 12)])
    palette = Image.fromarray(sample).quantize(64, method=Image.Quantize.MAXCOVERAGE)
    flat = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    delay = max(20, 10 * round(100 / fps))  # viewers slow anything below 20 ms down to 100 ms
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    flat[0].save(
        path,
        format="GIF",
        save_all=True,
        append_images=flat[1:],
        duration=[delay] * (len(flat) - 1) + [1000],
        loop=0,
    )


def _cart_pole(pen: Any, observation: NDArray[np.float64], push: float) -> None:
    position, _, angle, _ = observation
    scale, ground = WIDTH / 5.6, 190.0  # the cart may go 2.4 to either side
    x, y = WIDTH / 2 + scale * position, ground - 13
    _line(pen, [(0, ground), (WIDTH, ground)], RAIL, 2)
    for edge in (-2.4, 2.4):
        end = WIDTH / 2 + scale * edge
        _line(pen, [(end, ground - 8), (end, ground + 8)], RAIL, 3)
    _line(pen, [(WIDTH / 2, ground + 3), (WIDTH / 2, ground + 9)], RAIL, 2)
    _box(pen, (x - 30, y - 12), (x + 30, y + 12), INK)
    tip = (x + 125 * sin(angle), y - 6 - 125 * cos(angle))
    _line(pen, [(x, y - 6), tip], VERMILLION, 9)
    _disc(pen, (x, y - 6), 5, SOFT)
    _arrow(pen, (x + 36 * np.sign(push), y), 40 * push)


def _pendulum(pen: Any, observation: NDArray[np.float64], push: float) -> None:
    upward, leftward, _ = observation  # the angle grows anticlockwise from upright
    x, y = WIDTH / 2, SCENE / 2
    tip = (x - 95 * leftward, y - 95 * upward)
    _ring(pen, (x, y), 108, SOFT)
    _line(pen, [(x, y - 104), (x, y - 112)], GREEN, 4)
    _line(pen, [(x, y), tip], VERMILLION, 16)
    _disc(pen, (x, y), 5, INK)
    _turn(pen, (x, y), push)


def _acrobot(pen: Any, observation: NDArray[np.float64], push: float) -> None:
    cos1, sin1, cos2, sin2 = observation[:4]
    x, y, length = WIDTH / 2, SCENE / 2, 58
    elbow = (x + length * sin1, y + length * cos1)
    tip = (
        elbow[0] + length * (sin1 * cos2 + cos1 * sin2),
        elbow[1] + length * (cos1 * cos2 - sin1 * sin2),
    )
    _line(pen, [(50, y - length), (WIDTH - 50, y - length)], GREEN, 2)  # the tip has to cross it
    _line(pen, [(x, y), elbow], BLUE, 10)
    _line(pen, [elbow, tip], VERMILLION, 10)
    _disc(pen, (x, y), 5, INK)
    _disc(pen, elbow, 5, INK)
    _turn(pen, elbow, push)


def _mountain_car(pen: Any, observation: NDArray[np.float64], push: float, goal: float) -> None:
    scale, left = 370 / 1.8, -1.2

    def place(position: float, lift: float = 0.0) -> Point:
        height = 0.45 * sin(3 * position) + 0.55
        slope = 1.35 * cos(3 * position)
        across, up = -slope / hypot(1, slope), 1 / hypot(1, slope)
        x, y = 15 + scale * (position - left), SCENE - 30 - scale * 0.95 * height
        return x + lift * across, y - lift * up

    hill = [place(position) for position in np.linspace(-1.3, 0.7, 90)]  # past both edges
    pen.polygon(_scaled([(-20, SCENE), *hill, (WIDTH + 20, SCENE)]), fill="#EEEEEE")
    _line(pen, hill, RAIL, 3)
    flag = place(goal)
    _line(pen, [flag, (flag[0], flag[1] - 34)], INK, 2)
    pennant = [(flag[0], flag[1] - 34), (flag[0] - 18, flag[1] - 28), (flag[0], flag[1] - 22)]
    pen.polygon(_scaled(pennant), fill=GREEN)
    car = float(observation[0])
    body = [place(car, 12), place(car - 0.07, 12), place(car + 0.07, 12)]
    _line(pen, body[1:], BLUE, 13)
    for wheel in (-0.055, 0.055):
        _disc(pen, place(car + wheel, 5), 6, INK)
    _arrow(pen, (body[0][0], body[0][1] - 24), 36 * push)


def _car_to(goal: float) -> Callable[[Any, NDArray[np.float64], float], None]:
    return lambda pen, observation, push: _mountain_car(pen, observation, push, goal)


# what draws the environment, and the observation it needs
RENDERERS: dict[str, tuple[Callable[[Any, NDArray[np.float64], float], None], tuple[int, ...]]] = {
    "CartPole-v1": (_cart_pole, (4,)),
    "Pendulum-v1": (_pendulum, (3,)),
    "Acrobot-v1": (_acrobot, (6,)),
    "MountainCar-v0": (_car_to(0.5), (2,)),
    "MountainCarContinuous-v0": (_car_to(0.45), (2,)),
}


def _minatar(observation: NDArray[Any]) -> Frame:
    """The 10 × 10 cells, where several channels meet the lowest on top."""
    colours = [_rgb(CHANNELS[channel % 10]) for channel in range(observation.shape[2])]
    cell = (SCENE - 14) // 10
    board = np.full((10 * cell, 10 * cell, 3), _rgb(BOARD), dtype=np.uint8)
    for channel in reversed(range(observation.shape[2])):
        for row, column in np.argwhere(observation[:, :, channel] > 0):
            # a gap of one pixel keeps neighbours apart
            rows = slice(row * cell + 1, (row + 1) * cell - 1)
            board[rows, column * cell + 1 : (column + 1) * cell - 1] = colours[channel]
    frame = np.full((SCENE, WIDTH, 3), 255, dtype=np.uint8)
    top, side = (SCENE - 10 * cell) // 2, (WIDTH - 10 * cell) // 2
    frame[top : top + 10 * cell, side : side + 10 * cell] = board
    return frame


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


def _caption(texts: tuple[str, str, str]) -> Frame:
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (WIDTH, STRIP), "#F2F2F2")
    pen = ImageDraw.Draw(image)
    for text, x in zip(texts, (14, 122, 276), strict=True):
        pen.text((x, STRIP / 2), text, fill=INK, font=_font(), anchor="lm")
    return np.asarray(image)


@cache
def _font() -> Any:
    import matplotlib
    from PIL import ImageFont

    # the face of the plots, which is installed wherever they can be drawn
    return ImageFont.truetype(f"{matplotlib.get_data_path()}/fonts/ttf/DejaVuSans.ttf", 15)


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def _scaled(points: Sequence[Point]) -> list[Point]:
    return [(SMOOTH * x, SMOOTH * y) for x, y in points]


def _line(pen: Any, points: Sequence[Point], colour: str, width: float) -> None:
    pen.line(_scaled(points), fill=colour, width=round(SMOOTH * width), joint="curve")
    if width >= 5:
        for end in (points[0], points[-1]):
            _disc(pen, end, width / 2, colour)


def _box(pen: Any, corner: Point, opposite: Point, colour: str) -> None:
    pen.rounded_rectangle(_scaled([corner, opposite]), radius=4 * SMOOTH, fill=colour)


def _disc(pen: Any, centre: Point, radius: float, colour: str) -> None:
    (x, y), r = centre, radius
    pen.ellipse(_scaled([(x - r, y - r), (x + r, y + r)]), fill=colour)


def _ring(pen: Any, centre: Point, radius: float, colour: str) -> None:
    (x, y), r = centre, radius
    pen.ellipse(_scaled([(x - r, y - r), (x + r, y + r)]), outline=colour, width=2 * SMOOTH)


def _arrow(pen: Any, start: Point, length: float) -> None:
    """A horizontal arrow, to the right for a positive length."""
    if abs(length) < 2:
        return
    x, y = start
    head = np.sign(length) * 11
    _line(pen, [(x, y), (x + length - head / 2, y)], BLUE, 4)
    tip = [(x + length - head, y - 8), (x + length, y), (x + length - head, y + 8)]
    pen.polygon(_scaled(tip), fill=BLUE)


def _turn(pen: Any, centre: Point, torque: float) -> None:
    """An arc whose arrow shows which way, anticlockwise if positive, and how strong."""
    if abs(torque) < 0.02:
        return
    (x, y), r = centre, 26.0
    angle = -pi / 2 - torque * 0.8 * pi  # of the arrow's end; y points down, so − is anticlockwise
    start, end = sorted((-pi / 2, angle))
    box = _scaled([(x - r, y - r), (x + r, y + r)])
    pen.arc(box, np.degrees(start), np.degrees(end), fill=INK, width=3 * SMOOTH)
    ahead = -np.sign(torque) * 0.45
    tip = [
        (x + (r - 7) * cos(angle), y + (r - 7) * sin(angle)),
        (x + r * cos(angle + ahead), y + r * sin(angle + ahead)),
        (x + (r + 7) * cos(angle), y + (r + 7) * sin(angle)),
    ]
    pen.polygon(_scaled(tip), fill=INK)
