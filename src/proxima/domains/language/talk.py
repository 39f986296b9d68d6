"""Talking to what a run made: its policy found, loaded and asked; models brought in and taken out.

A RUN is an experiment (its latest run), a run, a trial's directory, or any Hugging Face folder. A run's
policy is asked as it was trained: with its template or chat turns, its temperature and its limit.
"""

import re
import shutil
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import jax

from proxima.core.errors import ProximaError
from proxima.domains.language import gguf
from proxima.domains.language.config import LanguageScenario, TextDataConfig
from proxima.domains.language.data import DAY, worded
from proxima.domains.language.generate import Generator, check_room
from proxima.domains.language.hf import load_model
from proxima.domains.language.hub import locate
from proxima.domains.language.model import REFERENCE
from proxima.domains.language.stages import ADAPTER, SFT, policy_of, stages_of
from proxima.domains.language.tokenizer import Tokenizer, load_tokenizer, unpadded
from proxima.nets.transformer import Decoder
from proxima.run.files import RunFiles, find_run
from proxima.run.read import load_scenario
from proxima.train.devices import use_compilation_cache

AT_ONCE = 64  # completions that are drawn together
TRIAL = re.compile(r"trial_(\d+)")


class ChatSettings(NamedTuple):
    """How a model is asked."""

    # Refused where they do not fit; None: the usual number, or what fits.
    new_tokens: int | None = None
    usual: int = 100
    temperature: float = 1.0
    template: str | None = None  # around each prompt, with {text} where it goes
    chat: bool | None = None  # in turns; None: where the model has a chat template
    dtype: str = "float32"
    greedy: bool = False
    top_k: int | None = None  # only the so many likeliest tokens; None: all
    top_p: float | None = None  # only the likeliest tokens of this probability together; None: all
    now: datetime | None = None  # what chat templates are told; None: the present


class ModelFolder(NamedTuple):
    """Where a model is, what it is called, and how it wants to be asked."""

    folder: Path
    name: str
    settings: ChatSettings


class Speaker(NamedTuple):
    """A model ready to be asked."""

    name: str
    settings: ChatSettings
    decoder: Decoder
    tokenizer: Tokenizer

    @property
    def chats(self) -> bool:
        """Whether it takes turns; otherwise it goes on with the text."""
        chat = self.settings.chat
        return self.tokenizer.has_chat if chat is None else chat


class Completion(NamedTuple):
    """What a model wrote after a prompt."""

    text: str
    tokens: int
    ended: bool  # by itself, not at the limit


Turn = dict[str, str]  # role and content


def find_model(
    reference: str, output_directory: str = "logs", trial: int | None = None, before: bool = False
) -> ModelFolder:
    """The policy of a run, or with `before` the model that its training started from."""
    folder = Path(reference)
    if (folder / "config.json").is_file():
        if before:
            raise ProximaError(f"{reference}: is a model, not a run, so there is none before it")
        return ModelFolder(folder, reference, ChatSettings())
    if folder.suffix == ".gguf" and folder.is_file():
        raise ProximaError(
            f"{reference}: bring it in first:  proxima model import {reference} --to FOLDER"
        )
    files = find_run(reference, output_directory)
    scenario = load_scenario(files)
    if not isinstance(scenario, LanguageScenario):
        raise ProximaError(
            f"{files.root}: is a run of {scenario.name}, which is not about language, so there is nobody "
            "to talk to; `proxima evaluate` measures it"
        )
    index = _trial(reference, files, trial)
    name = f"{scenario.name}, run {files.run_id}, trial {index}"
    settings = ChatSettings(
        template=scenario.data.prompt_template,
        chat=scenario.data.chat,
        dtype=scenario.model.dtype,
        now=DAY,
    )
    if (policy := scenario.policy) is not None:
        settings = settings._replace(usual=policy.new_tokens, temperature=policy.temperature)
    if before:
        stage = policy_of(scenario)
        title = "its policy was trained" if stage is None else stage.title
        folder = _first(files.trial(index), scenario, title)
        return ModelFolder(folder, f"{name}, before {title}", settings)
    return ModelFolder(_last(files.trial(index), scenario, files), name, settings)


def load(model: ModelFolder) -> Speaker:
    """The model, read."""
    use_compilation_cache()
    decoder = load_model(model.folder, model.settings.dtype)
    return Speaker(model.name, model.settings, decoder, load_tokenizer(model.folder))


def written(speaker: Speaker, prompt: str) -> str:
    """A prompt as the model read its prompts in training."""
    config = TextDataConfig(prompt_template=speaker.settings.template)
    text = worded(config, [prompt], speaker.tokenizer)[0]
    return _turns(speaker, [{"role": "user", "content": text}]) if speaker.chats else text


def limit(speaker: Speaker, text: str) -> int:
    """How many tokens may follow a text: those asked for, which must fit, or as many of the usual as fit."""
    settings, context = speaker.settings, speaker.decoder.config.context
    count = len(speaker.tokenizer.encode([text])[0])
    if count == 0:
        raise ProximaError("the prompt is empty; give some words to go on from")
    new_tokens = settings.new_tokens or max(1, min(settings.usual, context - count))
    check_room("the prompt", count, new_tokens, context)
    return new_tokens


def say(speaker: Speaker, text: str, count: int = 1, seed: int = 0) -> list[Completion]:
    """`count` completions of a text that is written as the model wants it."""
    return _said(speaker, [text] * count, limit(speaker, text), jax.random.key(seed))


def say_all(
    speaker: Speaker, texts: Sequence[str], count: int = 1, seed: int = 0
) -> list[list[Completion]]:
    """`count` completions of each of many texts, several at a time.

    A text's completions depend on the seed, on its place among the texts and on itself.
    """
    limits = []
    for row, text in enumerate(texts, start=1):
        try:
            limits.append(limit(speaker, text))
        except ProximaError as error:
            raise ProximaError(f"prompt {row}: {error}") from None
    found: list[list[Completion]] = [[] for _ in texts]
    for tokens in sorted(set(limits)):  # those with as much room together
        rows = [row for row, room in enumerate(limits) if room == tokens for _ in range(count)]
        for start in range(0, len(rows), AT_ONCE):
            some = rows[start : start + AT_ONCE]
            # the last row again where they do not fill a pass: one shape, one compilation
            asked = [texts[row] for row in some] + [texts[some[-1]]] * (AT_ONCE - len(some))
            key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), tokens), start)
            said = _said(speaker, asked if len(rows) > AT_ONCE else asked[: len(some)], tokens, key)
            for row, completion in zip(some, said, strict=False):
                found[row].append(completion)
    return found


def _said(speaker: Speaker, texts: list[str], new_tokens: int, key: jax.Array) -> list[Completion]:
    settings = speaker.settings
    sampling = (settings.temperature, settings.greedy, settings.top_k, settings.top_p)
    generator = Generator(speaker.decoder, speaker.tokenizer, new_tokens, *sampling)
    samples = generator.generate(REFERENCE, texts, key)
    lengths = [len(row) for row in unpadded(samples.completions)]
    ended = samples.ended.tolist()
    return [Completion(*row) for row in zip(generator.texts(samples), lengths, ended, strict=True)]


def reply(speaker: Speaker, turns: list[Turn], seed: int = 0) -> tuple[Completion, int]:
    """The next turn of a conversation, and how many of its oldest turns no longer fitted.

    Where nobody says how long replies are, at most half of the context is kept free for one.
    """
    settings, context = speaker.settings, speaker.decoder.config.context
    reserved = settings.new_tokens or min(settings.usual, context // 2)
    for forgotten in range(0, len(turns), 2):  # a question goes with its answer
        text = _turns(speaker, turns[forgotten:])
        count = len(speaker.tokenizer.encode([text])[0])
        if count + reserved <= context or forgotten + 2 >= len(turns):
            fitting = settings._replace(usual=reserved)  # one length, one compilation
            return say(speaker._replace(settings=fitting), text, 1, seed)[0], forgotten
    raise AssertionError("a conversation has at least one turn")


def export_model(
    reference: str,
    to: Path,
    adapter: bool = False,
    output_directory: str = "logs",
    trial: int | None = None,
) -> Path:
    """Copy a run's policy, a Hugging Face folder, or its adapter, a PEFT folder; what was copied."""
    source = find_model(reference, output_directory, trial).folder
    if adapter:
        source = source.parent / ADAPTER
        if not source.is_dir():
            raise ProximaError(
                f"{reference}: has no adapter, because all its weights were trained (lora: null); export "
                "the model itself, without --adapter"
            )
    gguf.check_free(to)
    try:
        shutil.copytree(source, to, dirs_exist_ok=True)
    except (OSError, shutil.Error) as error:
        raise ProximaError(f"{to}: cannot write the model there ({error})") from error
    return source


def _trial(reference: str, files: RunFiles, trial: int | None) -> int:
    named = TRIAL.fullmatch(Path(reference).name)
    if trial is None:
        trial = int(named.group(1)) if named else 0
    if not files.trial(trial).is_dir():
        numbers = sorted(int(path.name[len("trial_") :]) for path in files.root.glob("trial_*"))
        known = ", ".join(map(str, numbers)) or "none"
        raise ProximaError(f"{reference}: has no trial {trial}; there are {known}")
    return trial


def _last(home: Path, scenario: LanguageScenario, files: RunFiles) -> Path:
    """What the last stage with a model to talk to left."""
    stages = [stage for stage in stages_of(scenario) if stage.model]
    if not stages:
        raise ProximaError(f"{home}: its scenario has no stage that trains a model to talk to")
    folder = home / stages[-1].model
    if not (folder / "config.json").is_file():
        raise ProximaError(
            f"{home}: there is no model yet, because its stage {stages[-1].name} has not finished; wait "
            f"for it, or go on with it:  proxima resume {files.run_id}"
        )
    return folder


def _first(home: Path, scenario: LanguageScenario, title: str) -> Path:
    """What the policy was before it was trained by the stage of that title."""
    folder = home / SFT.model
    if (folder / "config.json").is_file():
        return folder
    if scenario.model.path is not None and scenario.sft is None:
        return locate(scenario.model.path)
    raise ProximaError(f"{folder}: the model from before {title} is not there")


def _turns(speaker: Speaker, turns: list[Turn]) -> str:
    return speaker.tokenizer.chat(turns, now=speaker.settings.now)
