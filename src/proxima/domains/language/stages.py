"""The stages of a language scenario, a value each: what it trains, checks, measures and leaves behind.

    sft            trial_k/reference/            what the stages after it start from, a Hugging Face folder
    reward_model   trial_k/reward_model/model/   a reward model that any run can use
    ppo or dpo     trial_k/model/                the policy, a Hugging Face folder; with LoRA adapter/ too
                   trial_k/samples.html          before and after, token by token

A new one is its settings and their section (`config.py`), a file that ends with `make`, and a value here.
Scenarios are read and listed without tokenizers and models, so a value has the path of `make`.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from proxima.core.faults import Fault
from proxima.domains.domain import Counts
from proxima.domains.language.config import LanguagePPOConfig, LanguageScenario
from proxima.nets.lora import TARGETS
from proxima.run.results import StageResult
from proxima.scenario.words import either
from proxima.train.stage import Row
from proxima.yaml import shown


class Figure(NamedTuple):
    """What a person calls a held-out figure, and how it is written."""

    title: str
    form: str = "{:.2f}"

    @property
    def is_share(self) -> bool:
        """Whether it is written in per cent."""
        return self.form.endswith("%}")


class Measure(NamedTuple):
    """How an evaluation of a training is read."""

    figure: str  # what decides which state is best
    sign: float  # 1: more is better; −1: less
    shown: Mapping[str, str]  # metrics that a person wants to see while it runs, and their names


class Remedies(NamedTuple):
    """What alarms advise, in words that begin small."""

    closer: str  # keeps a policy closer to the reference
    ending: str  # lets completions end


class LanguageStage(NamedTuple):
    """A stage as checks, pages and closing lines see it."""

    name: str  # of its section in a scenario, and of its folder in a trial
    title: str
    make: str  # path of the function that makes a `Trainable` of a `pipeline.Trial`
    measure: Measure
    figures: Mapping[str, Figure]  # of its evaluations, by name
    cards: Sequence[str]  # the figures at the top of a page
    budget: Callable[[Any], str]  # of its settings
    checks: Callable[[LanguageScenario], Iterator[Fault]] = lambda scenario: iter(())
    # path of the function that looks, before any stage trains, at all that `make` of a later one reads
    ahead: str = ""
    # Its settings, its result and its metrics → how much a trial has seen.
    counts: Callable[[Any, StageResult, Sequence[Row]], Counts] = lambda config, result, rows: (
        Counts(result.steps, 0)
    )
    model: str = ""  # the folder in a trial with a model to talk to; none: it leaves none
    remedies: Remedies | None = None  # of a stage that trains the policy


def ppo_faults(scenario: LanguageScenario) -> Iterator[Fault]:
    """Sizes that do not divide each other, no room for completions, no reward."""
    ppo, reward = scenario.ppo, scenario.reward
    assert ppo is not None
    yield from size_faults(ppo)
    yield from _room_faults(scenario, "ppo", ppo.new_tokens)
    if reward.kind == "model" and reward.path is None and scenario.reward_model is None:
        text = "model, and there is none; write reward_model: {}, name one in reward.path, or set "
        yield Fault((("reward", "kind"), ("reward_model",)), text + "reward.kind to function")


def dpo_faults(scenario: LanguageScenario) -> Iterator[Fault]:
    """Two stages for one policy, no room for completions, nobody who judges, labels that are not smoothed."""
    dpo = scenario.dpo
    assert dpo is not None
    if scenario.ppo is not None:
        text = "given, and so is ppo: both train the policy, from the same start; leave one out (dpo: null "
        text += "or ppo: null), and compare the runs of two scenarios"
        yield Fault((("dpo",), ("ppo",)), text)
    yield from _room_faults(scenario, "dpo", dpo.new_tokens)
    if not scenario.has_reward and scenario.evaluation.judge is None:
        text = "null, and there is no reward either, so that nobody would measure the policy; name a judge, "
        text += "write reward_model: {}, or set reward.path or reward.kind: function"
        yield Fault((("evaluation", "judge"), ("reward_model",)), text)
    if dpo.loss == "ipo" and dpo.label_smoothing:
        text = f"{dpo.label_smoothing:g}, and dpo.loss is ipo, which smooths no labels; set it to 0, or "
        yield Fault((("dpo", "label_smoothing"), ("dpo", "loss")), text + "dpo.loss to sigmoid")


def _room_faults(scenario: LanguageScenario, stage: str, new_tokens: int) -> Iterator[Fault]:
    """No room for completions after prompts in a new model's context."""
    new, prompt_tokens = scenario.model.new, scenario.data.prompt_tokens
    length = prompt_tokens + new_tokens
    if scenario.model.path is None and not scenario.data.chat and length > new.context:
        text = f"{new_tokens} after prompts of data.prompt_tokens "
        text += f"({prompt_tokens}) do not fit model.new.context ({new.context})"
        yield Fault(
            ((stage, "new_tokens"), ("data", "prompt_tokens"), ("model", "new", "context")),
            f"{text}; make the context {length} or the others less",
        )


def size_faults(config: LanguagePPOConfig) -> Iterator[Fault]:
    """Sizes of PPO that do not divide each other."""
    sizes = [("batch_size", "minibatch_size"), ("minibatch_size", "micro_batches")]
    if config.advantage != "gae":
        sizes.append(("batch_size", "group_size"))
    for whole, part in sizes:
        size, share = getattr(config, whole), getattr(config, part)
        if size % share:
            below = size // share * share
            nearest = either([str(value) for value in (below, below + share) if value])
            text = f"{size} is not a multiple of ppo.{part} ({share}); nearest that work: {nearest}"
            yield Fault((("ppo", whole), ("ppo", part)), text)


def ppo_counts(config: LanguagePPOConfig, result: StageResult, rows: Sequence[Row]) -> Counts:
    """What every algorithm's trials have: a token is a step, a completion an episode."""
    tokens = round(config.batch_size * sum(row.get("train/length", 0.0) for row in rows))
    return Counts(tokens, result.updates * config.batch_size)


SFT = LanguageStage(
    name="sft",
    title="Supervised fine-tuning",
    make="proxima.domains.language.sft:make",
    measure=Measure(
        "eval/loss", -1.0, {"loss/sft": "loss", "eval/perplexity": "held-out perplexity"}
    ),
    figures={"perplexity": Figure("Perplexity of held-out texts", "{:.1f}")},
    cards=("loss",),
    budget=lambda config: f"{config.epochs} epochs",
    model="reference",
)
REWARD_MODEL = LanguageStage(
    name="reward_model",
    title="Reward model",
    make="proxima.domains.language.reward_stage:make",
    measure=Measure(
        "eval/accuracy", 1.0, {"loss/reward_model": "loss", "eval/accuracy": "held-out accuracy"}
    ),
    figures={"accuracy": Figure("Reward model: held-out pairs told apart", "{:.1%}")},
    cards=("accuracy",),
    budget=lambda config: f"{config.updates} updates",
    ahead="proxima.domains.language.reward_stage:check_ahead",
)
# What the Evaluator measures of any policy, and those at the top of a page.
COMPLETIONS = {
    "reward": Figure("Reward of a completion", "{:+.3f}"),
    "judge": Figure("Judge's opinion", "{:+.3f}"),
    "kl": Figure("KL per completion (nats)"),
    "eos_rate": Figure("End by themselves", "{:.0%}"),
    "length": Figure("Tokens per completion", "{:.1f}"),
    "entropy": Figure("Entropy per token (nats)"),
    "distinct_1": Figure("Different tokens", "{:.0%}"),
    "distinct_2": Figure("Different bigrams", "{:.0%}"),
}
COMPLETION_CARDS = ("reward", "judge", "kl", "eos_rate")
PPO_REMEDIES = Remedies(
    "raise kl.coefficient or lower kl.target", "raise reward.missing_eos_penalty"
)
PPO = LanguageStage(
    name="ppo",
    title="PPO",
    make="proxima.domains.language.ppo:make",
    measure=Measure(
        "eval/reward",
        1.0,
        {
            "train/score": "reward",
            "train/kl": "KL",
            "train/eos_rate": "EOS",
            "eval/reward": "held-out reward",
            "eval/judge": "judge",
        },
    ),
    figures=COMPLETIONS,
    cards=COMPLETION_CARDS,
    budget=lambda config: f"{config.updates} updates",
    checks=ppo_faults,
    ahead="proxima.domains.language.policy_stage:check_ahead",
    counts=ppo_counts,
    model="model",
    remedies=PPO_REMEDIES,
)
DPO = LanguageStage(
    name="dpo",
    title="DPO",
    make="proxima.domains.language.dpo:make",
    measure=Measure(
        "eval/loss",
        -1.0,
        {
            "loss/dpo": "loss",
            "train/accuracy": "accuracy",
            "eval/accuracy": "held-out accuracy",
            "eval/kl": "KL",
            "eval/reward": "held-out reward",
            "eval/judge": "judge",
        },
    ),
    figures={
        **COMPLETIONS,
        "accuracy": Figure("DPO: held-out pairs told apart", "{:.1%}"),
        "reward_margin": Figure("Margin of held-out pairs"),
    },
    cards=(*COMPLETION_CARDS, "accuracy"),
    budget=lambda config: f"{config.updates} updates",
    checks=dpo_faults,
    ahead="proxima.domains.language.dpo:check_ahead",
    model="model",
    remedies=Remedies(*["raise dpo.beta or lower dpo.learning_rate"] * 2),
)
POLICIES = (DPO, PPO)  # one of them at most: pages and curves are about it
# in the order in which they run
STAGES = {stage.name: stage for stage in (SFT, REWARD_MODEL, *POLICIES)}
ADAPTER = "adapter"  # the folder beside a policy's model, with LoRA
FIGURES = {
    f"{stage.name}/{name}": figure
    for stage in STAGES.values()
    for name, figure in stage.figures.items()
}


def stages_of(scenario: LanguageScenario) -> list[LanguageStage]:
    """The stages of a scenario, in their order."""
    return [stage for stage in STAGES.values() if getattr(scenario, stage.name) is not None]


def policy_of(scenario: LanguageScenario) -> LanguageStage | None:
    """The stage of a scenario that trains its policy; None where none does."""
    return policy_among({stage.name for stage in stages_of(scenario)})


def policy_among(names: Container[str]) -> LanguageStage | None:
    """The stage that trains the policy, among stages by their names."""
    return next((stage for stage in POLICIES if stage.name in names), None)


def language_faults(scenario: LanguageScenario) -> Iterator[Fault]:
    """Stages, sizes, rewards and data that do not go together."""
    yield from _model_faults(scenario)
    for stage in stages_of(scenario):
        yield from stage.checks(scenario)
    yield from _mesh_faults(scenario)
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


def _mesh_faults(scenario: LanguageScenario) -> Iterator[Fault]:
    parts = scenario.model.mesh.data
    for stage in stages_of(scenario):
        size = getattr(scenario, stage.name).batch_size
        if size % parts:
            text = f"{size} cannot be divided into model.mesh.data ({parts}) equal parts; make it a multiple"
            yield Fault(((stage.name, "batch_size"), ("model", "mesh", "data")), text)


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
