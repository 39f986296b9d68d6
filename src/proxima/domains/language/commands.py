"""The commands that talk to models: chat, generate, model import and export."""

import json as json_module
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proxima.cli.options import Debug, Json, Output, expand
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
Greedy = Annotated[bool, typer.Option("--greedy", help="Always the likeliest token.")]
TURNS = "Ask in chat turns, or go on with plain text."
Turns = Annotated[bool | None, typer.Option("--turns/--plain", help=TURNS)]
Before = Annotated[
    bool,
    typer.Option("--before", help="Show too what the model said before its policy was trained."),
]
Adapter = Annotated[bool, typer.Option("--adapter", help="Only the LoRA adapter, for PEFT.")]
Trial = Annotated[int | None, typer.Option(help="Number of the trial; default: 0.", min=0)]


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
    speaker = talk.load(_settled(model, new_tokens, temperature, greedy, turns))
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
    prompt: Annotated[str, typer.Option(help="The text to go on from.")],
    count: Annotated[int, typer.Option(help="Completions to draw.", min=1)] = 1,
    new_tokens: NewTokens = None,
    temperature: Temperature = None,
    greedy: Greedy = False,
    turns: Turns = None,
    before: Before = False,
    trial: Trial = None,
    seed: Annotated[int, typer.Option(help="Seed of the drawing.", min=0)] = 0,
    output: Output = "logs",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Let a language run's policy complete a prompt."""
    from proxima.domains.language import talk
    from proxima.terminal import plain_console

    if not prompt.strip():
        raise ProximaError("--prompt: is empty; give some words to go on from")
    models = {"before": talk.find_model(run, output, trial, before=True)} if before else {}
    models["after"] = talk.find_model(run, output, trial)
    completions: dict[str, list[talk.Completion]] = {}
    for name, model in models.items():
        speaker = talk.load(_settled(model, new_tokens, temperature, greedy, turns))
        text = talk.written(speaker, prompt)
        _say_what_fits(speaker, talk.limit(speaker, text))
        completions[name] = talk.say(speaker, text, count, seed)
    if json:
        plain = {"model": models["after"].name, "prompt": prompt, "seed": seed}
        for name, texts in completions.items():
            key = "completions" if name == "after" else name
            plain[key] = [completion._asdict() for completion in texts]
        print(json_module.dumps(plain, indent=2, ensure_ascii=False))
        return
    console = plain_console()
    for name, texts in completions.items():
        if before:
            _write(console, name.capitalize(), style="bold")
        for text, *_ in texts:
            _write(console, text if speaker.chats else f"{prompt}{text}")


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


def _settled(
    model: "talk.ModelFolder",
    new_tokens: int | None,
    temperature: float | None,
    greedy: bool,
    chat: bool | None,
) -> "talk.ModelFolder":
    """The model, asked as the flags say; None: as it was trained."""
    if temperature is not None and temperature <= 0:
        raise ProximaError(
            f"--temperature {temperature:g}: must be above 0; --greedy takes the likeliest token"
        )
    flags = {"new_tokens": new_tokens, "temperature": temperature, "greedy": greedy, "chat": chat}
    given: dict[str, Any] = {name: flag for name, flag in flags.items() if flag is not None}
    return model._replace(settings=model.settings._replace(**given))


def _write(console: "Console", text: str, style: str | None = None) -> None:
    console.print(printable(text), soft_wrap=True, style=style)
