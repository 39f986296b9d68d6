"""Language: reinforcement learning from human feedback, whose components can be used one by one."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proxima.domains.language.advantages import AdvantageComp as AdvantageComp
    from proxima.domains.language.evaluate import Evaluator as Evaluator
    from proxima.domains.language.experience import ExperienceBuffer as ExperienceBuffer
    from proxima.domains.language.experience import TokenAttributor as TokenAttributor
    from proxima.domains.language.experience import ValueAdder as ValueAdder
    from proxima.domains.language.generate import Generator as Generator
    from proxima.domains.language.learn import ModelTrainer as ModelTrainer
    from proxima.domains.language.rewards import RewardComputer as RewardComputer
    from proxima.domains.language.trainer import PPOTrainer as PPOTrainer
    from proxima.domains.language.trainer import TrainingResults as TrainingResults

# Loaded on first use: settings are read without waiting for JAX.
_WHERE = {
    "AdvantageComp": "advantages",
    "Evaluator": "evaluate",
    "ExperienceBuffer": "experience",
    "Generator": "generate",
    "ModelTrainer": "learn",
    "PPOTrainer": "trainer",
    "RewardComputer": "rewards",
    "TokenAttributor": "experience",
    "TrainingResults": "trainer",
    "ValueAdder": "experience",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
