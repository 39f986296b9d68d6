"""The commands that talk to models: chat, generate, model import and export."""

import json as json_module
import sys
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from proxima.core.errors import ProximaError
from proxima.domains.language import talk

LEAVE = ("/exit", "/quit", "/bye")
HELP = "/exit or Ctrl-D leaves, /new forgets what was said, /help shows this."


class Wish(NamedTuple):
    """What the flags ask for; None: as the run was trained."""

    new_tokens: int | None
    temperature: float | None
    greedy: bool
    chat: bool | None
    trial: int | None


def run_chat(reference: str, wish: Wish, seed: int, output: str) -> None:
    """The `chat` command: one reply for each line, until the lines end."""
    console = Console(markup=False, emoji=False, highlight=False)
    speaker = talk.load(_wished(talk.find_model(reference, output, wish.trial), wish))
    what = "It answers you." if speaker.chats else "It goes on with what you write."
    _write(console, f"{speaker.name}. {what} {HELP}", style="dim")
    turns: list[talk.Turn] = []
    for place, line in enumerate(_lines(console)):
        if line in ("/help", "/?"):
            _write(console, HELP, style="dim")
        elif line == "/new":
            turns = []
        else:
            turns = _answer(console, speaker, turns, line, seed + place)
    _write(console, "Goodbye, and thank you for the conversation.", style="dim")


def run_generate(
    reference: str,
    prompt: str,
    wish: Wish,
    count: int,
    seed: int,
    before: bool,
    output: str,
    json: bool,
) -> None:
    """The `generate` command."""
    if not prompt.strip():
        raise ProximaError("--prompt: is empty; give some words to go on from")
    now = talk.find_model(reference, output, wish.trial)
    found = {"after": _wished(now, wish)}
    if before:
        then = talk.find_model(reference, output, wish.trial, before=True)
        found = {"before": _wished(then, wish), **found}
    said: dict[str, list[talk.Said]] = {}
    for name, each in found.items():
        speaker = talk.load(each)
        said[name] = talk.say(speaker, talk.written(speaker, prompt), count, seed)
    if json:
        print(json_module.dumps(_plain(now.name, prompt, said, seed), indent=2, ensure_ascii=False))
        return
    console = Console(markup=False, emoji=False, highlight=False)
    for name, texts in said.items():
        if before:
            _write(console, name.capitalize(), style="bold")
        for one in texts:
            _write(console, one.text if speaker.chats else f"{prompt}{one.text}")


def run_import(source: str, to: Path) -> None:
    """The `model import` command."""
    folder = talk.import_model(source, to)
    console = Console(markup=False, emoji=False, highlight=False)
    _write(console, f"Model: {folder}")
    _write(console, f"Talk to it:  proxima chat {folder}", style="dim")


def run_export(reference: str, to: Path, adapter: bool, trial: int | None, output: str) -> None:
    """The `model export` command."""
    source = talk.export_model(reference, to, adapter, output, trial)
    what = "Adapter (PEFT)" if adapter else "Model (Hugging Face)"
    _write(Console(markup=False, emoji=False, highlight=False), f"{what}: {to}, from {source}")


def printable(text: str) -> str:
    """Text without what would move a terminal's cursor or change its colours."""
    return "".join(each for each in text if each.isprintable() or each in "\n\t")


def _answer(
    console: Console, speaker: talk.Speaker, turns: list[talk.Turn], line: str, seed: int
) -> list[talk.Turn]:
    """Say what the model says to a line; the conversation with it, as far as it goes on."""
    try:
        if not speaker.chats:
            (said,) = talk.say(speaker, talk.written(speaker, line), 1, seed)
            _write(console, f"{line}{_open_ended(said)}")
            return []
        asked = [*turns, {"role": "user", "content": line}]
        said, forgotten = talk.reply(speaker, asked, seed)
    except ProximaError as error:
        _write(console, f"{error}", style="yellow")
        return turns
    _write(console, _open_ended(said))
    if forgotten:
        _write(console, "(the beginning no longer fits its context)", style="dim")
    return [*asked[forgotten:], {"role": "assistant", "content": said.text}]


def _open_ended(said: talk.Said) -> str:
    return said.text if said.ended else f"{said.text} …"


def _lines(console: Console) -> Any:
    """What is typed, line by line, until the end or a word that leaves."""
    while True:
        try:
            line = input("› " if sys.stdin.isatty() and console.is_terminal else "").strip()
        except (EOFError, KeyboardInterrupt):
            if console.is_terminal:
                console.print()
            return
        if line.lower() in LEAVE:
            return
        if line:
            yield line


def _wished(found: talk.Found, wish: Wish) -> talk.Found:
    if wish.temperature is not None and wish.temperature <= 0:
        raise ProximaError(
            f"--temperature {wish.temperature:g}: must be above 0; --greedy takes the likeliest token"
        )
    given = {
        "new_tokens": wish.new_tokens,
        "temperature": wish.temperature,
        "greedy": wish.greedy,
        "chat": wish.chat,
    }
    manner = found.manner._replace(**{k: v for k, v in given.items() if v is not None})  # type: ignore[arg-type]
    return found._replace(manner=manner)


def _plain(name: str, prompt: str, said: dict[str, list[talk.Said]], seed: int) -> dict[str, Any]:
    found = {key: [each._asdict() for each in texts] for key, texts in said.items()}
    found["completions"] = found.pop("after")
    return {"model": name, "prompt": prompt, "seed": seed, **found}


def _write(console: Console, text: str, style: str | None = None) -> None:
    console.print(printable(text), soft_wrap=True, style=style)
