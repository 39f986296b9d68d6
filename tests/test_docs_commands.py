"""What the documents ask a reader to type is understood: commands, options, settings with values, metrics.

Nothing is run. A command is parsed as the command line would; a setting is laid over a shipped scenario.
"""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup
from typer.main import get_command

from proxima.cli.app import app
from proxima.core.errors import ProximaError
from proxima.scenario import load, shipped

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "proxima"
# Not the log and the changes, which speak of what was, nor a decision, which is of its day.
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in PAGES if page.name != "log.md" and page.parent.name != "decisions"]
FOLDERS = ("tutorials", "howto", "coming_from")
TEACHING = [
    page
    for page in PAGES
    if page.parent.name in FOLDERS or page.stem in ("start", "concepts", "troubleshooting")
]
# A line of a block, fenced or indented, and what stands between backquotes.
LINE = re.compile(r"^(?: {4})?((?:[A-Z_]+=\S+ )*proxima .*)$", re.MULTILINE)
INLINE = re.compile(r"`([^`\n]+)`")
BLOCK = re.compile(r"^```[^\n]*\n.*?^```$", re.MULTILINE | re.DOTALL)
AFTERWARDS = re.compile(
    r"\s+#.*|\s+[>|&] ?.*|`.*"
)  # a comment, a file or command that takes the output
NUMBER = re.compile(r"\b[INP]\b")  # stands for one, in `--port P`
SETTING = re.compile(r"(\w+(?:\.\w+)+): (.+)")
SECTION = re.compile(r"(\w+): (\{.*\})")
METRIC = re.compile(r"(?:train|loss|eval|episode|memory|time|value|ppo|sft|dpo)/\w+")
UsageError = (
    typer.BadParameter.__base__
)  # Typer keeps its own copy of Click and does not export this


@cache
def commands() -> Any:
    return get_command(app)


def context_of(words: list[str]) -> typer.Context:
    """The innermost command that the words name, its options parsed."""
    context = commands().make_context("proxima", list(words))
    while isinstance(context.command, TyperGroup) and context._protected_args:
        name, command, rest = context.command.resolve_command(
            context, [*context._protected_args, *context.args]
        )
        context = command.make_context(name, rest, parent=context)
    return context


def lines_of(page: Path) -> list[str]:
    """The whole commands of a page's blocks, a line that goes on with a backslash as one."""
    text = page.read_text().replace("\\\n", " ")
    lines = [AFTERWARDS.sub("", line).strip() for line in LINE.findall(text)]
    return [NUMBER.sub("1", re.sub(r"[][]", "", line)) for line in lines]


def inline_of(page: Path) -> list[str]:
    """What stands between backquotes outside of blocks; of a table about others, not their column."""
    text = BLOCK.sub("", page.read_text())
    if page.parent.name == "coming_from":
        text = re.sub(r"^\|[^|]*\|", "", text, flags=re.MULTILINE)
    return INLINE.findall(text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_command_in_a_block_is_understood(page):
    assert faults_in_blocks(page) == []


def faults_in_blocks(page: Path) -> list[str]:
    """Commands that the command line would refuse, and why."""
    faults = []
    for line in lines_of(page):
        words = shlex.split(line)
        try:
            context = context_of(words[words.index("proxima") + 1 :])
            faults += [f"{line}: {fault}" for fault in refused(context.params)]
        except (UsageError, ValueError) as error:
            faults.append(f"{line}: {error}")
        except typer.Exit:
            pass  # --help and --version answer while they are parsed
    return faults


def refused(parameters: dict[str, Any]) -> Iterator[str]:
    """Why settings of a shipped scenario's command are none."""
    names = [
        value for value in parameters.values() if isinstance(value, str) and value in shipped()
    ]
    for name in names:
        try:
            load(name, list(parameters.get("set_") or []))
        except ProximaError as error:
            yield str(error)


@cache
def options() -> dict[str, set[str]]:
    """Every command by its words, with the options it takes."""

    def below(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, set[str]]]:
        yield (
            " ".join(words),
            {o for p in command.params for o in (*p.opts, *p.secondary_opts)} | {"--help"},
        )
        if isinstance(command, TyperGroup):
            for name, inner in command.commands.items():
                yield from below(inner, (*words, name))

    return dict(below(commands(), ("proxima",)))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_command_in_a_sentence_is_one_and_takes_its_options(page):
    assert faults_in_sentences(page) == []


def faults_in_sentences(page: Path) -> list[str]:
    """Commands and options that do not exist; what a command needs may be left out."""
    faults = []
    for words in (part.split() for part in inline_of(page) if part.startswith("proxima ")):
        known = max((c for c in options() if " ".join([*words, ""]).startswith(f"{c} ")), key=len)
        rest = words[len(known.split()) :]
        if isinstance(commands_at(known), TyperGroup) and rest and rest[0][0].islower():
            faults.append(f"{' '.join(words)}: no such command")
        written = {word.partition("=")[0] for word in rest if word.startswith("--")}
        faults += [f"{known} {word}: no such option" for word in sorted(written - options()[known])]
    return faults


def commands_at(name: str) -> Any:
    command = commands()
    for word in name.split()[1:]:
        assert isinstance(command, TyperGroup)
        command = command.commands[word]
    return command


def accepts(setting: str) -> bool:
    """Whether one of the shipped scenarios takes the setting, with its value."""
    for name in shipped():
        try:
            load(name, [setting])
        except ProximaError:
            continue
        return True
    return False


def values_of(page: Path) -> list[str]:
    """The settings with a value that a sentence names, as `--set` takes them."""
    pairs = [m.groups() for part in inline_of(page) for m in [SETTING.fullmatch(part)] if m]
    pairs += [m.groups() for part in inline_of(page) for m in [SECTION.fullmatch(part)] if m]
    return [f"{path}={value}" for path, value in pairs if not re.search("…|my_", value)]


@pytest.mark.parametrize("page", TEACHING, ids=lambda page: page.stem)
def test_a_setting_with_a_value_is_taken(page):
    assert [setting for setting in values_of(page) if not accepts(setting)] == []


@cache
def literals() -> str:
    return "\n".join(path.read_text() for path in SOURCE.rglob("*.py"))


@pytest.mark.parametrize("page", TEACHING, ids=lambda page: page.stem)
def test_a_metric_is_one(page):
    assert unknown_metrics(page) == []


def unknown_metrics(page: Path) -> list[str]:
    named = {part for part in inline_of(page) if METRIC.fullmatch(part)}
    return sorted(name for name in named if f'{name}"' not in literals())


def test_what_is_wrong_is_refused(tmp_path):
    """Typos of every kind, on a page that has nothing else."""
    page = tmp_path / "page.md"
    page.write_text(
        "    proxima experimant cartpole\n    proxima resume cartpole --sett a=1\n"
        "    proxima experiment cartpole --set algorithm.gama=1\n    proxima tune cartpole --seeds two\n"
        "`proxima modl export RUN`, `proxima model exprt RUN`, `proxima trade --capitol`, "
        "`evaluation.checkpoint: bets`, `lora: {rnk: 16}`, `train/aprox_kl`\n"
    )
    assert len(faults_in_blocks(page)) == 4
    assert len(faults_in_sentences(page)) == 3
    assert [accepts(setting) for setting in values_of(page)] == [False, False]
    assert len(unknown_metrics(page)) == 1


def test_pages_are_read():
    assert sum(len(lines_of(page)) for page in PAGES) > 100
    assert sum(len(values_of(page)) for page in TEACHING) > 20
