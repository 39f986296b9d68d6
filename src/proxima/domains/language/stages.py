"""The stages of a language scenario, a value each: what it trains, checks, measures and leaves behind.

    sft            trial_k/reference/            what the stages after it start from, a Hugging Face folder
    reward_model   trial_k/reward_model/model/   a reward model that any run can use
    ppo            trial_k/model/                the policy, a Hugging Face folder; with LoRA adapter/ too
                   trial_k/samples.html          before and after, token by token

A new one is its settings and their section (`config.py`), a file that ends with `make`, and a value here.
Scenarios are read and listed without tokenizers and models, so a value has the path of `make`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from proxima.core.faults import Fault
from proxima.domains.domain import Counts
from proxima.domains.language.config import LanguagePPOConfig, LanguageScenario
from proxima.run.results import StageResult
from proxima.scenario.words import either
from proxima.train.stage import Row


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
    # Its settings, its result and its metrics → how much a trial has seen.
    counts: Callable[[Any, StageResult, Sequence[Row]], Counts] = lambda config, result, rows: (
        Counts(result.steps, 0)
    )
    model: str = ""  # the folder in a trial with a model to talk to; none: it leaves none


def ppo_faults(scenario: LanguageScenario) -> Iterator[Fault]:
    """Sizes that do not divide each other, no room for completions, no reward."""
    ppo, new, reward = scenario.ppo, scenario.model.new, scenario.reward
    assert ppo is not None
    yield from size_faults(ppo)
    length = scenario.data.prompt_tokens + ppo.new_tokens
    if scenario.model.path is None and not scenario.data.chat and length > new.context:
        text = f"{ppo.new_tokens} after prompts of data.prompt_tokens "
        text += f"({scenario.data.prompt_tokens}) do not fit model.new.context ({new.context})"
        yield Fault(
            (("ppo", "new_tokens"), ("data", "prompt_tokens"), ("model", "new", "context")),
            f"{text}; make the context {length} or the others less",
        )
    if reward.kind == "model" and reward.path is None and scenario.reward_model is None:
        text = "model, and there is none; write reward_model: {}, name one in reward.path, or set "
        yield Fault((("reward", "kind"), ("reward_model",)), text + "reward.kind to function")


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
    figures={
        "reward": Figure("Reward of a completion", "{:+.3f}"),
        "judge": Figure("Judge's opinion", "{:+.3f}"),
        "kl": Figure("KL per completion (nats)"),
        "eos_rate": Figure("End by themselves", "{:.0%}"),
        "length": Figure("Tokens per completion", "{:.1f}"),
        "entropy": Figure("Entropy per token (nats)"),
        "distinct_1": Figure("Different tokens", "{:.0%}"),
        "distinct_2": Figure("Different bigrams", "{:.0%}"),
    },
    cards=("reward", "judge", "kl", "eos_rate"),
    budget=lambda config: f"{config.updates} updates",
    checks=ppo_faults,
    counts=ppo_counts,
    model="model",
)
STAGES = {stage.name: stage for stage in (SFT, REWARD_MODEL, PPO)}  # in the order in which they run
POLICY = PPO.name  # the stage whose policy pages and curves are about
FIGURES = {
    f"{stage.name}/{name}": figure
    for stage in STAGES.values()
    for name, figure in stage.figures.items()
}


def stages_of(scenario: LanguageScenario) -> list[LanguageStage]:
    """The stages of a scenario, in their order."""
    return [stage for stage in STAGES.values() if getattr(scenario, stage.name) is not None]
