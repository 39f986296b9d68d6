"""What is wrong with a language scenario's settings that are each right alone."""

from collections.abc import Callable, Iterator

from proxima.domains.language.scenario import LanguageScenario, stages_of
from proxima.nets.lora import TARGETS
from proxima.scenario.tree import Problem
from proxima.scenario.words import either
from proxima.yaml import shown


def _stage_problems(scenario: LanguageScenario) -> Iterator[Problem]:
    if not stages_of(scenario):
        paths = (("ppo",), ("sft",), ("reward_model",))
        yield Problem(paths, "there is no stage; write ppo: {}, sft: {} or reward_model: {}")
    elif scenario.model.path is None and scenario.sft is None:
        told = (
            "null, and a new model knows nothing yet; write sft: {}, or name a model in model.path"
        )
        yield Problem((("sft",), ("model", "path")), told)


def _shape_problems(scenario: LanguageScenario) -> Iterator[Problem]:
    if scenario.model.path is not None:
        return
    new = scenario.model.new
    if new.width % (2 * new.heads):
        paths = (("model", "new", "width"), ("model", "new", "heads"))
        told = f"{new.width} is not a multiple of twice model.new.heads ({new.heads})"
        nearest = 2 * new.heads * max(1, round(new.width / (2 * new.heads)))
        yield Problem(paths, f"{told}; take {nearest}, say")
    if scenario.ppo is None or scenario.data.chat:
        return
    length = scenario.data.prompt_tokens + scenario.ppo.new_tokens
    if length > new.context:
        told = f"{scenario.ppo.new_tokens} after prompts of data.prompt_tokens "
        told += f"({scenario.data.prompt_tokens}) do not fit model.new.context ({new.context})"
        yield Problem(
            (("ppo", "new_tokens"), ("data", "prompt_tokens"), ("model", "new", "context")),
            f"{told}; make the context {length} or the others less",
        )


def _batch_problems(scenario: LanguageScenario) -> Iterator[Problem]:
    ppo = scenario.ppo
    if ppo is None:
        return
    parts = ppo.minibatches * ppo.micro_batches
    if ppo.batch_size % parts:
        keys = ("batch_size", "minibatches", "micro_batches")
        told = (
            f"{ppo.batch_size} is not a multiple of ppo.minibatches × ppo.micro_batches ({parts})"
        )
        yield Problem(
            tuple(("ppo", key) for key in keys), f"{told}; {_nearest(ppo.batch_size, parts)}"
        )
    if ppo.advantage != "gae" and ppo.batch_size % ppo.group_size:
        paths = (("ppo", "batch_size"), ("ppo", "group_size"))
        told = f"{ppo.batch_size} is not a multiple of ppo.group_size ({ppo.group_size})"
        yield Problem(paths, f"{told}; {_nearest(ppo.batch_size, ppo.group_size)}")


def _nearest(size: int, step: int) -> str:
    below = size // step * step
    return f"nearest that work: {either([str(v) for v in (below, below + step) if v])}"


def _reward_problems(scenario: LanguageScenario) -> Iterator[Problem]:
    reward = scenario.reward
    if reward.kind == "function":
        if reward.function is None:
            told = "null, and reward.kind is function; write the dotted path of one, like my_module.score"
            yield Problem((("reward", "function"), ("reward", "kind")), told)
        if reward.path is not None:
            told = "names a reward model, and reward.kind is function; leave one out"
            yield Problem((("reward", "path"), ("reward", "kind")), told)
        return
    if reward.function is not None:
        told = f"{shown(reward.function)}, and reward.kind is model; set it to function"
        yield Problem((("reward", "kind"), ("reward", "function")), told)
    if reward.per_token:
        told = "true, and reward.kind is model, which scores the whole; set it to function"
        yield Problem((("reward", "per_token"), ("reward", "kind")), told)
    if scenario.ppo is not None and reward.path is None and scenario.reward_model is None:
        told = "model, and there is none; write reward_model: {}, name one in reward.path, or set "
        yield Problem((("reward", "kind"), ("reward_model",)), told + "reward.kind to function")


def _data_problems(scenario: LanguageScenario) -> Iterator[Problem]:
    data = scenario.data
    if (data.source == "file") != (data.path is not None):
        given = (
            "null, and data.source is file"
            if data.path is None
            else "given, and data.source is not file"
        )
        remedy = "name the file" if data.path is None else "set data.source to file"
        yield Problem((("data", "path"), ("data", "source")), f"{given}; {remedy}")
    if data.prompt_template is not None and "{text}" not in data.prompt_template:
        told = f"{shown(data.prompt_template)} does not say where the prompt goes; write {{text}} there"
        yield Problem((("data", "prompt_template"),), told)
    if data.chat and scenario.model.path is None:
        told = "true, and a new model has no chat template; set it to false, or name a model in model.path"
        yield Problem((("data", "chat"), ("model", "path")), told)


def _target_problems(scenario: LanguageScenario) -> Iterator[Problem]:
    if scenario.lora is None:
        return
    for index, target in enumerate(scenario.lora.targets):
        if target not in TARGETS:
            told = f"{shown(target)} is not allowed: must be {either(list(TARGETS))}"
            yield Problem((("lora", "targets", index),), told)


LANGUAGE_CHECKS: tuple[Callable[[LanguageScenario], Iterator[Problem]], ...] = (
    _stage_problems,
    _shape_problems,
    _batch_problems,
    _reward_problems,
    _data_problems,
    _target_problems,
)
