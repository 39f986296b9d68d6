"""How far the code's structure is from its goals: counts over the source, as a table of today and goal.

    python benchmarks/house.py [folder with the package, src/proxima unless given] [--list]

A file knows a domain or an algorithm when one of its words stands in the file's path, identifiers, imports
or strings; docstrings and comments do not count. `--list` names the files behind each count.
"""

import argparse
import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

DOMAINS = {
    "control": {"control", "gymnax", "gymnasium", "envpool"},
    "packing": {"packing", "jumanji", "binpack", "maze"},
    "trading": {"trading"},
    "language": {"language"},
}
ALGORITHMS = ("ppo", "ddpg", "sac", "spo")
# What there should be one of, by the files that are or were one.
ROLES = {
    "loops": ("train/loop.py", "train/stages.py"),
    "recorders": (
        *("run/recording.py", "run/record.py", "run/stage.py"),
        *("experiment/recording.py", "experiment/stage.py"),
    ),
    "finishers": (
        *("run/finish.py", "domains/language/finish.py"),
        *("experiment/finish.py", "experiment/language_finish.py"),
    ),
    # one that writes whole pages of runs; a domain's page gives the frame its parts
    "reports": ("report/page.py", "report/language_page.py"),
}
# From `proxima experiment` to PPO's gradient: what a reader opens on the way. Where a file has moved, its
# places newest first.
PATH = (
    ("cli/run.py",),
    ("scenario/read.py",),
    ("run/start.py", "experiment/run.py"),
    ("run/record.py", "experiment/recording.py"),
    ("domains/control/domain.py", "build.py"),
    ("domains/reinforcement.py",),
    ("train/reinforcement.py", "train/program.py"),
    ("train/loop.py",),
    ("train/compiled/program.py", "train/compiled/chunk.py", "train/chunk.py"),
    ("train/compiled/collect.py", "train/collect.py"),
    ("algorithms/ppo.py",),
    ("core/returns.py",),
    ("core/losses.py",),
)
WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")


class Count(NamedTuple):
    """A line of the table, and what was counted."""

    what: str
    today: str
    goal: str
    listed: tuple[str, ...] = ()


class Source(NamedTuple):
    """A package's files, parsed, by their paths inside it."""

    trees: dict[str, ast.Module]
    texts: dict[str, str]


def read(folder: Path) -> Source:
    texts = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.py")}
    texts = dict(sorted(texts.items()))
    return Source({name: ast.parse(text) for name, text in texts.items()}, texts)


def names_in(tree: ast.Module) -> Iterator[str]:
    """Identifiers, parts of imports, and strings that are not docstrings."""
    alone = docstrings(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.keyword(arg=str(name)):
                yield name
            case ast.alias(name=name, asname=other):
                yield from (name, other or "")
            case ast.ImportFrom(module=str(name)):
                yield name
            case ast.Constant(value=str(text)) if id(node) not in alone:
                yield text


def docstrings(tree: ast.Module) -> set[int]:
    """The ids of strings that stand alone as statements: docstrings, also those below fields."""
    alone = (node.value for node in ast.walk(tree) if isinstance(node, ast.Expr))
    return {id(value) for value in alone}


def words_of(source: Source) -> dict[str, set[str]]:
    """The words in each file, in lower case; PPOConfig is ppo and config."""
    return {
        name: {word.lower() for text in (name, *names_in(tree)) for word in WORD.findall(text)}
        for name, tree in source.trees.items()
    }


def domain_counts(words: dict[str, set[str]]) -> Iterator[Count]:
    for domain, own in DOMAINS.items():
        outside = {name: known for name, known in words.items() if f"domains/{domain}/" not in name}
        files = tuple(name for name, known in outside.items() if known & own)
        yield Count(f"files outside its folder that know {domain}", str(len(files)), "1", files)


def algorithm_counts(words: dict[str, set[str]]) -> Iterator[Count]:
    for algorithm in ALGORITHMS:
        own = f"algorithms/{algorithm}.py"
        files = tuple(name for name, known in words.items() if algorithm in known and name != own)
        yield Count(f"files besides its own that know {algorithm}", str(len(files)), "1", files)


def role_counts(source: Source) -> Iterator[Count]:
    for role, places in ROLES.items():
        files = tuple(place for place in places if place in source.trees)
        yield Count(role, str(len(files)), "1", files)


def imports(source: Source) -> dict[str, set[str]]:
    """Which files a file imports, inside functions too; not what only the type checker sees."""
    files = {name.removesuffix(".py").removesuffix("/__init__"): name for name in source.trees}
    return {name: set(_imported(tree, files)) - {name} for name, tree in source.trees.items()}


def _imported(tree: ast.Module, files: dict[str, str]) -> Iterator[str]:
    for node in _running(tree):
        match node:
            case ast.Import(names=names):
                paths = [alias.name for alias in names]
            case ast.ImportFrom(module=str(module), names=names):
                paths = [f"{module}.{alias.name}" for alias in names]
            case _:
                continue
        for path in paths:
            inside = path.removeprefix("proxima.").replace(".", "/")
            outer = inside.rpartition("/")[0]
            if path.startswith("proxima.") and (inside in files or outer in files):
                yield files.get(inside) or files[outer]


def _running(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from _running(child)


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of files each of which imports, directly or not, all the others."""
    reached = {name: _reachable(graph, name) for name in graph}
    groups: list[list[str]] = []
    for name in graph:
        group = [other for other in reached[name] if name in reached[other]]
        if name in reached[name] and sorted(group) not in groups:
            groups.append(sorted(group))
    return groups


def _reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting.extend(graph[name])
    return seen


def cycle_count(source: Source) -> Count:
    groups = [" ".join(group) for group in cycles(imports(source))]
    sizes = ", ".join(str(len(group.split())) for group in groups)
    return Count(
        "import cycles", f"{len(groups)} (files: {sizes})" if groups else "0", "0", tuple(groups)
    )


def path_count(source: Source) -> Count:
    files = []
    for places in PATH:
        here = [place for place in places if place in source.texts]
        if not here:
            raise SystemExit(f"{' or '.join(places)}: gone; correct PATH in {__file__}")
        files.append(here[0])
    total = lines(source.texts[name] for name in files)
    listed = tuple(f"{name} {lines([source.texts[name]])}" for name in files)
    today = f"{len(files)} files, {total:,} lines"
    return Count("from the command to PPO's gradient", today, "10 files, 1,200 lines", listed)


def lines(texts: Iterable[str]) -> int:
    return sum(len(text.splitlines()) for text in texts)


def dict_count(source: Source) -> Count:
    counts = {
        name: sum("dict[str, Any]" in row for row in text.splitlines())
        for name, text in source.texts.items()
    }
    listed = tuple(f"{name} {count}" for name, count in counts.items() if count)
    return Count("lines with dict[str, Any]", str(sum(counts.values())), "where JSON is", listed)


def counts(source: Source) -> Iterator[Count]:
    words = words_of(source)
    yield from domain_counts(words)
    yield from algorithm_counts(words)
    yield from role_counts(source)
    yield cycle_count(source)
    yield path_count(source)
    yield dict_count(source)
    yield Count("source files", str(len(source.texts)), "")
    yield Count("source lines", f"{lines(source.texts.values()):,}", "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    default = Path(__file__).parent.parent / "src" / "proxima"
    parser.add_argument("folder", nargs="?", type=Path, default=default)
    parser.add_argument("--list", action="store_true", help="name what was counted")
    options = parser.parse_args()
    print("| | today | goal |\n| --- | ---: | ---: |")
    for count in counts(read(options.folder)):
        print(f"| {count.what} | {count.today} | {count.goal} |")
        for each in count.listed if options.list else ():
            print(f"|   {each} | | |")


if __name__ == "__main__":
    main()
