"""What is wrong with a language scenario's settings that are each right alone."""

from collections.abc import Iterator

from proxima.core.faults import Fault
from proxima.domains.language.scenario import LanguageScenario, stages_of
from proxima.nets.lora import TARGETS
from proxima.scenario.words import either
from proxima.yaml import shown


def _stage_faults(scenario: LanguageScenario) -> Iterator[Fault]:
    if not stages_of(scenario):
        paths = (("ppo",), ("sft",), ("reward_model",))
        yield Fault(paths, "there is no stage; write ppo: {}, sft: {} or reward_model: {}")
    elif scenario.model.path is None and scenario.sft is None:
        text = (
            "null, and a new model knows nothing yet; write sft: {}, or name a model in model.path"
        )
        yield Fault((("sft",), ("model", "path")), text)


def _shape_faults(scenario: LanguageScenario) -> Iterator[Fault]:
    if scenario.model.path is not None:
        return
    new = scenario.model.new
    if new.width % (2 * new.heads):
        paths = (("model", "new", "width"), ("model", "new", "heads"))
        text = f"{new.width} is not a multiple of twice model.new.heads ({new.heads})"
        nearest = 2 * new.heads * max(1, round(new.width / (2 * new.heads)))
        yield Fault(paths, f"{text}; take {nearest}, say")
    if scenario.ppo is None or scenario.data.chat:
        return
    length = scenario.data.prompt_tokens + scenario.ppo.new_tokens
    if length > new.context:
        text = f"{scenario.ppo.new_tokens} after prompts of data.prompt_tokens "
        text += f"({scenario.data.prompt_tokens}) do not fit model.new.context ({new.context})"
        yield Fault(
            (("ppo", "new_tokens"), ("data", "prompt_tokens"), ("model", "new", "context")),
            f"{text}; make the context {length} or the others less",
        )


def _batch_faults(scenario: LanguageScenario) -> Iterator[Fault]:
    ppo = scenario.ppo
    if ppo is None:
        return
    sizes = (
        ("batch_size", ppo.batch_size, "minibatch_size", ppo.minibatch_size),
        ("minibatch_size", ppo.minibatch_size, "micro_batches", ppo.micro_batches),
    )
    for whole, size, part, share in sizes:
        if size % share:
            text = f"{size} is not a multiple of ppo.{part} ({share}); {_nearest(size, share)}"
            yield Fault((("ppo", whole), ("ppo", part)), text)
    if ppo.advantage != "gae" and ppo.batch_size % ppo.group_size:
        paths = (("ppo", "batch_size"), ("ppo", "group_size"))
        text = f"{ppo.batch_size} is not a multiple of ppo.group_size ({ppo.group_size})"
        yield Fault(paths, f"{text}; {_nearest(ppo.batch_size, ppo.group_size)}")


def _nearest(size: int, step: int) -> str:
    below = size // step * step
    return f"nearest that work: {either([str(v) for v in (below, below + step) if v])}"


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
    if scenario.ppo is not None and reward.path is None and scenario.reward_model is None:
        text = "model, and there is none; write reward_model: {}, name one in reward.path, or set "
        yield Fault((("reward", "kind"), ("reward_model",)), text + "reward.kind to function")


def _data_faults(scenario: LanguageScenario) -> Iterator[Fault]:
    data = scenario.data
    if (data.source == "file") != (data.path is not None):
        given = (
            "null, and data.source is file"
            if data.path is None
            else "given, and data.source is not file"
        )
        remedy = "name the file" if data.path is None else "set data.source to file"
        yield Fault((("data", "path"), ("data", "source")), f"{given}; {remedy}")
    if data.prompt_template is not None and "{text}" not in data.prompt_template:
        text = f"{shown(data.prompt_template)} does not say where the prompt goes; write {{text}} there"
        yield Fault((("data", "prompt_template"),), text)
    if data.chat and scenario.model.path is None:
        text = "true, and a new model has no chat template; set it to false, or name a model in model.path"
        yield Fault((("data", "chat"), ("model", "path")), text)


def _target_faults(scenario: LanguageScenario) -> Iterator[Fault]:
    if scenario.lora is None:
        return
    for index, target in enumerate(scenario.lora.targets):
        if target not in TARGETS:
            text = f"{shown(target)} is not allowed: must be {either(list(TARGETS))}"
            yield Fault((("lora", "targets", index),), text)


def language_faults(scenario: LanguageScenario) -> Iterator[Fault]:
    """Stages, sizes, rewards and data that do not go together."""
    for check in (
        _stage_faults,
        _shape_faults,
        _batch_faults,
        _reward_faults,
        _data_faults,
        _target_faults,
    ):
        yield from check(scenario)
