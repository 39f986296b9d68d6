"""The tutorials are followed: files written, commands and Python run in order, with smaller budgets.

A page's last comment, `<!-- small: … -->`, has lines `this -> that`; every one of them must be needed.
"""

import json
import re
import shlex
import sys
from pathlib import Path

import polars as pl
import pytest
from tiny import LANGUAGE, flags, run_main

FOLDER = Path(__file__).parent.parent / "docs" / "tutorials"
BLOCK = re.compile(r"^```(python|yaml|)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
REVIEWS = Path("data/raw/language/movie_reviews.parquet")
MODEL = {key: value for key, value in LANGUAGE.items() if key.startswith(("model.", "evaluation."))}
DPO = {"updates": 2, "batch_size": 4, "new_tokens": 6, "held_out_pairs": 16}


def small(page: str) -> list[tuple[str, str]]:
    """What stands for what while the page is tested."""
    (comment,) = re.findall(r"^<!-- small: .*?\n(.*?)-->\n\Z", page, re.MULTILINE | re.DOTALL)
    pairs = [line.partition(" -> ") for line in comment.splitlines()]
    return [(this, that) for this, _, that in pairs]


def followed(page: Path, capsys, monkeypatch) -> dict:
    """Everything that the page asks for, done; what its Python left behind."""
    text, names, used = page.read_text(), {}, set()
    for kind, code in BLOCK.findall(text.partition("<!-- small:")[0]):
        for this, that in small(text):
            used |= {this} & {this if this in code else None}
            code = code.replace(this, that)
        first, _, rest = code.partition("\n")
        if kind and re.fullmatch(r"# \S+\.\w+", first):
            Path(first.removeprefix("# ")).write_text(rest)
        elif kind == "python":
            exec(code, names)
        else:
            for line in code.splitlines():
                run_line(line, capsys, monkeypatch)
    assert used == {this for this, _ in small(text)}, "budgets that change nothing"
    return names


def run_line(line: str, capsys, monkeypatch) -> None:
    program, *arguments = shlex.split(line)
    assert program == "proxima", line
    words = [word for argument in arguments for word in sizes_of(argument, line)]
    done = run_main(words, capsys, monkeypatch)
    assert done.code == 0, f"{line}\n{done.err}"
    assert done.out, line
    if "generate-data" in words and REVIEWS.exists():
        # Every stage reads and encodes all texts: of ten thousand, that is most of a tiny run.
        pl.read_parquet(REVIEWS).head(600).write_parquet(REVIEWS)


def sizes_of(word: str, line: str) -> list[str]:
    """The settings that MODEL and SIZES stand for: of language models, too many to be written there."""
    settings = MODEL if word == "MODEL" else LANGUAGE | {"sft.batch_size": 512}
    if "_dpo" in line:
        settings = {key: value for key, value in settings.items() if not key.startswith("ppo.")}
        settings |= {f"dpo.{key}": value for key, value in DPO.items()}
    pairs = (f"{key}={json.dumps(value)}" for key, value in settings.items())
    return flags(*pairs) if word in ("MODEL", "SIZES") else [word]


@pytest.fixture
def desk(workdir, monkeypatch):
    """A working directory whose modules can be imported, and are forgotten afterwards."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(workdir)])
    yield workdir
    for name in ("wind", "brevity"):
        sys.modules.pop(name, None)


def test_the_researchers(desk, capsys, monkeypatch):
    names = followed(FOLDER / "research.md", capsys, monkeypatch)
    assert len(names["summary"].trials) == 2
    assert (desk / "wind.png").exists() and list(desk.glob("logs/*/runs/tuned/report.html"))


def test_the_traders(desk, capsys, monkeypatch):
    names = followed(FOLDER / "trading.md", capsys, monkeypatch)
    assert names["policy"].predict(names["bars"].head(4001)) in (-1, 0, 1)
    assert list(desk.glob("logs/mine/runs/*/trial_0/trade/*"))


def test_the_language_users(desk, capsys, monkeypatch):
    followed(FOLDER / "language.md", capsys, monkeypatch)
    assert (desk / "brief_model" / "model.safetensors").exists()


def test_there_are_no_others():
    assert {page.stem for page in FOLDER.glob("*.md")} == {"research", "trading", "language"}
