"""Pictures of searches of every kind show something, at both widths, and say what they leave out."""

from itertools import combinations

import numpy as np
import pytest
import search_results as searches
from PIL import Image
from search_results import configuration, search

from proxima.report import style
from proxima.report.style import NARROW, WIDTH
from proxima.tune import effects, lineage_plots, panels, plots
from proxima.tune.axes import Axis

NAN = float("nan")
OUTLIER = search(
    [configuration(k, {"x": k / 20}, -1e9 if k == 3 else float(k)) for k in range(20)],
    space={"x": "0:1"},
)
SEARCHES = {
    "halving": searches.surface(),
    "many": searches.many_settings(),
    "mixed": searches.mixed_choices(),
    "outlier": OUTLIER,
    "minimise": searches.surface()._replace(direction="minimise"),
    "table": searches.surface()._replace(space={}, own={}),
}


def slices_figure(result, width):
    return plots.slices_figure(result, effects.slices(result), width)


def importance_figure(result, width):
    return plots.importance_figure(effects.importance(result), width)


def pairs_figure(result, width):
    pairs = effects.importance(result).pairs[: plots.MOST_PAIRS]
    return plots.pairs_figure(result, pairs, width)


FIGURES = {
    "best": lambda result, width: plots.best_figure(result, 430.0, width),
    "curves": plots.curves_figure,
    "slices": slices_figure,
    "importance": importance_figure,
    "pairs": pairs_figure,
}


def look(figure, path):
    """The picture as it is written; its colours apart from grey."""
    style.save(figure, path)
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("RGB"), int)
    coloured = np.ptp(pixels, axis=2) > 60
    assert coloured.sum() > 100, "an empty picture"
    # letters or lines that reach the edge are cut
    assert (pixels[[0, -1]] > 200).all() and (pixels[:, [0, -1]] > 200).all()
    return pixels


# of one setting there is no pair
PICTURES = [(n, k) for n in FIGURES for k in SEARCHES if (n, k) != ("pairs", "outlier")]


@pytest.mark.parametrize(("name", "kind"), PICTURES)
def test_pictures_show_something(name, kind, tmp_path):
    result = SEARCHES[kind]
    wide = look(FIGURES[name](result, WIDTH), tmp_path / "wide.png")
    narrow = look(FIGURES[name](result, NARROW), tmp_path / "narrow.png")
    assert wide.shape[1] == round(WIDTH * style.DOTS) and narrow.shape[1] < wide.shape[1]


@pytest.mark.parametrize("width", [WIDTH, NARROW])
def test_pictures_of_a_population(width, tmp_path):
    result = searches.population()
    look(lineage_plots.lineage_figure(result, searches.RATE, width), tmp_path / "a.png")
    look(lineage_plots.lineage_figure(result, searches.NET, width), tmp_path / "b.png")
    look(lineage_plots.ancestry_figure(result, list(searches.SPACE), width), tmp_path / "c.png")


def texts(figure):
    return " ".join(text.get_text() for text in figure.texts)


def test_an_outlier_does_not_squeeze_the_others():
    figure = plots.best_figure(OUTLIER)
    low, high = figure.axes[0].get_ylim()
    assert low > -5 and high < 25
    assert "1 far worse" in texts(figure)
    assert "far worse" not in texts(plots.best_figure(searches.surface()))


def test_broken_configurations_are_crosses_at_the_worst_end():
    result = searches.surface()
    for direction, is_low in (("maximise", True), ("minimise", False)):
        figure = slices_figure(result._replace(direction=direction), WIDTH)
        panel = figure.axes[0]
        crosses = [line for line in panel.lines if line.get_marker() == "X"]
        broken = sum(row.value is None for row in result.configurations)
        assert len(crosses[0].get_xdata()) == broken > 0
        middle = np.mean(panel.get_ylim())
        assert (crosses[0].get_ydata() < middle).all() == is_low


def test_the_level_of_the_scenarios_own_settings_is_within_the_picture():
    axes = plots.best_figure(searches.surface(), own=-300.0).axes[0]
    assert axes.get_ylim()[0] <= -300


@pytest.mark.parametrize("width", [WIDTH, NARROW])
@pytest.mark.parametrize("metric", ["eval/return_mean", "eval/" + "a_long_name_" * 6])
@pytest.mark.parametrize("objective", panels.OBJECTIVES)
def test_what_the_values_are_is_written_whole(objective, metric, width):
    result = searches.surface(20)._replace(objective=objective, metric=metric)
    words = {plots.best_figure: panels.value_words(objective, metric), plots.curves_figure: metric}
    for draw, value in words.items():
        figure = draw(result, width=width)
        style.png(figure)
        assert value.replace(" ", "") in "".join(texts(figure).split())
        boxes = {text: text.get_window_extent() for text in figure.texts}
        edge = figure.bbox
        assert all(
            b.x0 > 0 and b.y0 > 0 and b.x1 < edge.x1 and b.y1 < edge.y1 for b in boxes.values()
        )
        pairs = combinations(boxes.items(), 2)
        over = [(a.get_text(), b.get_text()) for (a, one), (b, two) in pairs if one.overlaps(two)]
        assert not over


def test_curves_of_one_point_and_of_broken_ones():
    rows = [
        configuration(0, {"x": 1}, 1.0, curve=((10, 1.0),)),
        configuration(1, {"x": 2}, None, curve=((10, 0.5), (20, NAN))),
    ]
    figure = plots.curves_figure(search(rows))
    assert "Cross" in texts(figure)


@pytest.mark.parametrize(
    ("low", "high", "names"),
    [
        (-5, -1, ["1e−5", "1e−4", "1e−3", "0.01", "0.1"]),
        (-3.2, -2.9, ["1e−3"]),
        (0.1, 0.9, ["2", "5"]),
        (3.9, 6, ["1e4", "1e5", "1e6"]),
        (-12, 0, ["1e−12", "1e−9", "1e−6", "1e−3", "1"]),
    ],
)
def test_powers_of_ten_are_named(low, high, names):
    assert panels.log_scale(low, high, 6).names == names


def test_names_of_ticks_fit_their_room():
    for kind, low, high in (("uniform", 0.00012, 0.00098), ("log", -9, 3), ("int", 1, 100_000)):
        scale = panels.setting_scale(Axis("x", kind), low, high, 1.4)
        assert len(scale.names) >= 2
        letters = sum(map(len, scale.names))
        assert letters * panels.SIZE * style.LETTER < 1.4
    choices = Axis("x", "choice", ("a very long name", "another one", None))
    assert panels.setting_scale(choices, 0, 2, 1.4).names == ["a ver…", "anoth…", "null"]


def test_a_shortened_name_keeps_its_arrow():
    figure = pairs_figure(SEARCHES["many"], NARROW)
    names = [text.get_text() for text in figure.texts if "number_" in text.get_text()]
    assert any("…" in name for name in names), "all names fit"
    assert all(name.startswith("↑ ") or name.endswith(" →") for name in names)


def test_the_window_keeps_the_good_end_whole():
    values = np.array([*range(20), 1000.0, -1000.0, NAN])
    assert panels.window(values, 1.0) == (0.0, 1000.0)
    assert panels.window(values, -1.0) == (-1000.0, 19.0)
    assert panels.window(np.array([NAN]), 1.0) == (0.0, 1.0)


def test_shades_of_one_value_are_shades():
    assert panels.shades(np.array([3.0, 3.0]), 3.0, 3.0).tolist() == [0.0, 0.0]
