"""What the documents say of the code is there: files, and the names in them."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "proxima"
# Not the log and the changes, which speak of what was, nor a decision, which is of its day.
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
PAGES = [page for page in PAGES if page.name != "log.md" and page.parent.name != "decisions"]
# `core/returns.gae`, `run/trainer.py`, `train/loop.train`; of what is in several folders, the whole path
IN_FILE = re.compile(r"`([a-z_]+(?:/[a-z_]+)+)\.([A-Za-z_]\w*)(?:\.(\w+))?(?:\(.*?\))?`")
OF_CLASS = re.compile(r"`([A-Z]\w+)\.(\w+)(?:\(.*?\))?`")


@cache
def names_in(path: Path) -> dict[str, set[str]]:
    """The names that a module defines or imports, and of each class; no locals of functions."""
    names: dict[str, set[str]] = {}
    for node in ast.parse(path.read_text()).body:
        match node:
            case ast.ClassDef(name=name, body=body):
                names[name] = {part for row in body for part in defined_by(row)}
                names[name] |= {
                    part.attr
                    for row in ast.walk(node)
                    for part in ast.walk(row)
                    if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store)
                }
            case ast.stmt():
                names |= {name: set() for name in defined_by(node) if name not in names}
    return names


def defined_by(node: ast.AST) -> list[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case ast.Assign(targets=targets):
            parts = [part for target in targets for part in ast.walk(target)]
            return [part.id for part in parts if isinstance(part, ast.Name)]
        case ast.ImportFrom(names=names):
            return [alias.asname or alias.name for alias in names]
    return []


@cache
def classes() -> dict[str, set[str]]:
    """Every class of the source with its names; those of classes of one name together."""
    found: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        for name, parts in names_in(path).items():
            found[name] = found.get(name, set()) | parts
    return found


def text_of(page: Path) -> str:
    """What a page says of this code; the first column of some holds names of other documents or libraries."""
    if page.name != "names.md" and page.parent.name != "coming_from":
        return page.read_text()
    return re.sub(r"^\|[^|]*\|", "", page.read_text(), flags=re.MULTILINE)


def faults(page: Path) -> list[str]:
    """Files, and names in them, that the page has between backquotes and the source has not."""
    text, wrong = text_of(page), []
    for path, name, part in IN_FILE.findall(text):
        if not any((folder / path.split("/")[0]).is_dir() for folder in (SOURCE, ROOT)):
            continue  # a file of a run, or of a user's
        if name in ("py", "md", "json", "yaml"):
            if not any((folder / f"{path}.{name}").exists() for folder in (SOURCE, ROOT)):
                wrong.append(f"{path}.{name}: no such file")
            continue
        module = SOURCE / f"{path}.py"
        if not module.exists():
            wrong.append(f"{path}.{name}: no such module")
        elif name not in names_in(module):
            wrong.append(f"{path}.{name}: not in that module")
        elif part and names_in(module)[name] and part not in names_in(module)[name]:
            wrong.append(f"{path}.{name}.{part}: no such part")
    for name, part in OF_CLASS.findall(text):
        if classes().get(name) and part not in classes()[name]:
            wrong.append(f"{name}.{part}: no class of that name has it")
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_names_is_in_the_code(page):
    assert faults(page) == []


def test_every_setting_that_a_page_names_is_one():
    """Of pages that teach; others also speak of settings of a user's own."""
    settings = re.findall(
        r"^\| `([\w.]+)`", (ROOT / "docs" / "settings.md").read_text(), re.MULTILINE
    )
    sections = {path.partition(".")[0] for path in settings if "." in path}
    folders = ("tutorials", "howto", "coming_from")
    pages = [page for folder in folders for page in (ROOT / "docs" / folder).glob("*.md")]
    pages += [ROOT / "docs" / f"{name}.md" for name in ("start", "concepts", "troubleshooting")]
    named = {
        (path, page.name)
        for page in pages
        for path in re.findall(r"`(?:--set )?(\w+\.\w+(?:\.\w+)*)[`:=]", page.read_text())
        if path.partition(".")[0] in sections - {"model"} or path.startswith("model.mesh")
    }
    files = ("py", "json", "jsonl", "yaml", "html", "csv", "parquet", "md", "safetensors")
    wrong = {(path, page) for path, page in named if path not in settings}
    assert len(named) > 100
    assert {pair for pair in wrong if pair[0].rpartition(".")[2] not in files} == set()


def test_what_the_makefile_names_is_there():
    paths = re.findall(r"\b(?:tests|benchmarks)/[\w/]+(?:\.py)?", (ROOT / "Makefile").read_text())
    assert len(paths) > 5
    assert [path for path in paths if not (ROOT / path).exists()] == []
