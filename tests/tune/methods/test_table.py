"""Configurations from a CSV file."""

import pytest
from searches import allowed, whole_config

from proxima.core.errors import ProximaError
from proxima.tune.method import Order
from proxima.tune.methods.table import make_table, read_settings


@pytest.fixture
def table(tmp_path):
    """A file of that content."""

    def write(content):
        path = tmp_path / "table.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def test_cells_are_read_as_in_a_scenario(table):
    path = table(
        "\ufeffalgorithm.rate, net.kind ,train.flag\r\n"
        '3e-4,gru,true\r\n\r\n1,"a, b",null\r\n-2.5,no,false\n'
    )
    rows = read_settings(path, allowed)
    assert [list(row.values()) for row in rows] == [
        [3e-4, "gru", True],
        [1, "a, b", None],
        [-2.5, "no", False],
    ]
    assert list(rows[0]) == ["algorithm.rate", "net.kind", "train.flag"]
    assert [type(row["algorithm.rate"]) for row in rows] == [float, int, float]


def test_every_row_is_trained_whole_without_any_ranges(table):
    config = whole_config(method="table", path=str(table("a\n1\n2\n1\n")), configs=1)
    method = make_table(config, {}, allowed)
    orders = [method.next(lambda number: True) for _ in range(4)]
    assert orders == [Order(0, 0, 9), Order(1, 0, 9), Order(2, 0, 9), None]


def refuse_two(settings):
    return "a must not be 2; lower it" if settings["a"] == 2 else None


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a\n1\n2\n", "line 3: a must not be 2; lower it"),
        ("a,b\n1,2\n3\n", "line 3: has 1 cells for 2 columns"),
        ("a,b\n1,[1]\n", r'line 2, column b: "\[1\]" is not a single value'),
        ("a,b\n1,x: y\n", 'line 2, column b: "x: y" is not a single value'),
        ("a,b\n1,\n", 'line 2, column b: "" is no value; write null for none'),
        ("a,b\n1,#2\n", 'line 2, column b: "#2" is no value; write null for none'),
        ("a,b\n1,'x\n", "line 2, column b: line 1: not valid YAML"),
        ("a,a\n1,1\n", "the column a stands there twice; delete one"),
        ("a,\n1,1\n", "its first line must name a dotted path for every column"),
        ("a\n", "has no rows"),
        ("", "has no rows"),
        ('a\n"1\n', "line 2: not valid CSV"),
        (b"a\n\xff\n", "is not text in UTF-8"),
        ("a\n" + "1\n" * 100_001, "has more than 100,000 rows"),
    ],
)
def test_what_is_no_table_is_refused_in_words(table, monkeypatch, content, words):
    monkeypatch.setattr("proxima.tune.methods.table.read_yaml", quick_yaml)
    with pytest.raises(ProximaError, match=r"table\.csv: " + words):
        read_settings(table(content), refuse_two)


def quick_yaml(text, source):
    """The largest table is of ones, which need no parser."""
    from proxima.yaml import read_yaml

    return 1 if text == "1" else read_yaml(text, source)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ProximaError, match=r"none\.csv: cannot be read \(No such file"):
        read_settings(tmp_path / "none.csv", allowed)
    with pytest.raises(ProximaError, match=r"cannot be read \(Is a directory"):
        read_settings(tmp_path, allowed)
