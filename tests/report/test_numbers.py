"""A number is written with the digits that say something: none becomes nothing by being written."""

import math

import numpy as np
import pytest

from proxima.report.numbers import NOTHING, brief, figure, share, signed
from proxima.report.style import decimals, number
from proxima.report.trials import column_cells

NAN = float("nan")
SIZES = [
    sign * digit * 10.0**power
    for sign in (1, -1)
    for digit in (1, 2.4, 9.996)
    for power in range(-9, 7)
]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (493.64, "493.6"), (10, "10.0"), (0.03123, "0.0312"), (-0.00123, "-0.00123"), (0, "0.0"),
        (-0.0, "0.0"), (2.5, "2.5"), (-1e-7, "-1e-07"), (None, NOTHING), (NAN, NOTHING),
    ],
)  # fmt: skip
def test_on_the_console(value, text):
    assert brief(value) == text


def test_differences_have_a_sign():
    assert [signed(value) for value in (0.0312, -0.0312, 0.0, None)] == [
        "+0.0312",
        "-0.0312",
        "0.0",
        NOTHING,
    ]


@pytest.mark.parametrize("write", [brief, figure, number, lambda value: share(value / 100)])
def test_no_number_is_written_as_nothing_and_two_digits_are_right(write):
    for value in SIZES:
        text = write(value).replace("−", "-").replace(",", "").replace("%", "").strip()
        if text.startswith("×"):  # a share from a hundredfold on
            continue
        assert math.isclose(float(text), value, rel_tol=0.06 if abs(value) >= 1e-4 else 0.3), (
            value,
            text,
        )


def test_numbers_of_pages_and_pictures_that_were_lost():
    assert [figure(value) for value in (0.0014, 0.021, -0.0006)] == ["0.0014", "0.021", "−0.0006"]
    assert [number(value) for value in (0.0012, -0.034, 0.25, 1e-9)] == [
        "0.0012",
        "−0.034",
        "0.25",
        "1e−09",
    ]
    assert share(3e-6) == "0.0003\u00a0%" and share(-0.0) == "0\u00a0%"
    assert decimals(0.0012) == 4


def test_a_column_has_equally_many_decimals_and_loses_none():
    assert column_cells([0.0012, 12.5, -0.5]) == ["0.0012", "12.5000", "−0.5000"]
    assert column_cells([1e-9, 0.5]) == ["1e−09", "0.50000"]
    assert column_cells([np.nan, 1.0]) == ["failed", "1"]
