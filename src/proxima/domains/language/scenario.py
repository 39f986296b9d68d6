"""The config tree of a language scenario: data, a model, and the stages that train it one after the other."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from annotated_types import Ge, Interval
from pydantic import ConfigDict, with_config

from proxima.domains.language.config import (
    LanguageEvaluationConfig,
    LanguagePPOConfig,
    ModelConfig,
    RewardConfig,
    RewardModelConfig,
    SFTConfig,
    TextDataConfig,
)
from proxima.nets.lora import LoraConfig
from proxima.track.telemetry import TelemetryConfig
from proxima.track.tracker import TrackingConfig
from proxima.train.checkpoint import CheckpointConfig

TYPE_RULES = ConfigDict(
    extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
)
DOMAIN = "language"


@with_config(TYPE_RULES)  # holds for the sections too: they bring no rules of their own
@dataclass(frozen=True, kw_only=True)
class LanguageScenario:
    """An experiment with a language model: the stages that are there run in this order."""

    name: str = ""
    """The experiment's name, which is the file's name without its ending."""
    description: str = ""
    """One line for the list of scenarios."""
    domain: Literal["language"]
    """What makes it one about language."""
    seed: Annotated[int, Interval(ge=0, lt=2**31)] = 0
    """Seed of the first trial; trial k has seed + k."""
    trials: Annotated[int, Ge(1)] = 1
    """Independent repetitions of all stages."""
    output_directory: str = "logs"
    """Directory for results, checkpoints and plots."""
    data: TextDataConfig = field(default_factory=TextDataConfig)
    """The texts."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """The model that the first stage starts from."""
    lora: LoraConfig | None = None
    """Train low-rank adapters over the frozen model; null trains all weights."""
    sft: SFTConfig | None = None
    """Supervised fine-tuning; null leaves it out."""
    reward_model: RewardModelConfig | None = None
    """A reward model from ratings or preferences; null leaves it out."""
    ppo: LanguagePPOConfig | None = None
    """PPO; null leaves it out."""
    reward: RewardConfig = field(default_factory=RewardConfig)
    """What PPO rewards."""
    evaluation: LanguageEvaluationConfig = field(default_factory=LanguageEvaluationConfig)
    """How the policy is measured."""
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    """What is saved; a chunk is an update here."""
    tracking: TrackingConfig = field(default_factory=TrackingConfig)
    """Where runs are recorded."""
    telemetry: TelemetryConfig = field(default_factory=TelemetryConfig)
    """What is measured and sent besides."""


STAGES = ("sft", "reward_model", "ppo")
# Sections that may be left out: null means that there is none.
OPTIONAL = ("lora", *STAGES)


def stages_of(scenario: LanguageScenario) -> list[str]:
    """The stages of a scenario, in their order."""
    there = (scenario.sft, scenario.reward_model, scenario.ppo)
    return [name for name, config in zip(STAGES, there, strict=True) if config is not None]
