"""The tree of files in docs/architecture.md is the one on disk, each line the file's own docstring.

`PROXIMA_RECORD=1 pytest tests/test_architecture.py` writes the section anew.
"""

import ast
import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "architecture.md"
START, END = "<!-- tree: written by tests/test_architecture.py -->\n", "<!-- end of tree -->\n"


def summary(path: Path) -> str:
    """The first paragraph of a module's docstring, in one line; empty where there is none."""
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(docstring.partition("\n\n")[0].split())


def tree(folder: Path, depth: int = 0) -> Iterator[str]:
    """A line per folder and per module, files before folders."""
    about = summary(folder / "__init__.py") if (folder / "__init__.py").is_file() else ""
    yield line(depth, f"{folder.name}/", about)
    for path in sorted(folder.glob("*.py")):
        if path.name != "__init__.py":
            yield line(depth + 1, path.name, summary(path))
    for inner in sorted(folder.iterdir()):
        if inner.is_dir() and any(inner.rglob("*.py")):
            yield from tree(inner, depth + 1)


def line(depth: int, name: str, about: str) -> str:
    return f"{'  ' * depth}{name:{26 - 2 * depth}}{about}".rstrip()


def section(lines: list[str]) -> str:
    return "".join([START, "```\n", *(f"{each}\n" for each in lines), "```\n", END])


def recorded() -> list[str]:
    inside = PAGE.read_text().split(START)[1].split(END)[0]
    return inside.strip().strip("`").strip("\n").splitlines()


def test_the_tree_on_the_page_is_the_tree_on_disk():
    lines = list(tree(ROOT / "src" / "proxima"))
    if os.environ.get("PROXIMA_RECORD"):
        before, rest = PAGE.read_text().split(START)
        PAGE.write_text(before + section(lines) + rest.split(END)[1])
    remedy = "PROXIMA_RECORD=1 pytest tests/test_architecture.py writes it anew"
    unlisted = [each for each in lines if each not in recorded()]
    stale = [each for each in recorded() if each not in lines]
    assert not unlisted, f"files without a line in {PAGE.name}; {remedy}"
    assert not stale, f"lines without a file in {PAGE.name}; {remedy}"
    assert recorded() == lines, f"another order in {PAGE.name}; {remedy}"


def test_every_module_says_in_a_line_what_it_is():
    for path in (ROOT / "src").rglob("*.py"):
        text = summary(path)
        if path.name == "__init__.py" and not path.read_text().strip():
            continue
        assert text, f"{path}: no docstring"
        assert len(text) < 130, (
            f"{path}: the docstring's first paragraph is a line, not {len(text)}"
        )
