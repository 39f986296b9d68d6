"""Drawings of the classic-control environments, from an observation alone.

A drawing has two parts: a backdrop that never changes, which a film draws once, and what moves,
which is drawn in a window around it.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from math import cos, hypot, pi, sin
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxima.report.style import BLUE, GREEN, INK, VERMILLION

Point = tuple[float, float]

WIDTH, HEIGHT = 400, 264
MIDDLE = WIDTH / 2, HEIGHT / 2
SMOOTH = 2  # drawn this much larger, then reduced: edges without stairs
PAPER, SOFT, RAIL = "#FFFFFF", "#D9D9D9", "#8C8C8C"


class Pen(NamedTuple):
    """What draws in a window, enlarged, and the window's corner."""

    ink: Any
    corner: tuple[int, int] = (0, 0)


class Drawing(NamedTuple):
    """How an environment is drawn, and the observation that needs."""

    shape: tuple[int, ...]
    backdrop: Callable[[Pen], None]
    moving: Callable[[Pen, Sequence[float], float], None]
    centre: Callable[[Sequence[float]], Point]  # of a window that holds all that moves
    reach: tuple[float, float]  # of that window to either side, and up and down


def scene(env_name: str, observation: NDArray[Any], push: float) -> Any:
    """The image an observation shows, and the push from −1 (left, or clockwise) to 1 as an arrow."""
    from PIL import ImageDraw

    drawing = DRAWINGS[env_name]
    large, small = _backdrop(env_name)
    image = small.copy()
    # a policy that diverged can drive an env to NaN; its film should show that, not end the run
    seen = np.clip(np.nan_to_num(observation.astype(float)), -100, 100).tolist()
    (x, y), (across, up) = drawing.centre(seen), drawing.reach
    left, top = max(0, round(x - across)), max(0, round(y - up))
    right, bottom = min(WIDTH, round(x + across)), min(HEIGHT, round(y + up))
    if left < right and top < bottom:
        window = large.crop((SMOOTH * left, SMOOTH * top, SMOOTH * right, SMOOTH * bottom))
        drawing.moving(Pen(ImageDraw.Draw(window), (left, top)), seen, push)
        image.paste(window.reduce(SMOOTH), (left, top))
    return image


@cache
def _backdrop(env_name: str) -> tuple[Any, Any]:
    """The backdrop enlarged, and as it is shown."""
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (WIDTH * SMOOTH, HEIGHT * SMOOTH), PAPER)
    DRAWINGS[env_name].backdrop(Pen(ImageDraw.Draw(image)))
    return image, image.reduce(SMOOTH)


def _cart_x(position: float) -> float:
    return WIDTH / 2 + WIDTH / 5.6 * position  # the cart may go 2.4 to either side


def _rails(pen: Pen) -> None:
    ground = 190.0
    _line(pen, [(0, ground), (WIDTH, ground)], RAIL, 2)
    for end in (_cart_x(-2.4), _cart_x(2.4)):
        _line(pen, [(end, ground - 8), (end, ground + 8)], RAIL, 3)
    _line(pen, [(WIDTH / 2, ground + 3), (WIDTH / 2, ground + 9)], RAIL, 2)


def _cart_pole(pen: Pen, observation: Sequence[float], push: float) -> None:
    position, _, angle, _ = observation
    x, y = _cart_x(position), 177.0
    body = _scaled(pen, [(x - 30, y - 12), (x + 30, y + 12)])
    pen.ink.rounded_rectangle(body, radius=4 * SMOOTH, fill=INK)
    tip = (x + 125 * sin(angle), y - 6 - 125 * cos(angle))
    _line(pen, [(x, y - 6), tip], VERMILLION, 9)
    _disc(pen, (x, y - 6), 5, SOFT)
    _arrow(pen, (x + 36 * np.sign(push), y), 40 * push)


def _dial(pen: Pen) -> None:
    x, y = MIDDLE
    pen.ink.ellipse(_square(pen, (x, y), 108), outline=SOFT, width=2 * SMOOTH)
    _line(pen, [(x, y - 104), (x, y - 112)], GREEN, 4)


def _pendulum(pen: Pen, observation: Sequence[float], push: float) -> None:
    upward, leftward, _ = observation  # the angle grows anticlockwise from upright
    x, y = MIDDLE
    _line(pen, [(x, y), (x - 95 * leftward, y - 95 * upward)], VERMILLION, 16)
    _disc(pen, (x, y), 5, INK)
    _turn(pen, (x, y), push)


LINK = 58.0  # of the acrobot, in pixels


def _goal_line(pen: Pen) -> None:
    height = HEIGHT / 2 - LINK
    _line(pen, [(50, height), (WIDTH - 50, height)], GREEN, 2)  # the tip has to cross it


def _acrobot(pen: Pen, observation: Sequence[float], push: float) -> None:
    cos1, sin1, cos2, sin2 = observation[:4]
    x, y = MIDDLE
    elbow = (x + LINK * sin1, y + LINK * cos1)
    tip = (
        elbow[0] + LINK * (sin1 * cos2 + cos1 * sin2),
        elbow[1] + LINK * (cos1 * cos2 - sin1 * sin2),
    )
    _line(pen, [(x, y), elbow], BLUE, 10)
    _line(pen, [elbow, tip], VERMILLION, 10)
    _disc(pen, (x, y), 5, INK)
    _disc(pen, elbow, 5, INK)
    _turn(pen, elbow, push)


def _on_hill(position: float, lift: float = 0.0) -> Point:
    """A point of the mountain car's hill, or so far above it."""
    scale = 370 / 1.8  # from −1.2 to 0.6
    slope = 1.35 * cos(3 * position)
    across, up = -slope / hypot(1, slope), 1 / hypot(1, slope)
    height = 0.45 * sin(3 * position) + 0.55
    x, y = 15 + scale * (position + 1.2), HEIGHT - 30 - scale * 0.95 * height
    return x + lift * across, y - lift * up


def _hill(pen: Pen, goal: float) -> None:
    crest = [_on_hill(position) for position in np.linspace(-1.3, 0.7, 90)]  # past both edges
    pen.ink.polygon(_scaled(pen, [(-20, HEIGHT), *crest, (WIDTH + 20, HEIGHT)]), fill="#EEEEEE")
    _line(pen, crest, RAIL, 3)
    x, y = _on_hill(goal)
    _line(pen, [(x, y), (x, y - 34)], INK, 2)
    pen.ink.polygon(_scaled(pen, [(x, y - 34), (x - 18, y - 28), (x, y - 22)]), fill=GREEN)


def _car(pen: Pen, observation: Sequence[float], push: float) -> None:
    position = observation[0]
    _line(pen, [_on_hill(position - 0.07, 12), _on_hill(position + 0.07, 12)], BLUE, 13)
    for wheel in (-0.055, 0.055):
        _disc(pen, _on_hill(position + wheel, 5), 6, INK)
    x, y = _on_hill(position, 12)
    _arrow(pen, (x, y - 24), 36 * push)


MOUNTAIN_CAR = Drawing(
    (2,), partial(_hill, goal=0.5), _car, lambda obs: _on_hill(obs[0], 12), (50, 50)
)
DRAWINGS = {
    "CartPole-v1": Drawing((4,), _rails, _cart_pole, lambda obs: (_cart_x(obs[0]), 118), (132, 82)),
    "Pendulum-v1": Drawing((3,), _dial, _pendulum, lambda obs: MIDDLE, (125, 125)),
    "Acrobot-v1": Drawing((6,), _goal_line, _acrobot, lambda obs: MIDDLE, (125, 125)),
    "MountainCar-v0": MOUNTAIN_CAR,
    "MountainCarContinuous-v0": MOUNTAIN_CAR._replace(backdrop=partial(_hill, goal=0.45)),
}


def _scaled(pen: Pen, points: Sequence[Point]) -> list[Point]:
    left, top = pen.corner
    return [(SMOOTH * (x - left), SMOOTH * (y - top)) for x, y in points]


def _line(pen: Pen, points: Sequence[Point], colour: str, width: float) -> None:
    pen.ink.line(_scaled(pen, points), fill=colour, width=round(SMOOTH * width), joint="curve")
    if width >= 5:
        for end in (points[0], points[-1]):
            _disc(pen, end, width / 2, colour)


def _square(pen: Pen, centre: Point, half: float) -> list[Point]:
    (x, y), r = centre, half
    return _scaled(pen, [(x - r, y - r), (x + r, y + r)])


def _disc(pen: Pen, centre: Point, radius: float, colour: str) -> None:
    pen.ink.ellipse(_square(pen, centre, radius), fill=colour)


def _arrow(pen: Pen, start: Point, length: float) -> None:
    """A horizontal arrow, to the right for a positive length."""
    if abs(length) < 2:
        return
    x, y = start
    head = np.sign(length) * 11
    _line(pen, [(x, y), (x + length - head / 2, y)], BLUE, 4)
    tip = [(x + length - head, y - 8), (x + length, y), (x + length - head, y + 8)]
    pen.ink.polygon(_scaled(pen, tip), fill=BLUE)


def _turn(pen: Pen, centre: Point, torque: float) -> None:
    """An arc whose arrow shows which way, anticlockwise if positive, and how strong."""
    if abs(torque) < 0.02:
        return
    (x, y), r = centre, 26.0
    angle = -pi / 2 - torque * 0.8 * pi  # of the arrow's end; y points down, so − is anticlockwise
    start, end = sorted((-pi / 2, angle))
    circle = _square(pen, centre, r)
    pen.ink.arc(circle, np.degrees(start), np.degrees(end), fill=INK, width=3 * SMOOTH)
    ahead = -np.sign(torque) * 0.45
    tip = [
        (x + (r - 7) * cos(angle), y + (r - 7) * sin(angle)),
        (x + r * cos(angle + ahead), y + r * sin(angle + ahead)),
        (x + (r + 7) * cos(angle), y + (r + 7) * sin(angle)),
    ]
    pen.ink.polygon(_scaled(pen, tip), fill=INK)
