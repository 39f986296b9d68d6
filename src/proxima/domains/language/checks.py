"""What is wrong with a language scenario's settings that are each right alone."""

from collections.abc import Iterator

from proxima.core.faults import Fault
from proxima.domains.language.config import LanguageScenario
from proxima.domains.language.stages import STAGES, stages_of
from proxima.nets.lora import TARGETS
from proxima.scenario.words import either
from proxima.yaml import shown


def language_faults(scenario: LanguageScenario) -> Iterator[Fault]:
    """Stages, sizes, rewards and data that do not go together."""
    yield from _model_faults(scenario)
    for stage in stages_of(scenario):
        yield from stage.checks(scenario)
    yield from _reward_faults(scenario)
    yield from _data_faults(scenario)
    for index, target in enumerate(scenario.lora.targets if scenario.lora else ()):
        if target not in TARGETS:
            text = f"{shown(target)} is not allowed: must be {either(list(TARGETS))}"
            yield Fault((("lora", "targets", index),), text)


def _model_faults(scenario: LanguageScenario) -> Iterator[Fault]:
    if not stages_of(scenario):
        names = list(reversed(STAGES))
        text = f"there is no stage; write {either([f'{name}: {{}}' for name in names])}"
        yield Fault(tuple((name,) for name in names), text)
    elif scenario.model.path is None and scenario.sft is None:
        text = (
            "null, and a new model knows nothing yet; write sft: {}, or name a model in model.path"
        )
        yield Fault((("sft",), ("model", "path")), text)
    new = scenario.model.new
    if scenario.model.path is None and new.width % (2 * new.heads):
        paths = (("model", "new", "width"), ("model", "new", "heads"))
        text = f"{new.width} is not a multiple of twice model.new.heads ({new.heads})"
        nearest = 2 * new.heads * max(1, round(new.width / (2 * new.heads)))
        yield Fault(paths, f"{text}; take {nearest}, say")


def _reward_faults(scenario: LanguageScenario) -> Iterator[Fault]:
    reward = scenario.reward
    if reward.kind == "function":
        if reward.function is None:
            text = "null, and reward.kind is function; write the dotted path of one, like my_module.score"
            yield Fault((("reward", "function"), ("reward", "kind")), text)
        if reward.path is not None:
            text = "names a reward model, and reward.kind is function; leave one out"
            yield Fault((("reward", "path"), ("reward", "kind")), text)
        return
    if reward.function is not None:
        text = f"{shown(reward.function)}, and reward.kind is model; set it to function"
        yield Fault((("reward", "kind"), ("reward", "function")), text)
    if reward.per_token:
        text = "true, and reward.kind is model, which scores the whole; set it to function"
        yield Fault((("reward", "per_token"), ("reward", "kind")), text)


def _data_faults(scenario: LanguageScenario) -> Iterator[Fault]:
    data = scenario.data
    paths = (("data", "path"), ("data", "source"))
    if data.source == "file" and data.path is None:
        yield Fault(paths, "null, and data.source is file; name the file")
    if data.source != "file" and data.path is not None:
        yield Fault(paths, "given, and data.source is not file; set data.source to file")
    if data.prompt_template is not None and "{text}" not in data.prompt_template:
        text = f"{shown(data.prompt_template)} does not say where the prompt goes; write {{text}} there"
        yield Fault((("data", "prompt_template"),), text)
    if data.chat and scenario.model.path is None:
        text = "true, and a new model has no chat template; set it to false, or name a model in model.path"
        yield Fault((("data", "chat"), ("model", "path")), text)
