"""YAML is read by the rules of 1.2, strictly, and what is written reads back."""

import pytest
from scenario_files import file_message, write

from proxima.scenario import dump, from_mapping, load, parse

TRICKY_TEXTS = (
    *("", "no", "3", "1e5", "0o17", "~", "2020-01-01", "=", "<<", "# a", "a: b", "- a", "*a", "!b"),
    *(
        "é😀",
        " a ",
        "'\"\\",
        "a\nb\n",
        "\n\n",
        "a\x85b\u2028c",
        "\ta",
        "\x00\x7f",
        "%c",
        "x " * 200,
    ),
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty; write at least `env: {name: CartPole-v1}`"),
        ("# nothing\n", "is empty; write at least `env: {name: CartPole-v1}`"),
        ("---\n", "is empty; write at least `env: {name: CartPole-v1}`"),
        ("- 1\n- 2\n", "expected keys and values, got [1, 2]"),
        ("hello\n", 'expected keys and values, got "hello"'),
        (b"\x89PNG\r\n\x1a\n\xff\xfe", "is not UTF-8 text, so not a YAML file"),
        ("seed: 1\nname: \x01\n", "line 2: the character 0x1 is not allowed in YAML"),
        (
            "algorithm:\n\tgamma: 0.9\n",
            "line 2: not valid YAML: found character '\\t' that cannot start any token; "
            "indent with spaces, not tabs",
        ),
        ("seed: 1\nenv: {name: x\n", "line 3: not valid YAML: expected ',' or '}', but got "),
        ("seed: 1\n---\nseed: 2\n", "line 2: not valid YAML: but found another document"),
        ("seed: *one\n", "line 1: not valid YAML: found undefined alias 'one'"),
        (
            "algorithm:\n  gamma: 0.9\n  gamma: 0.8\n",
            "line 3: the key gamma stands here a second time; delete one",
        ),
        ("seed: 1\nseed: 1\n", "line 2: the key seed stands here a second time; delete one"),
        ("seed: 1\n3: x\n", "line 2: the key 3 is not text; put it in quotes"),
        ("? [a]\n: x\n", 'line 1: the key ["a"] is not text; put it in quotes'),
        (
            "seed: !!python/object/apply:os.system [ls]\n",
            "line 1: the tag !!python/object/apply:os.system is not allowed; write plain values",
        ),
        ("seed: 1\nenv: !mine {}\n", "line 2: the tag !mine is not allowed; write plain values"),
        ("env: !!set {a}\n", "line 1: the tag !!set is not allowed; write plain values"),
        ("env: !!map x\n", "line 1: the tag !!map is not allowed; write plain values"),
        ("seed: !!int x\n", 'line 1: "x" is not a YAML int'),
        ("%YAML 1.1\n---\nseed: no\n", 'line 3: "no" is not a YAML bool'),
        (
            "env: &e {}\nnetwork: *e\n",
            "line 1: an alias repeats a mapping or list; write it out instead",
        ),
        ("env: &e [*e]\n", "line 1: an alias repeats a mapping or list; write it out instead"),
        ("[" * 1000, "is nested too deeply for a scenario"),
        (
            'description: "\\ud800"\n',
            "description: '\\ud800' is not a number, text, true, false, null, list or mapping",
        ),
    ],
)
def test_file_that_is_no_scenario(tmp_path, text, told):
    assert file_message(tmp_path, text).startswith(told)


def test_byte_order_mark_and_windows_line_ends_are_read(tmp_path):
    path = write(tmp_path, b"\xef\xbb\xbfseed: 3\r\ntrials: 2\r\n")
    assert load(path) == from_mapping({"name": "mine", "seed": 3, "trials": 2}, "mine")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3e-4", 3e-4),
        ("1e5", 1e5),
        ("1E+5", 1e5),
        ("12", 12),
        ("+12", 12),
        ("0o17", 15),
        ("017", 17),
        ("0x1F", 31),
        (".5", 0.5),
        ("-.inf", float("-inf")),
        ("no", "no"),
        ("on", "on"),
        ("off", "off"),
        ("yes", "yes"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("", None),
        ("1:30", "1:30"),
        ("2020-01-01", "2020-01-01"),
        ("=", "="),
        ("'3'", "3"),
        ("!!str 3", "3"),
        ("[1, a]", [1, "a"]),
        ("{a: {b: 1}}", {"a": {"b": 1}}),
    ],
)
def test_yaml_is_read_by_the_rules_of_1_2(text, value):
    read = parse(f"key: {text}\n", "text")["key"]
    assert read == value
    assert type(read) is type(value)


def test_scalars_can_be_shared_by_an_alias():
    assert parse("a: &size 64\nb: *size\n", "text") == {"a": 64, "b": 64}


@pytest.mark.parametrize(
    "text",
    TRICKY_TEXTS,
)
def test_dump_keeps_every_text(text):
    scenario = from_mapping({"description": text, "env": {"params": {text or "k": text}}}, "test")
    assert from_mapping(parse(dump(scenario), "dump"), "dump") == scenario


@pytest.mark.parametrize("value", [1e-05, 1e22, 0.1 + 0.2, 2e-38, 1.0, -0.0, 12, -3, True])
def test_dump_keeps_every_number(value):
    scenario = from_mapping({"env": {"params": {"key": value}}}, "test")
    read = from_mapping(parse(dump(scenario), "dump"), "dump").env.params["key"]
    assert (repr(read), type(read)) == (repr(value), type(value))
