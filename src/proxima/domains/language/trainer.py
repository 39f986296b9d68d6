"""PPOTrainer: prompts in, a trained policy out, from Python, without a scenario.

    trainer = PPOTrainer(base, tokenizer, reward, LanguagePPOConfig(), lora=LoraConfig())
    results = trainer.train(prompts, num_epochs=2)

The same stage that `proxima experiment` drives, without its files: for runs that are saved, tracked and
resumed write a scenario. The components it is made of are its attributes, to be used one by one.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, final

import jax

from proxima.core.errors import ProximaError
from proxima.domains.language.advantages import AdvantageComp
from proxima.domains.language.config import LanguagePPOConfig
from proxima.domains.language.evaluate import Evaluator
from proxima.domains.language.experience import ExperienceBuffer, Pair, TokenAttributor, ValueAdder
from proxima.domains.language.generate import Generator, check_prompts
from proxima.domains.language.learn import ModelTrainer, PPOState
from proxima.domains.language.model import Part
from proxima.domains.language.ppo import experience_from, ppo_stage, prompt_rows, repeats
from proxima.domains.language.rewards import RewardComputer
from proxima.domains.language.samples import Experience, Samples
from proxima.domains.language.tokenizer import Ids, Tokenizer
from proxima.nets.lora import LoraConfig
from proxima.nets.transformer import Decoder

Report = Callable[[int, dict[str, float]], object]  # updates done, their metrics


class TrainingResults(NamedTuple):
    """What training came to."""

    # metrics of each update; with an Evaluator, eval/… where it looked
    history: list[dict[str, float]]
    state: PPOState  # to go on from: PPOTrainer.train(..., state=…)
    policy: Part


@final
class PPOTrainer:
    """PPO on prompts with any reward, its components as attributes."""

    def __init__(
        self,
        base: Decoder,
        tokenizer: Tokenizer,
        reward: RewardComputer,
        config: LanguagePPOConfig,
        lora: LoraConfig | None = None,
        seed: int = 0,
        evaluator: Evaluator | None = None,
        evaluate_every: int = 10,
    ) -> None:
        """Without LoRA all weights are trained; `base` stays as it is in any case."""
        self.base, self.tokenizer, self.reward = base, tokenizer, reward
        self.config, self.lora, self.seed = config, lora, seed
        self.evaluator, self.evaluate_every = evaluator, evaluate_every
        self.generator = Generator(base, tokenizer, config.new_tokens, config.temperature)
        self.attributor = TokenAttributor(tokenizer)
        self.value_adder = ValueAdder(base)
        how = (config.advantage, repeats(config), config.normalize_advantages == "batch")
        self.advantages = AdvantageComp(config.gamma, config.gae_lambda, *how)
        self.buffer = ExperienceBuffer(config.batch_size)
        self.model_trainer = ModelTrainer(base, config)

    def train(
        self,
        prompts: Sequence[str] | Sequence[Ids],
        num_epochs: int = 1,
        state: PPOState | None = None,
        report: Report = lambda updates, metrics: None,
    ) -> TrainingResults:
        """`num_epochs` passes over the prompts, texts or ids; `config.updates` is not looked at.

        A state of earlier results is gone on from, to the same end, and given up.
        """
        for name, number in (("num_epochs", num_epochs), ("evaluate_every", self.evaluate_every)):
            if number < 1:
                raise ProximaError(f"{name}: {number}, and at least 1 is needed")
        lists = self.tokenizer.ids(prompts)
        asked = self.config.batch_size // repeats(self.config)
        updates = -(-num_epochs * len(lists) // asked)
        config = replace(self.config, updates=updates)
        models = (self.reward, self.base, self.lora)
        stage = ppo_stage(config, *models, lists, self.tokenizer, self.seed)
        state = stage.init() if state is None else state
        history = []
        for n in range(int(state.updates), updates):
            state, metrics = stage.update(state, n)
            is_due = (n + 1) % self.evaluate_every == 0 or n + 1 == updates
            if self.evaluator is not None and is_due:
                metrics |= self.evaluator.evaluate(state.policy)
            history.append(metrics)
            report(n + 1, metrics)
        return TrainingResults(history, state, state.policy)

    def rollout(self, prompts: Sequence[str] | Sequence[Ids], state: PPOState) -> Experience:
        """Completions of the prompts with all that training would know of them; nothing changes."""
        samples = self.sample(prompts, state)
        return experience_from(self.config, self.reward, self.base, state, samples)

    def sample(self, prompts: Sequence[str] | Sequence[Ids], state: PPOState) -> Samples:
        """Completions of the prompts by the state's policy, as many of each as in training."""
        lists = self.tokenizer.ids(prompts)
        check_prompts(lists, self.base, self.config.new_tokens)
        longest = max(len(ids) for ids in lists)
        rows = prompt_rows(lists, repeats(self.config), self.tokenizer.pad_id, longest)
        key = jax.random.fold_in(state.sample_key, state.updates)
        return self.generator.generate(state.policy, rows, key)

    def pairs(self, prompts: Sequence[str] | Sequence[Ids], state: PPOState) -> list[Pair]:
        """The rollout as readable rows of state and action."""
        return self.attributor.extract_pairs(self.rollout(prompts, state))
