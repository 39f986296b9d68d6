"""Talking to what a run made: its policy found, loaded and asked; models brought in and taken out.

A RUN is an experiment (its latest run), a run, a trial's directory, or any Hugging Face folder. A run's
policy is asked as it was trained: with its template or chat turns, its temperature and its limit.
"""

import re
import shutil
from pathlib import Path
from typing import NamedTuple

import jax

from proxima.core.errors import ProximaError
from proxima.domains.language import gguf
from proxima.domains.language.config import LanguageScenario, TextDataConfig
from proxima.domains.language.data import worded
from proxima.domains.language.generate import Generator
from proxima.domains.language.hf import load_model
from proxima.domains.language.hub import locate
from proxima.domains.language.model import REFERENCE
from proxima.domains.language.stages import ADAPTER, SFT, TITLE, stages_of
from proxima.domains.language.tokenizer import Tokenizer, load_tokenizer, unpadded
from proxima.nets.transformer import Decoder
from proxima.run.files import RunFiles, find_run
from proxima.run.read import load_scenario
from proxima.train.devices import use_compilation_cache

TRIAL = re.compile(r"trial_(\d+)")


class ChatSettings(NamedTuple):
    """How a model is asked."""

    new_tokens: int = 100
    temperature: float = 1.0
    template: str | None = None  # around each prompt, with {text} where it goes
    chat: bool | None = None  # in turns; None: where the model has a chat template
    dtype: str = "float32"
    greedy: bool = False


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
    """The policy of a run, or with `before` the model that its PPO started from."""
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
        template=scenario.data.prompt_template, chat=scenario.data.chat, dtype=scenario.model.dtype
    )
    if (policy := scenario.policy) is not None:
        settings = settings._replace(new_tokens=policy.new_tokens, temperature=policy.temperature)
    if before:
        return ModelFolder(
            _first(files.trial(index), scenario), f"{name}, before {TITLE}", settings
        )
    return ModelFolder(_last(files.trial(index), scenario, files), name, settings)


def load(model: ModelFolder) -> Speaker:
    """The model, read."""
    use_compilation_cache()
    decoder = load_model(model.folder, model.settings.dtype)
    return Speaker(model.name, model.settings, decoder, load_tokenizer(model.folder))


def written(speaker: Speaker, prompt: str) -> str:
    """A prompt as the model read its prompts in training."""
    config = TextDataConfig(prompt_template=speaker.settings.template, chat=speaker.chats)
    return worded(config, [prompt], speaker.tokenizer)[0]


def say(speaker: Speaker, text: str, count: int = 1, seed: int = 0) -> list[Completion]:
    """`count` completions of a text that is written as the model wants it."""
    settings = speaker.settings
    ids = speaker.tokenizer.encode([text])[0]
    _check_room(len(ids), speaker)
    limits = (settings.new_tokens, settings.temperature, settings.greedy)
    generator = Generator(speaker.decoder, speaker.tokenizer, *limits)
    samples = generator.generate(REFERENCE, [ids] * count, jax.random.key(seed))
    lengths = [len(row) for row in unpadded(samples.completions)]
    ended = samples.ended.tolist()
    return [Completion(*row) for row in zip(generator.texts(samples), lengths, ended, strict=True)]


def reply(speaker: Speaker, turns: list[Turn], seed: int = 0) -> tuple[Completion, int]:
    """The next turn of a conversation, and how many of its oldest turns no longer fitted."""
    room = speaker.decoder.config.context - speaker.settings.new_tokens
    for forgotten in range(0, len(turns), 2):  # a question goes with its answer
        text = speaker.tokenizer.chat(turns[forgotten:])
        if len(speaker.tokenizer.encode([text])[0]) <= room or forgotten + 2 >= len(turns):
            return say(speaker, text, 1, seed)[0], forgotten
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


def _first(home: Path, scenario: LanguageScenario) -> Path:
    """What the policy was before PPO."""
    folder = home / SFT.model
    if (folder / "config.json").is_file():
        return folder
    if scenario.model.path is not None and scenario.sft is None:
        return locate(scenario.model.path)
    raise ProximaError(f"{folder}: the model from before {TITLE} is not there")


def _check_room(count: int, speaker: Speaker) -> None:
    context, new_tokens = speaker.decoder.config.context, speaker.settings.new_tokens
    if count == 0:
        raise ProximaError("the prompt is empty; give some words to go on from")
    if count + new_tokens > context:
        room = context - count
        remedy = f", or ask for {room} with --new-tokens {room}" if room > 0 else ""
        raise ProximaError(
            f"the prompt has {count} tokens, and with {new_tokens} new ones it is longer than the model's "
            f"context of {context}; shorten it{remedy}"
        )
