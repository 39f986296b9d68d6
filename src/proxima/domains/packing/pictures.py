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
Cell = tuple[int, int]

WIDTH, HEIGHT, STRIP = 640, 400, 40
SMOOTH = 2  # drawn this much larger, then reduced: edges without stairs
PROPORTIONS = (5.87, 2.33, 2.20)  # of Jumanji's container; observations hold shares of its lengths
LEAN = pi / 6  # of the ground's two directions against the picture's horizontal
# Colours for boxes, light enough for three shades of each.
SHADES = ("#6BAED6", "#FDAE6B", "#74C476", "#9E9AC8", "#FA9FB5", "#C7B299", "#F2D74E", "#7FCDBB")
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # up, right, down, left


def film_of(path: Path, env_name: str, recording: Recording) -> bool:
    """Draw an episode, a frame per step, and its end, where we know how."""
    if env_name not in PAINTERS or not isinstance(recording.obs, dict):
        return False
    paint, pace = PAINTERS[env_name]
    images = list(paint(recording.obs, recording.actions))
    write_gif(path, [np.asarray(image) for image in images], pace)
    if (path.parent / "plots").is_dir():
        images[-1].save(path.parent / "plots" / "episode.png")
    return True


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
    edges = list(_container_edges())
    for edge in edges[:3]:
        pen.line(edge, fill=GREY, width=SMOOTH)
    for index in back_to_front(boxes):
        _paint_box(pen, boxes[index], SHADES[numbers[index] % len(SHADES)])
    for edge in edges[3:]:
        pen.line(edge, fill=GREY, width=SMOOTH)
    filled = 100 * sum(float(np.prod(far - near)) for near, far in boxes)
    text = f"{len(boxes)} of at most {items} items placed, {filled:.1f} % of the volume filled"
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
    (x1, y1, z1), (x2, y2, z2) = corners
    faces = (
        ([(x2, y1, z1), (x2, y2, z1), (x2, y2, z2), (x2, y1, z2)], 0.82),
        ([(x1, y2, z1), (x2, y2, z1), (x2, y2, z2), (x1, y2, z2)], 0.66),
        ([(x1, y1, z2), (x2, y1, z2), (x2, y2, z2), (x1, y2, z2)], 1.0),
    )
    for points, light in faces:
        outline = [_seen(point) for point in points]
        shade = tuple(round(light * part) for part in bytes.fromhex(colour[1:]))
        pen.polygon(outline, fill=shade)
        pen.line([*outline, outline[0]], fill=INK, width=SMOOTH)


def _container_edges() -> Iterator[list[tuple[float, float]]]:
    """The container's edges: first the three from the origin's corner, which everything in it hides."""
    for start in np.ndindex(2, 2, 2):
        for axis in range(3):
            if not start[axis]:
                yield [_seen(start), _seen((*start[:axis], 1, *start[axis + 1 :]))]


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
    way: list[Cell] = [(row, column) for row, column in obs["agent_position"].tolist()]
    target_row, target_column = obs["target_position"][0].tolist()
    way.append(_after(way[-1], MOVES[int(actions[-1])], walls))
    shortest = shortest_way(walls, way[0], (target_row, target_column))
    for step in range(len(way)):
        yield _maze_image(walls, way[: step + 1], (target_row, target_column), shortest)


def _after(cell: Cell, move: Cell, walls: NDArray[np.bool_]) -> Cell:
    """The cell that a move leads to; the same one where a wall or the edge is in the way."""
    row, column = cell[0] + move[0], cell[1] + move[1]
    inside = 0 <= row < walls.shape[0] and 0 <= column < walls.shape[1]
    return (row, column) if inside and not walls[row, column] else cell


def _maze_image(
    walls: NDArray[np.bool_], way: list[Cell], target: Cell, shortest: list[Cell]
) -> Any:
    image, pen = _canvas()
    rows, columns = walls.shape
    size = SMOOTH * min((HEIGHT - 20) / rows, (WIDTH - 20) / columns)  # of a cell
    left, top = (SMOOTH * WIDTH - size * columns) / 2, (SMOOTH * HEIGHT - size * rows) / 2

    def square(cell: Cell, side: float) -> list[float]:
        """The corners of a square in the middle of a cell, its side as a share of the cell's."""
        x, y = left + size * (cell[1] + 0.5), top + size * (cell[0] + 0.5)
        half = size * side / 2
        return [x - half, y - half, x + half, y + half]

    def line(cells: list[Cell], colour: str, width: float) -> None:
        if len(cells) > 1:
            points = [tuple(square(cell, 0)[:2]) for cell in cells]
            pen.line(points, fill=colour, width=round(size * width))

    for row, column in np.argwhere(walls):
        pen.rectangle(square((row, column), 1), fill="#4A4A4A")
    pen.rectangle([left, top, left + size * columns, top + size * rows], outline=INK, width=SMOOTH)
    line(shortest, "#A6DCC8", 0.34)
    line(way, BLUE, 0.12)
    discs = (way[0], 0.28, BLUE), (target, 0.6, GREEN), (way[-1], 0.44, VERMILLION)
    for cell, side, colour in discs:
        pen.ellipse(square(cell, side), fill=colour)
    text = f"step {len(way) - 1}; the shortest way (green) has {len(shortest) - 1}"
    return _captioned(image, text)


def shortest_way(walls: NDArray[np.bool_], start: Cell, target: Cell) -> list[Cell]:
    """The cells of a shortest path, both ends among them, by breadth-first search; empty without any."""
    ways = {start: [start]}
    queue = deque([start])
    while queue and target not in ways:
        here = queue.popleft()
        for move in MOVES:
            to = _after(here, move, walls)
            if to not in ways:
                ways[to] = [*ways[here], to]
                queue.append(to)
    return ways.get(target, [])


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


Painter = Callable[[Arrays, NDArray[Any]], Iterator[Any]]
# How an environment is drawn, and frames per second.
PAINTERS: dict[str, tuple[Painter, int]] = {"BinPack-v2": (packing, 2), "Maze-v0": (maze, 5)}
