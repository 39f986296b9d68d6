"""A language scenario: data, a model, and the stages that train it one after the other."""

from dataclasses import dataclass, field

from pydantic import with_config

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
from proxima.scenario.tree import RULES, Scenario


@with_config(RULES)
@dataclass(frozen=True, kw_only=True)
class LanguageScenario(Scenario):
    """An experiment with a language model: the stages that are there run in this order."""

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
