"""The commands that talk to models: chat, generate, model import and export."""

import json as json_module
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proxima.cli.options import Debug, Json, Output, Trial, expand
from proxima.core.errors import ProximaError

if TYPE_CHECKING:  # a list of commands should not wait for models
    from rich.console import Console

    from proxima.domains.language import talk

LEAVE = ("/exit", "/quit", "/bye")
HELP = "/exit or Ctrl-D leaves, /new forgets what was said, /help shows this."
RUN = "A language experiment, run or trial, or a model's folder."
Model = Annotated[str, typer.Argument(metavar="RUN", help=RUN, callback=expand)]
SOURCE = "A GGUF file, a wheel with one in it, or the word smollm2."
Source = Annotated[str, typer.Argument(metavar="SOURCE", help=SOURCE, callback=expand)]
Folder = Annotated[Path, typer.Option(help="Folder to write it to.", callback=expand)]
TOKENS = "Tokens of a reply at most; default: as trained, or as many as fit."
NewTokens = Annotated[int | None, typer.Option(help=TOKENS, min=1)]
Temperature = Annotated[float | None, typer.Option(help="Of sampling; default: as trained.")]
TopK = Annotated[int | None, typer.Option(help="Only the so many likeliest tokens.")]
TopP = Annotated[float | None, typer.Option(help="Only the likeliest tokens of this probability.")]
PROMPTS = "A file of prompts: .txt, a line each, or a table with a column prompt."
Prompts = Annotated[Path | None, typer.Option(help=PROMPTS, callback=expand)]
TO = "Write prompts and completions there, JSON lines, instead of showing them."
To = Annotated[Path | None, typer.Option(help=TO, callback=expand)]
Greedy = Annotated[bool, typer.Option("--greedy", help="Always the likeliest token.")]
TURNS = "Ask in chat turns, or go on with plain text."
Turns = Annotated[bool | None, typer.Option("--turns/--plain", help=TURNS)]
Before = Annotated[
    bool,
    typer.Option("--before", help="Show too what the model said before its policy was trained."),
]
Adapter = Annotated[bool, typer.Option("--adapter", help="Only the LoRA adapter, for PEFT.")]


def add_commands(app: typer.Typer) -> None:
    """These commands to the command line."""
    app.command()(chat)
    app.command()(generate)
    model = typer.Typer(
        help="Bring models in, take them out.",
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    model.command("import")(import_model)
    model.command("export")(export_model)
    app.add_typer(model, name="model")


def chat(
    run: Model,
    new_tokens: NewTokens = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    greedy: Greedy = False,
    turns: Turns = None,
    trial: Trial = None,
    seed: Annotated[int, typer.Option(help="Seed of the first reply.", min=0)] = 0,
    output: Output = "logs",
    debug: Debug = False,
) -> None:
    """Talk to a language run's policy, line by line."""
    from proxima.domains.language import talk
    from proxima.terminal import plain_console

    console = plain_console()
    model = talk.find_model(run, output, trial)
    flags = _flags(new_tokens, temperature, top_k, top_p, greedy, turns)
    speaker = talk.load(_settled(model, flags))
    what = "It answers you." if speaker.chats else "It goes on with what you write."
    _write(console, f"{speaker.name}. {what} {HELP}", style="dim")
    conversation: list[talk.Turn] = []
    for number, line in enumerate(_lines(console)):
        if line in ("/help", "/?"):
            _write(console, HELP, style="dim")
        elif line == "/new":
            conversation = []
        else:
            conversation = _answer(console, speaker, conversation, line, seed + number)
    _write(console, "Goodbye, and thank you for the conversation.", style="dim")


def generate(
    run: Model,
    prompt: Annotated[str | None, typer.Option(help="The text to go on from.")] = None,
    prompts: Prompts = None,
    count: Annotated[int, typer.Option(help="Completions of a prompt.", min=1)] = 1,
    new_tokens: NewTokens = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    greedy: Greedy = False,
    turns: Turns = None,
    before: Before = False,
    trial: Trial = None,
    seed: Annotated[int, typer.Option(help="Seed of the drawing.", min=0)] = 0,
    to: To = None,
    output: Output = "logs",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Let a language run's policy complete a prompt, or those of a file."""
    from proxima.domains.language import talk
    from proxima.terminal import plain_console

    asked = _asked(prompt, prompts)
    flags = _flags(new_tokens, temperature, top_k, top_p, greedy, turns)
    models = {"before": talk.find_model(run, output, trial, before=True)} if before else {}
    models["after"] = talk.find_model(run, output, trial)
    completions: dict[str, list[list[talk.Completion]]] = {}
    for name, model in models.items():
        speaker = talk.load(_settled(model, flags))
        texts = [talk.written(speaker, text) for text in asked]
        if prompts is not None:
            completions[name] = talk.say_all(speaker, texts, count, seed)
            continue
        _say_what_fits(speaker, talk.limit(speaker, texts[0]))
        completions[name] = [talk.say(speaker, texts[0], count, seed)]
    rows = [
        {"prompt": text}
        | {
            "completions" if name == "after" else name: [one._asdict() for one in all_[row]]
            for name, all_ in completions.items()
        }
        for row, text in enumerate(asked)
    ]
    about = {"model": models["after"].name, "seed": seed}
    if to is not None:
        _write_rows(to, rows)
    if json:
        whole = about | (rows[0] if prompts is None else {"prompts": rows})
        print(json_module.dumps(whole, indent=2, ensure_ascii=False))
        return
    console = plain_console()
    if to is not None:
        _write(console, f"Completions: {to}")
        return
    for name, all_ in completions.items():
        if before:
            _write(console, name.capitalize(), style="bold")
        for text, said in zip(asked, all_, strict=True):
            for completion in said:
                _write(console, completion.text if speaker.chats else f"{text}{completion.text}")


def _asked(prompt: str | None, prompts: Path | None) -> list[str]:
    """The prompts of the command line or of a file; one of the two is given."""
    from proxima.domains.language.tables import read_prompts

    if (prompt is None) == (prompts is None):
        which = "neither is given" if prompt is None else "both are given"
        raise ProximaError(f"--prompt, --prompts: {which}; give a text, or a file of prompts")
    if prompts is not None:
        return read_prompts(prompts)
    assert prompt is not None
    if not prompt.strip():
        raise ProximaError("--prompt: is empty; give some words to go on from")
    return [prompt]


def _write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """A file of JSON lines, whole or not at all."""
    from proxima.files import explaining, replacing

    lines = (json_module.dumps(row, ensure_ascii=False) for row in rows)
    with explaining(f"--to {path}"), replacing(path) as temporary:
        temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def import_model(source: Source, to: Folder, debug: Debug = False) -> None:
    """Make a Hugging Face folder of a GGUF model; smollm2 is obtained with pip."""
    from proxima.domains.language import gguf
    from proxima.terminal import plain_console

    if source == "smollm2":
        gguf.import_smollm2(to)
    else:
        gguf.import_gguf(Path(source), to)
    console = plain_console()
    _write(console, f"Model: {to}")
    _write(console, f"Talk to it:  proxima chat {to}", style="dim")


def export_model(
    run: Model,
    to: Folder,
    adapter: Adapter = False,
    trial: Trial = None,
    output: Output = "logs",
    debug: Debug = False,
) -> None:
    """Copy a language run's policy out, as a Hugging Face folder."""
    from proxima.domains.language import talk
    from proxima.terminal import plain_console

    source = talk.export_model(run, to, adapter, output, trial)
    what = "Adapter (PEFT)" if adapter else "Model (Hugging Face)"
    _write(plain_console(), f"{what}: {to}, from {source}")


def printable(text: str) -> str:
    """Text without what would move a terminal's cursor or change its colours."""
    return "".join(letter for letter in text if letter.isprintable() or letter in "\n\t")


def _answer(
    console: "Console",
    speaker: "talk.Speaker",
    conversation: "list[talk.Turn]",
    line: str,
    seed: int,
) -> "list[talk.Turn]":
    """Write what the model says to a line; the conversation with it, as far as it goes on."""
    from proxima.domains.language import talk

    try:
        if not speaker.chats:
            (completion,) = talk.say(speaker, talk.written(speaker, line), 1, seed)
            _write(console, f"{line}{_open_ended(completion)}")
            return []
        asked = [*conversation, {"role": "user", "content": line}]
        completion, forgotten = talk.reply(speaker, asked, seed)
    except ProximaError as error:
        _write(console, f"{error}", style="yellow")
        return conversation
    _write(console, _open_ended(completion))
    if forgotten:
        _write(console, "(the beginning no longer fits its context)", style="dim")
    return [*asked[forgotten:], {"role": "assistant", "content": completion.text}]


def _say_what_fits(speaker: "talk.Speaker", tokens: int) -> None:
    """A line beside the output where there is no room for as many tokens as usual."""
    from proxima.terminal import plain_console

    if speaker.settings.new_tokens is None and tokens < speaker.settings.usual:
        context = speaker.decoder.config.context
        text = f"At most {tokens} new tokens: no more fit the model's context of {context}."
        _write(plain_console(stderr=True), text, style="dim")


def _open_ended(completion: "talk.Completion") -> str:
    return completion.text if completion.ended else f"{completion.text} …"


def _lines(console: "Console") -> Iterator[str]:
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


def _flags(
    new_tokens: int | None,
    temperature: float | None,
    top_k: int | None,
    top_p: float | None,
    greedy: bool,
    chat: bool | None,
) -> dict[str, Any]:
    """How the flags ask a model; those that were not given are left out: as it was trained."""
    from proxima.domains.language.generate import check_limits

    if temperature is not None and not 0 < temperature < math.inf:
        raise ProximaError(
            f"--temperature {temperature:g}: must be above 0; --greedy takes the likeliest token"
        )
    check_limits(top_k, top_p, ("--top-k", "--top-p"))
    if greedy and (top_k is not None or top_p is not None):
        raise ProximaError(
            "--greedy: takes the likeliest token, whatever --top-k and --top-p say; leave one out"
        )
    limits = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    flags = {"new_tokens": new_tokens, **limits, "greedy": greedy, "chat": chat}
    return {name: flag for name, flag in flags.items() if flag is not None}


def _settled(model: "talk.ModelFolder", flags: dict[str, Any]) -> "talk.ModelFolder":
    """The model, asked as the flags say."""
    return model._replace(settings=model.settings._replace(**flags))


def _write(console: "Console", text: str, style: str | None = None) -> None:
    console.print(printable(text), soft_wrap=True, style=style)
