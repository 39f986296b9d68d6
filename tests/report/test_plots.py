"""Statistics against slow loops, and pictures that show something."""

import json
import subprocess
import sys
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from proxima.core.errors import ProximaError
from proxima.report import comparison, gif, plots, statistics, style, trials

NAN = float("nan")


def slow_interquartile_mean(values):
    rest = sorted(values)
    for _ in range(len(rest) // 4):
        rest.remove(min(rest))
        rest.remove(max(rest))
    return sum(rest) / len(rest)


def test_report_modules_import_neither_matplotlib_nor_pillow():
    code = (
        "import sys; from proxima.report import comparison, gif, plots, returns, statistics, trials;"
        "assert not {'matplotlib', 'PIL', 'scipy', 'jax'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 9, 31])
def test_interquartile_mean_equals_a_slow_loop_and_scipy(count):
    from scipy.stats import trim_mean

    values = np.random.default_rng(count).normal(size=count)
    result = statistics.interquartile_mean(values)
    assert result == pytest.approx(slow_interquartile_mean(values))
    assert result == pytest.approx(trim_mean(values, 0.25))


def test_interquartile_mean_along_an_axis_and_flattened():
    values = np.random.default_rng(0).normal(size=(6, 3))
    along = statistics.interquartile_mean(values, axis=0)
    assert along == pytest.approx([slow_interquartile_mean(column) for column in values.T])
    flat = statistics.interquartile_mean(values)
    assert flat == pytest.approx(slow_interquartile_mean(values.ravel()))


def test_interquartile_mean_does_not_trim_nan_away():
    assert np.isnan(statistics.interquartile_mean([1, 2, 3, 4, NAN]))
    assert np.isnan(statistics.interquartile_mean([]))


def test_interval_covers_the_truth_about_as_often_as_it_says():
    generator = np.random.default_rng(0)
    hits = 0
    for _ in range(200):
        values = generator.normal(10.0, 2.0, size=30)
        low, high = statistics.bootstrap_interval(values, resamples=300)
        hits += low <= 10.0 <= high
    assert 0.88 <= hits / 200 <= 0.99


@pytest.mark.parametrize("count", [5, 6, 10])
def test_the_interval_of_few_trials_contains_the_truth_19_times_in_20(count):
    generator = np.random.default_rng(0)
    low, high = statistics.bootstrap_band(generator.normal(10.0, 2.0, size=(count, 1_000)), 1_000)
    assert (
        0.93 <= np.mean((low <= 10.0) & (high >= 10.0)) <= 0.985
    )  # plain percentiles of five: 0.90


@pytest.mark.parametrize(("count", "percent"), [(2, 50), (3, 75), (4, 88), (5, 95), (50, 95)])
def test_an_interval_is_called_what_it_is(count, percent):
    generator = np.random.default_rng(1)
    low, high = statistics.bootstrap_band(generator.normal(size=(count, 1_000)), 500)
    assert np.mean((low <= 0) & (high >= 0)) == pytest.approx(percent / 100, abs=0.035)
    assert statistics.interval_words(count) == f"{percent} % interval"


def test_up_to_five_trials_the_interval_is_their_range():
    for count in range(2, 6):
        values = np.random.default_rng(count).normal(size=count)
        assert statistics.bootstrap_interval(values) == (values.min(), values.max())


def test_the_same_results_give_the_same_interval_in_any_order():
    values = np.random.default_rng(3).normal(size=12)
    expected = statistics.bootstrap_interval(values)
    assert statistics.bootstrap_interval(values) == expected
    assert statistics.bootstrap_interval(values[::-1]) == expected
    ours, theirs = values[:6, None], values[6:, None]
    forwards = statistics.paired_comparison(ours, theirs)
    assert statistics.paired_comparison(ours[::-1], theirs[::-1]) == forwards


def test_interval_needs_two_trials():
    assert statistics.bootstrap_interval([1.0]) is None
    assert statistics.bootstrap_interval([1.0, NAN]) is None


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], {"iqm": None, "low": None, "high": None, "n": 0, "failed": 0}),
        ([NAN, NAN], {"iqm": None, "low": None, "high": None, "n": 0, "failed": 2}),
        ([7.0], {"iqm": 7.0, "low": None, "high": None, "n": 1, "failed": 0}),
        ([7.0, NAN], {"iqm": 7.0, "low": None, "high": None, "n": 1, "failed": 1}),
        ([7.0, None], {"iqm": 7.0, "low": None, "high": None, "n": 1, "failed": 1}),
        ([500.0] * 5, {"iqm": 500.0, "low": 500.0, "high": 500.0, "n": 5, "failed": 0}),
        (
            [500.0, 500.0, -float("inf")],
            {"iqm": 500.0, "low": 500.0, "high": 500.0, "n": 2, "failed": 1},
        ),
    ],
)
def test_aggregate_edge_cases(values, expected):
    assert statistics.aggregate(values) == expected


def test_aggregate_is_json_and_ordered():
    result = json.loads(json.dumps(statistics.aggregate([1.0, 2.0, 4.0, 8.0]), allow_nan=False))
    assert result["low"] <= result["iqm"] == 3.0 <= result["high"]


def test_the_trial_is_the_unit_not_the_episode():
    generator = np.random.default_rng(0)
    trials = [generator.normal(mean, 1, size=400) for mean in (0, 10, 20, 30)]
    by_trial = statistics.aggregate(statistics.trial_means(trials))
    assert by_trial["n"] == 4
    assert by_trial["high"] - by_trial["low"] > 10  # as wide as the trials differ
    assert np.isnan(statistics.trial_means([[1.0, NAN], []])).all()


def test_band_of_curves_agrees_with_the_interval_of_one_point():
    values = np.random.default_rng(0).normal(size=(6, 3))
    low, high = statistics.bootstrap_band(values)
    for point in range(3):
        expected = statistics.bootstrap_interval(values[:, point])
        assert (low[point], high[point]) == pytest.approx(expected)
    assert statistics.bootstrap_band(values[:1]) is None


def test_paired_comparison_of_trials():
    first = [[2.0, 5.0], [3.0, 3.0], [4.0, 4.0]]
    second = [[1.0, 5.0], [1.0, 4.0], [NAN, 0.0], [9.0, 9.0]]
    result = statistics.paired_comparison(first, second)
    assert (result["pairs"], result["failed"], result["unit"], result["n"]) == (2, 1, "trial", 2)
    assert result["difference"] == pytest.approx((1 + 0 + 2 - 1) / 4)
    assert result["probability"] == pytest.approx((1 + 0.5 + 1 + 0) / 4)
    assert result["difference_low"] <= result["difference"] <= result["difference_high"]


def test_the_interval_of_a_mean_is_that_of_differences_from_nothing():
    values = np.random.default_rng(0).normal(size=9)
    paired = statistics.paired_comparison(values[:, None], np.zeros((9, 1)))
    found = statistics.mean_interval(values)
    assert found == (paired["difference_low"], paired["difference_high"])
    assert found[0] < values.mean() < found[1]
    assert statistics.mean_interval([1.0]) is None
    assert statistics.mean_interval([4.0, 4.0]) == (4.0, 4.0)


def test_paired_comparison_of_one_pair_resamples_episodes_and_says_so():
    generator = np.random.default_rng(0)
    luck = generator.normal(0, 100, size=200)  # shared by both, so pairing takes it out
    result = statistics.paired_comparison([luck + 1 + generator.normal(size=200)], [luck])
    assert result["unit"] == "episode"
    assert 0.7 < result["difference_low"] < 1 < result["difference_high"] < 1.3
    nothing = statistics.paired_comparison([], [])
    assert (nothing["pairs"], nothing["difference"], nothing["probability_low"]) == (0, None, None)


def trial_result(trial, returns):
    return {
        "trial": trial,
        "seed": trial,
        "environment_steps": 100_352,
        "steps_per_second": 512_345.6,
        "converged": trial != 1,
        "converged_at_step": None if trial == 1 else 40_960,
        "evaluation": {
            "returns": list(returns),
            "return_std": float(np.std(returns)),
            "return_min": float(np.min(returns)),
            "return_max": float(np.max(returns)),
        },
        "random": {"return_mean": 22.3},
        "reference": None,
    }


def curve(speed, end=100_000):
    steps = np.linspace(5_000, end, 20)
    return steps, 500 / (1 + np.exp(5 - steps * speed / 10_000))


def test_band_keeps_the_last_value_of_early_trials_and_leaves_failed_ones_out():
    early = (np.array([1000.0, 2000.0]), np.array([0.0, 10.0]))
    late = (np.array([1000.0, 4000.0]), np.array([0.0, 30.0]))
    failed = (np.array([1000.0, 2000.0]), np.array([0.0, NAN]))
    over_trials = comparison.band([early, late, failed, ([], [])], points=4)
    assert (over_trials.trials, over_trials.failed, over_trials.held) == (2, 2, 1)
    assert over_trials.steps == pytest.approx([1000, 2000, 3000, 4000])
    assert over_trials.iqm == pytest.approx([0, 10, 15, 20])


def test_comparison_rows_and_improvement():
    results = [trial_result(k, [100.0 * k, 100.0 * k + 50]) for k in range(3)]
    run = comparison.RunCurves("ours", [curve(1)] * 3, results)
    lone = comparison.RunCurves("lone", [curve(1)], results[:1])
    rows = trials.comparison_rows([run, lone])
    assert json.dumps(rows, allow_nan=False)
    assert rows[0]["iqm"] == pytest.approx(125.0)
    assert (rows[0]["trials"], rows[0]["converged"], rows[0]["steps/s"]) == (3, "2/3", 512_346)
    assert (rows[1]["low"], rows[1]["high"], rows[1]["coverage"]) == (None, None, None)
    assert rows[0]["coverage"] == 75
    assert trials.improvement(run, lone)["probability"] == 0.5
    broken = comparison.RunCurves("broken", [], [results[0] | {"evaluation": None}])
    without_pair = trials.improvement(run, broken)
    assert without_pair["failed"] == 1
    assert "no trial of one can be paired" in trials.difference_words(without_pair)
    words = trials.difference_words(trials.improvement(run, run))
    assert "ours − ours: 0.0 [0.0, 0.0] per episode (75 % interval over 3 pairs of trials)" in words
    assert "50 % interval over 2 pairs of episodes" in trials.difference_words(
        trials.improvement(run, lone)
    )
    longer = comparison.RunCurves("longer", [], [trial_result(0, [1.0, 2.0, 3.0])])
    with pytest.raises(ProximaError, match=r"different numbers of episodes \(2, 3\).*final_epis"):
        trials.improvement(run, longer)


PANELS = [(f"loss/part_{k}", f"part {k} of the loss") for k in range(8)]


def metric_rows(count):
    generator = np.random.default_rng(0)
    keys = [metric for metric, _ in (*PANELS, plots.SPEED)]
    keys += ["episode/return", "time/update_seconds", "time/evaluate_seconds"]
    return [
        {"step": 1000 * (k + 1), **{key: generator.uniform() for key in keys}}
        | ({"eval/return_mean": 5.0 * k} if k % 3 == 0 else {"eval/return_mean": None})
        for k in range(count)
    ]


GENERATOR = np.random.default_rng(1)
SPREAD = list(GENERATOR.normal(100, 20, size=50))
GREEDY, CONSTANT, BROKEN = {"returns": SPREAD}, {"returns": [500.0] * 20}, {"returns": [NAN, 3.0]}
ALL_NAN = {"returns": [NAN, NAN]}


def save_curves(path, *of):
    style.save(comparison.learning_figure(*of), path)


def save_returns(path, *of):
    style.save(comparison.returns_figure(*of), path)


RUNS = [
    comparison.RunCurves(
        name, [curve(1), curve(1.5, 60_000)], [trial_result(k, SPREAD) for k in (0, 1)]
    )
    for name in ("first", "second")
]
PICTURES = {
    "curve": lambda path: plots.learning_curve(path, metric_rows(20), PANELS, 40),
    "curve of one row": lambda path: plots.learning_curve(path, metric_rows(1), PANELS),
    "curve without rows": lambda path: plots.learning_curve(path, []),
    "curve without returns": lambda path: plots.learning_curve(
        path,
        [{"step": 10_000 * k, "loss/policy": 1e-7 * k} for k in range(1, 9)],
        [("loss/policy", "policy loss")],
    ),
    "curve of NaN": lambda path: plots.learning_curve(
        path,
        [{"step": 10, "episode/return": NAN, "loss/policy": NAN, "time/update_seconds": NAN}],
        [("loss/policy", "policy loss")],
    ),
    "rewards": lambda path: plots.reward_plot(path, GREEDY, CONSTANT, BROKEN),
    "constant rewards": lambda path: plots.reward_plot(path, CONSTANT),
    "no finite reward": lambda path: plots.reward_plot(path, ALL_NAN, None, ALL_NAN),
    "discrete": lambda path: plots.action_plot(
        path, GENERATOR.integers(0, 2, 300), np.ones(300), "discrete", ["left", "right"]
    ),
    "one action only": lambda path: plots.action_plot(path, [0, 0, 0], [1, 1, 1], "discrete"),
    "continuous": lambda path: plots.action_plot(
        path, GENERATOR.normal(size=(200, 9)), np.ones(200), "continuous"
    ),
    "constant torque": lambda path: plots.action_plot(
        path, np.full((50, 1), 2.0), -np.ones(50), "continuous", ["torque (N·m)"]
    ),
    "NaN torque": lambda path: plots.action_plot(
        path, np.full((5, 1), NAN), np.full(5, NAN), "continuous"
    ),
    "five trials": lambda path: save_curves(
        path, [curve(k) for k in (0.8, 0.9, 1, 1.1, 1.2)], "five", 475
    ),
    "one trial": lambda path: save_curves(path, [curve(1)], "one", None),
    "no trial": lambda path: save_curves(path, [], "none", None),
    "one evaluation": lambda path: save_curves(path, [([10], [3.0])] * 2),
    "constant trials": lambda path: save_curves(
        path, [(np.arange(5), np.full(5, 500.0))] * 5, "constant", 475
    ),
    "failed trial": lambda path: save_curves(
        path, [curve(1), ([10, 20], [1, NAN]), ([10, 20], [NAN, NAN])], "failed", 475
    ),
    "finals": lambda path: save_returns(path, ["a", "b"], [SPREAD, SPREAD], SPREAD),
    "constant finals": lambda path: save_returns(path, ["a"], [[500.0] * 20], None),
    "failed finals": lambda path: save_returns(path, ["a", "b"], [[NAN], SPREAD]),
    "table": lambda path: trials.draw_table(path, trials.trial_rows(RUNS[0].results)),
    "empty table": lambda path: trials.draw_table(path, []),
    "runs": lambda path: comparison.compare_runs(path, RUNS, target=475),
    "table of runs": lambda path: trials.draw_table(path, trials.comparison_rows(RUNS)),
}


MANY = 256


def many_curves(count=MANY):
    return [curve(speed) for speed in GENERATOR.uniform(0.5, 1.5, count)]


def many_returns(count=MANY):
    return [list(GENERATOR.normal(mean, 20, 32)) for mean in GENERATOR.normal(300, 80, count)]


def many_results(count=MANY):
    results = [trial_result(k, returns) for k, returns in enumerate(many_returns(count))]
    results[3]["evaluation"]["returns"] = [NAN]
    return results


PICTURES |= {
    "many curves": lambda path: save_curves(path, many_curves(), "many", 475),
    "many curves, some failed": lambda path: save_curves(
        path, [*many_curves(40), ([10, 20], [1, NAN])]
    ),
    "many finals": lambda path: save_returns(
        path, [f"trial {k}" for k in range(MANY)], many_returns(), SPREAD
    ),
    "many failed finals": lambda path: save_returns(
        path, [f"trial {k}" for k in range(MANY)], [[NAN]] * MANY, [NAN]
    ),
    "long table": lambda path: trials.draw_table(path, trials.trial_rows(many_results())),
    "long table of runs": lambda path: trials.draw_table(path, trials.comparison_rows(RUNS * 10)),
    "many panels": lambda path: plots.learning_curve(
        path,
        [{"step": k, **{f"loss/{n}": float(k * n) for n in range(20)}} for k in range(1, 30)],
        [(f"loss/{n}", "a loss with a name too long for its panel" * (n % 2)) for n in range(20)],
    ),
}


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_written_and_not_blank(name, tmp_path):
    path = tmp_path / "plots" / "picture.png"
    PICTURES[name](path)
    pixels = np.asarray(Image.open(path).convert("L"), dtype=float)
    assert pixels.shape[1] == 1200
    assert 100 <= pixels.shape[0] <= 2400
    assert path.stat().st_size < 250_000
    assert pixels.std() > 5


def texts(figure):
    return [text.get_text() for text in figure.texts]


def test_many_trials_are_shades_and_few_are_lines():
    few, many = (comparison.learning_figure(many_curves(n), "", None) for n in (20, 40))
    lines, shades = ([len(f.axes[0].lines), len(f.axes[0].collections)] for f in (few, many))
    assert lines == [20 + 2, 1]  # their ends, the IQM; its interval
    assert shades == [1, 3]  # the IQM; its interval, 25 to 75 %, 5 to 95 %
    assert "Shades" in texts(many)[0] and "Shades" not in texts(few)[0]


def test_the_spread_of_many_trials_holds_half_and_nine_in_ten_of_them():
    curves = many_curves()
    over_trials = comparison.band(curves)
    ends = np.array([returns[-1] for _, returns in curves])
    low, first, third, high = over_trials.spread[:, -1]
    assert np.mean((ends >= low) & (ends <= high)) == pytest.approx(0.9, abs=0.01)
    assert np.mean((ends >= first) & (ends <= third)) == pytest.approx(0.5, abs=0.01)
    assert first < over_trials.iqm[-1] < third


def test_a_band_that_is_known_is_not_worked_out_again(monkeypatch):
    over_trials = comparison.band(many_curves(3))
    monkeypatch.setattr(comparison, "band", None)
    comparison.learning_figure(many_curves(3), "", None, over_trials=over_trials)


def test_many_finals_are_sorted_and_name_the_worst_the_median_and_the_best():
    returns = [[float(k)] * 4 for k in (7, 3, 9, 1, 5, 8, 2, 6, 4, 10, 12, 11, 13)]
    labels = [f"trial {k}" for k in range(len(returns))]
    figure = comparison.returns_figure(labels, returns, [0.5, 0.5], "")
    means = figure.axes[0].lines[0].get_ydata()
    assert list(means) == sorted(means) == list(range(1, 14))
    names = texts(figure)
    for name in ("trial 3\n1", "trial 0\n7", "trial 12\n13"):
        assert name in names
    assert "Grey: the random policy, 0.50." in names[0].replace("\n", " ")
    boxes = texts(comparison.returns_figure(labels[:12], returns[:12], None, ""))
    assert [name for name in boxes if "\n" in name] == [
        f"{k}\n{style.number(returns[k][0])}" for k in range(12)
    ]


def drawn_texts(monkeypatch, draw):
    """The words in the axes and around them of the picture that a function saves."""
    kept = []
    monkeypatch.setattr(style, "save", lambda figure, path: kept.append(figure))
    draw()
    inside = [text.get_text() for axes in kept[0].axes for text in axes.texts]
    return inside + texts(kept[0])


def test_a_long_table_has_few_rows_and_says_how_many_more(monkeypatch):
    rows = trials.trial_rows(many_results())
    words = drawn_texts(monkeypatch, lambda: trials.draw_table("", rows))
    for role in ("first", "best", "median", "worst", "failed"):
        assert words.count(role) == 1 + (role == "failed")  # a failed one has no return either
    (note,) = (text for text in words if "more, in summary.json" in text)
    assert note.startswith("… and 251 more") and "The random policy earns 22.3" in note


def test_a_table_of_twelve_rows_is_whole(monkeypatch):
    rows = trials.trial_rows(many_results(12))
    words = drawn_texts(monkeypatch, lambda: trials.draw_table("", rows))
    assert "best" not in words and not any("more" in text for text in words)


def test_panels_are_the_callers_and_only_of_what_was_recorded(monkeypatch):
    rows = [{"step": k, "loss/critic": 1.0 * k, "time/steps_per_second": 5.0} for k in (1, 2, 3)]
    panels = [("loss/critic", "critic loss"), ("loss/actor", "actor loss")]
    words = drawn_texts(monkeypatch, lambda: plots.learning_curve("", rows, panels))
    assert "critic loss" in words and "steps per second" in words
    assert "actor loss" not in words


def test_a_long_title_of_a_panel_is_cut(monkeypatch):
    rows = [{"step": k, "a": 1.0 * k} for k in (1, 2, 3)]
    long = "a title that would run over the next panel"
    words = drawn_texts(monkeypatch, lambda: plots.learning_curve("", rows, [("a", long)]))
    (cut,) = (text for text in words if text.endswith("…"))
    assert long.startswith(cut[:-1]) and 15 < len(cut) < len(long)


@pytest.mark.parametrize(
    ("value", "text"),
    [(500.0, "500"), (-1234.5, "−1,234"), (12.34, "12.3"), (0.123, "0.12"), (NAN, "failed")],
)
def test_numbers_read_well(value, text):
    assert style.number(value) == text


@pytest.mark.parametrize(
    ("low", "high", "most", "names"),
    [
        (0, 60_000, 3, ["0", "20k", "40k", "60k"]),
        (0, 1_300_000, 4, ["0", "0.5M", "1.0M"]),
        (-0.0071, 0.0051, 4, ["−0.005", "0", "0.005"]),
        (-1650, 20, 4, ["−1,500", "−1,000", "−500", "0"]),
        (0, 4.2e-6, 3, ["0", "2e−6", "4e−6"]),
        (0, 3e20, 3, ["0", "1e20", "2e20", "3e20"]),
    ],
)
def test_scales_are_round_and_read_well(low, high, most, names):
    assert style.scale(low, high, most).names == names


def test_span_leaves_room_also_around_one_number():
    assert style.span([0.0, 100.0, NAN]) == (-5.0, 105.0)
    assert style.span([500.0, 500.0 + 1e-9]) == pytest.approx((475.0, 525.0))
    assert style.span([]) == (0.0, 1.0)


def test_series_skips_what_was_not_recorded():
    rows = [{"step": 1, "a": 2.0}, {"step": 2}, {"step": 3, "a": None}, {"step": 4, "a": NAN}]
    steps, values = plots.series(rows, "a")
    assert (steps.tolist(), values.tolist()) == ([1.0], [2.0])


def test_gif_keeps_its_time_and_colours(tmp_path):
    frames = [np.full((20, 30, 3), shade, dtype=np.uint8) for shade in (0, 100, 250)]
    gif.write_gif(tmp_path / "a.gif", frames, fps=25)
    with Image.open(tmp_path / "a.gif") as image:
        assert (image.n_frames, image.info["loop"], image.info["duration"]) == (3, 0, 40)
        image.seek(2)
        assert image.info["duration"] == 1000
        assert np.asarray(image.convert("RGB")).mean() == pytest.approx(250, abs=3)


def test_png_of_many_colours_and_of_none():
    """A picture keeps its colours, also where it has more than a palette holds, or none but white."""
    figure = style.new_figure(1.0)
    blank = Image.open(BytesIO(style.png(figure))).convert("RGB")
    assert blank.getextrema() == ((255, 255),) * 3
    axes = style.add_axes(figure, style.Box(0.5, 0.1, 3.0, 0.8))
    axes.imshow(np.linspace(0, 1, 600)[None], aspect="auto", cmap="viridis")
    drawn = np.asarray(Image.open(BytesIO(style.png(figure))).convert("RGB"), int)
    whole = np.asarray(figure.canvas.buffer_rgba(), int)[..., :3]
    assert len(np.unique(whole.reshape(-1, 3), axis=0)) > 256
    assert np.abs(drawn - whole).max() <= 12
