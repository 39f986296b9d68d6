"""Pictures of a packing and of a way through a maze, from the observations and actions of an episode.

A film (GIF) with a frame per step, and its end as a picture (PNG). Boxes are drawn by hand, seen from
the corner opposite the origin: axis-parallel boxes can be put in order and painted from the back to the
front, which a general 3-D drawing does not do well.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import cos, pi, sin
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxima.report.gif import write_gif
from proxima.report.style import BLUE, GREEN, GREY, INK, VERMILLION
from proxima.train.program import Recording

Arrays = Mapping[str, NDArray[Any]]
Place = tuple[int, int]

WIDTH, HEIGHT, STRIP = 640, 400, 40
SMOOTH = 2  # drawn this much larger, then reduced: edges without stairs
PROPORTIONS = (5.87, 2.33, 2.20)  # of Jumanji's container; observations hold shares of its lengths
LEAN = pi / 6  # of the ground's two directions against the picture's horizontal
# Colours for boxes, light enough for three shades of each.
SHADES = ("#6BAED6", "#FDAE6B", "#74C476", "#9E9AC8", "#FA9FB5", "#C7B299", "#F2D74E", "#7FCDBB")
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # up, right, down, left


def can_draw(env_name: str, obs: Any) -> bool:
    """Whether the episode is one of those drawn here."""
    return env_name in PAINTERS and isinstance(obs, dict)


def film_of(path: Path, env_name: str, recording: Recording) -> bool:
    """Draw an episode and its end, where we know how."""
    if not can_draw(env_name, recording.obs):
        return False
    film(path, env_name, recording.obs, recording.actions)
    if (path.parent / "plots").is_dir():
        picture = path.parent / "plots" / "episode.png"
        end(picture, env_name, recording.obs, recording.actions)
    return True


def film(path: str | Path, env_name: str, obs: Arrays, actions: NDArray[Any]) -> None:
    """Write the episode as a GIF, a frame per step."""
    paint, pace = PAINTERS[env_name]
    write_gif(path, [np.asarray(image) for image in paint(obs, actions)], pace)


def end(path: Path, env_name: str, obs: Arrays, actions: NDArray[Any]) -> None:
    """Write how the episode ended as a PNG."""
    *_, last = PAINTERS[env_name][0](obs, actions)
    path.parent.mkdir(parents=True, exist_ok=True)
    last.save(path)


def packing(obs: Arrays, actions: NDArray[Any]) -> Iterator[Any]:
    """An image before the first item and after each."""
    items = obs["items"]
    boxes: list[NDArray[np.float64]] = []  # (2, 3): near and far corner
    order: list[int] = []
    yield _packing_image(boxes, order, items.shape[1])
    for step, action in enumerate(actions.tolist()):
        space, item = divmod(action, items.shape[1])
        corner = obs["ems"][step, space, ::2].astype(float)
        boxes.append(np.stack([corner, corner + items[step, item]]))
        order.append(item)
        yield _packing_image(boxes, order, items.shape[1])


def _packing_image(boxes: list[NDArray[np.float64]], numbers: list[int], items: int) -> Any:
    image, pen = _canvas()
    for line in _container_edges(back=True):
        pen.line(line, fill=GREY, width=SMOOTH)
    for index in back_to_front(boxes):
        _paint_box(pen, boxes[index], SHADES[numbers[index] % len(SHADES)])
    for line in _container_edges(back=False):
        pen.line(line, fill=GREY, width=SMOOTH)
    filled = sum(float(np.prod(far - near)) for near, far in boxes)
    text = (
        f"{len(boxes)} of at most {items} items placed, {100 * filled:.1f} % of the volume filled"
    )
    return _captioned(image, text)


def back_to_front(boxes: Sequence[NDArray[np.float64]]) -> list[int]:
    """An order of disjoint boxes in which none is painted after one that hides it.

    A box beyond another along some axis is in front of it; where that holds both ways, along two axes,
    the two do not overlap in the picture.
    """
    beyond = [[bool((b[0] >= a[1] - 1e-6).any()) for b in boxes] for a in boxes]
    left, order = list(range(len(boxes))), []
    while left:
        hides = (i for i in left if not any(beyond[j][i] and not beyond[i][j] for j in left))
        chosen = next(hides, left[0])
        order.append(chosen)
        left.remove(chosen)
    return order


def _paint_box(pen: Any, corners: NDArray[np.float64], colour: str) -> None:
    """The three faces that can be seen."""
    near, far = corners
    (x1, y1, z1), (x2, y2, z2) = near, far
    faces = (
        ([(x2, y1, z1), (x2, y2, z1), (x2, y2, z2), (x2, y1, z2)], 0.82),
        ([(x1, y2, z1), (x2, y2, z1), (x2, y2, z2), (x1, y2, z2)], 0.66),
        ([(x1, y1, z2), (x2, y1, z2), (x2, y2, z2), (x1, y2, z2)], 1.0),
    )
    for points, light in faces:
        outline = [_seen(point) for point in points]
        pen.polygon(outline, fill=_shade(colour, light))
        pen.line([*outline, outline[0]], fill=INK, width=SMOOTH)


def _container_edges(back: bool) -> Iterator[list[tuple[float, float]]]:
    """The container's edges behind everything in it, or those before it."""
    for start in np.ndindex(2, 2, 2):
        for axis in range(3):
            if start[axis]:
                continue
            end = tuple(1 if each == axis else value for each, value in enumerate(start))
            # Three edges meet in the origin's corner, which is the one that everything hides.
            if back == (start == (0, 0, 0)):
                yield [_seen(start), _seen(end)]


def _seen(point: Sequence[float]) -> tuple[float, float]:
    """Where a point of the container, in shares of its lengths, is in the enlarged picture."""
    x, y, z = (share * length for share, length in zip(point, PROPORTIONS, strict=True))
    scale = SMOOTH * 62.0
    across = (x - y) * cos(LEAN)
    up = z - (x + y) * sin(LEAN)
    return SMOOTH * 190.0 + scale * across, SMOOTH * 142.0 - scale * up


def maze(obs: Arrays, actions: NDArray[Any]) -> Iterator[Any]:
    """An image of the maze at every step, and one after the last move."""
    walls = obs["walls"][0].astype(bool)
    places = [_place(each) for each in obs["agent_position"]]
    target = _place(obs["target_position"][0])
    down, right = MOVES[int(actions[-1])]
    end = places[-1][0] + down, places[-1][1] + right
    inside = 0 <= end[0] < walls.shape[0] and 0 <= end[1] < walls.shape[1]
    places.append(end if inside and not walls[end] else places[-1])
    shortest = shortest_way(walls, places[0], target)
    for step in range(len(places)):
        yield _maze_image(walls, places[: step + 1], target, shortest)


def _maze_image(
    walls: NDArray[np.bool_], way: list[Place], target: Place, shortest: list[Place]
) -> Any:
    image, pen = _canvas()
    rows, columns = walls.shape
    cell = SMOOTH * min((HEIGHT - 20) / rows, (WIDTH - 20) / columns)
    left, top = (SMOOTH * WIDTH - cell * columns) / 2, (SMOOTH * HEIGHT - cell * rows) / 2

    def middle(place: Place) -> tuple[float, float]:
        return left + cell * (place[1] + 0.5), top + cell * (place[0] + 0.5)

    def disc(place: Place, radius: float, colour: str) -> None:
        x, y = middle(place)
        r = cell * radius
        pen.ellipse([x - r, y - r, x + r, y + r], fill=colour)

    for row, column in np.argwhere(walls):
        x, y = left + cell * column, top + cell * row
        pen.rectangle([x, y, x + cell, y + cell], fill="#4A4A4A")
    pen.rectangle([left, top, left + cell * columns, top + cell * rows], outline=INK, width=SMOOTH)
    if len(shortest) > 1:
        pen.line([middle(place) for place in shortest], fill="#A6DCC8", width=round(cell * 0.34))
    if len(way) > 1:
        pen.line([middle(place) for place in way], fill=BLUE, width=round(cell * 0.12))
    disc(way[0], 0.14, BLUE)
    disc(target, 0.3, GREEN)
    disc(way[-1], 0.22, VERMILLION)
    text = f"step {len(way) - 1}; the shortest way (green) has {len(shortest) - 1}"
    return _captioned(image, text)


def shortest_way(walls: NDArray[np.bool_], start: Place, target: Place) -> list[Place]:
    """The cells of a shortest path, both ends among them, by breadth-first search; empty without any."""
    before: dict[Place, Place | None] = {start: None}
    queue = deque([start])
    while queue and target not in before:
        here = queue.popleft()
        for down, right in MOVES:
            to = here[0] + down, here[1] + right
            inside = 0 <= to[0] < walls.shape[0] and 0 <= to[1] < walls.shape[1]
            if inside and not walls[to] and to not in before:
                before[to] = here
                queue.append(to)
    way: list[Place] = []
    place = target if target in before else None
    while place is not None:
        way.append(place)
        place = before[place]
    return way[::-1]


def _place(position: NDArray[Any]) -> Place:
    return int(position[0]), int(position[1])


def _canvas() -> tuple[Any, Any]:
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (WIDTH * SMOOTH, HEIGHT * SMOOTH), "white")
    return image, ImageDraw.Draw(image)


def _captioned(image: Any, text: str) -> Any:
    """The image in its final size with a line of words below."""
    from PIL import Image, ImageDraw, ImageFont

    whole = Image.new("RGB", (WIDTH, HEIGHT + STRIP), "white")
    whole.paste(image.reduce(SMOOTH), (0, 0))
    pen = ImageDraw.Draw(whole)
    pen.text((WIDTH / 2, HEIGHT + STRIP / 2), text, INK, ImageFont.load_default(16), anchor="mm")
    return whole


def _shade(colour: str, light: float) -> tuple[int, int, int]:
    red, green, blue = (round(light * int(colour[i : i + 2], 16)) for i in (1, 3, 5))
    return red, green, blue


Painter = Callable[[Arrays, NDArray[Any]], Iterator[Any]]
# How an environment is drawn, and frames per second.
PAINTERS: dict[str, tuple[Painter, int]] = {"BinPack-v2": (packing, 2), "Maze-v0": (maze, 5)}
