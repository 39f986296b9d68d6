"""A search is the same after it was written and read, as a table and as JSON."""

import json

import polars as pl
import pytest
import search_results as searches

from proxima.core.errors import ProximaError
from proxima.tune import table

SEARCHES = {
    "halving": searches.surface,
    "population": searches.population,
    "broken": searches.all_broken,
    "mixed": searches.mixed_choices,
    "empty": lambda: searches.search([]),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_a_table_comes_back_as_it_was(name, tmp_path):
    rows = SEARCHES[name]().configurations
    table.write_table(tmp_path / "rows [1].parquet", rows)
    read = table.read_table(tmp_path / "rows [1].parquet")
    assert read == rows
    assert [kinds(each) for each in read] == [kinds(each) for each in rows]


def kinds(configuration):
    """The types of its settings, which == does not compare: 1, 1.0 and true are equal."""
    return {path: type(value) for path, value in configuration.settings.items()}


def test_columns_have_the_types_that_they_ought_to_have():
    schema = table.to_frame(searches.surface().configurations).schema
    assert schema[searches.RATE] == pl.Float64 and schema[searches.EPOCHS] == pl.Int64
    assert schema[searches.NET] == pl.String and schema["values"] == pl.List(pl.Float64)


def settings_column(*values):
    rows = [searches.configuration(k, {"x": value}, 1.0) for k, value in enumerate(values)]
    return table.to_frame(rows)["x"]


def test_text_and_numbers_in_one_setting_can_be_told_apart():
    values = ["auto", 1, "1", 1.5, True, "true", None, "null", '"', "[1]", "NaN", ""]
    column = settings_column(*values)
    assert column.dtype == pl.String
    assert column.to_list()[:7] == ["auto", "1", '"1"', "1.5", "true", '"true"', None]
    rows = [searches.configuration(k, {"x": value}, 1.0) for k, value in enumerate(values)]
    read = [each.settings["x"] for each in table.from_frame(table.to_frame(rows))]
    assert [(type(value), value) for value in read] == [(type(value), value) for value in values]


def test_whole_numbers_among_fractions_become_fractions():
    assert settings_column(1, 0.5).to_list() == [1.0, 0.5]
    assert settings_column(True, None).dtype == pl.Boolean
    assert settings_column(True, 2).to_list() == ["true", "2"]


def test_a_file_that_is_no_table_is_named(tmp_path):
    path = tmp_path / "rows.parquet"
    path.write_text("no parquet")
    with pytest.raises(ProximaError, match=r"rows\.parquet: cannot be read as a table"):
        table.read_table(path)
    with pytest.raises(ProximaError, match="nowhere"):
        table.read_table(tmp_path / "nowhere")
    pl.DataFrame({"a": [1]}).write_parquet(path)
    with pytest.raises(ProximaError, match=r"rows\.parquet: .*number"):
        table.read_table(path)


@pytest.mark.parametrize("name", SEARCHES)
def test_json_comes_back_as_it_was(name):
    result = SEARCHES[name]()
    text = json.dumps(table.to_json(result), allow_nan=False)
    assert table.from_json(json.loads(text)) == result


def test_what_is_no_number_is_null_in_json():
    nan = float("nan")
    broken = searches.configuration(
        0, {"x": 1}, nan, values=(nan, 2.0), curve=((10, nan), (20, 3.0))
    )
    text = json.dumps(table.to_json(searches.search([broken])), allow_nan=False)
    read = table.from_json(json.loads(text)).configurations[0]
    assert (read.value, read.values) == (None, (None, 2.0))
    assert read.curve[1] == (20, 3.0) and read.curve[0][1] != read.curve[0][1]


@pytest.mark.parametrize("damage", [{"configurations": [{"number": 1}]}, {"more": 1}, {"test": 3}])
def test_json_of_something_else_is_refused(damage):
    content = table.to_json(searches.surface(8)) | damage
    with pytest.raises(ProximaError, match="no search that this version wrote"):
        table.from_json(content)
    with pytest.raises(ProximaError, match="no search"):
        table.from_json({})
