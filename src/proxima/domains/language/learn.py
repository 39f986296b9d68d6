"""PPO's gradient steps on tokens (arXiv 1707.06347, as in arXiv 1909.08593), and the state they change.

    for each epoch:  for each minibatch of completions, in a fresh order:
        ρ = π(token) / π_old(token), at the sampling temperature
        loss = Σ over valid tokens of clip loss + c (V − return)²  ÷  their number in the whole minibatch
        one Adam step of policy and one of critic, each gradient's norm clipped
    β ← β (1 + clip(KL / target − 1, ±0.2) · completions / horizon)

The number of tokens is the minibatch's, whatever it is divided into, so micro-batches change no
gradient. All of it is one compiled call that gives the old state up. Left out on purpose: an entropy
bonus (KL to the reference keeps the policy broad) and dropout.
"""

from functools import partial
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import optax
from jax import Array

from proxima.core import losses
from proxima.core.hyper import make_hyper
from proxima.core.normalize import Moments, first_moments
from proxima.core.parallel import masked_mean
from proxima.core.schedule import on_line
from proxima.core.seeds import first_keys
from proxima.domains.language.advantages import advantages_of
from proxima.domains.language.config import LanguagePPOConfig
from proxima.domains.language.experience import Kind, Scoring, divided, shuffled
from proxima.domains.language.model import Head, Part, fresh_part, score_completions, values_before
from proxima.domains.language.optimizers import Numbers, adamw_step, first_adam
from proxima.domains.language.reward_model import RewardModel
from proxima.domains.language.rewards import Rewards, Shaping, rewards_of
from proxima.domains.language.samples import Experience, Samples
from proxima.nets.lora import LoraConfig
from proxima.nets.transformer import Decoder

LARGEST_ERROR = 0.2  # of KL to its target, beyond which β answers no faster (arXiv 1909.08593)
POLICY, VALUE, KL, CLIPPED = range(4)  # indices into the sums of a step


class PPOState(NamedTuple):
    """All that PPO needs to go on: saved whole, a run resumes exactly."""

    policy: Part
    value: Part | None  # None without a critic
    policy_optimizer: optax.OptState
    value_optimizer: optax.OptState | None
    beta: Array
    moments: Moments  # of the scores
    sample_key: Array  # the same throughout; each update folds its number in
    shuffle_key: Array
    cursor: Array  # prompts asked so far
    updates: Array  # done


class Hyper(NamedTuple):
    """The numbers of PPO, scalar arrays."""

    learning_rate: Array
    final_learning_rate: Array
    value_learning_rate: Array
    total_updates: Array
    max_grad_norm: Array
    adam_eps: Array
    clip_epsilon: Array
    value_clip_epsilon: Array
    value_coef: Array
    gamma: Array
    gae_lambda: Array
    temperature: Array
    kl_target: Array
    kl_horizon: Array
    target_kl: Array


class Plan(NamedTuple):
    """What is compiled in: sizes and switches."""

    epochs: int
    minibatches: int
    micro_batches: int
    clip_value: bool
    adaptive: bool  # β
    stop_on_kl: bool
    checkpoint: bool  # layers computed twice, for memory
    kind: Kind


class Stepped(NamedTuple):
    """What one optimizer step saw; scalars."""

    policy_loss: Array
    value_loss: Array
    approx_kl: Array  # per token, old to new
    clip_fraction: Array
    grad_norm: Array
    value_grad_norm: Array
    ratio_gap: Array  # the largest |ρ − 1|
    taken: Array  # 0 where the step was left out, for the policy had gone too far


def hyper_of(config: LanguagePPOConfig) -> Hyper:
    """The numbers of the settings."""
    value_rate = config.value_learning_rate
    return make_hyper(
        Hyper,
        config,
        value_learning_rate=jnp.float32(config.learning_rate if value_rate is None else value_rate),
        total_updates=jnp.float32(config.updates),
        kl_target=jnp.float32(config.kl.target or 0.0),
        kl_horizon=jnp.float32(config.kl.horizon),
    )


def plan_of(config: LanguagePPOConfig, normalized: bool = False, checkpoint: bool = False) -> Plan:
    """The sizes and switches of the settings; `normalized`: scores are, by their running moments."""
    whiten = config.normalize_advantages == "batch"
    return Plan(
        epochs=config.epochs_per_update,
        minibatches=config.batch_size // config.minibatch_size,
        micro_batches=config.micro_batches,
        clip_value=config.value_clip_epsilon is not None,
        adaptive=config.kl.target is not None,
        stop_on_kl=config.target_kl is not None,
        checkpoint=checkpoint,
        kind=Kind(config.advantage, config.group_size, whiten, normalized),
    )


def critic_from(model: RewardModel) -> Part:
    """A critic that starts with the reward model's opinion of what is written so far (arXiv 2203.02155).

    For a model over the policy's own base, or with weights of its own, that reads the policy's ids.
    """
    head = model.part.head
    assert head is not None
    return model.part._replace(
        head=Head(head.weight / model.std, (head.bias - model.mean) / model.std)
    )


def first_state(
    config: LanguagePPOConfig,
    base: Decoder,
    lora: LoraConfig | None,
    seed: int,
    critic: Part | None = None,
) -> PPOState:
    """Nothing learnt yet: a policy that is the reference, and a copy of the critic or one that says 0."""
    keys = first_keys(jnp.uint32(seed), 1)
    policy_key, value_key = jax.random.split(keys.weights)
    policy = fresh_part(policy_key, base, lora)
    has_critic = config.advantage == "gae"
    fresh = fresh_part(value_key, base, lora, head=True) if critic is None else critic
    value = jax.tree.map(jnp.copy, fresh) if has_critic else None
    return PPOState(
        policy=policy,
        value=value,
        policy_optimizer=first_adam(policy),
        value_optimizer=None if value is None else first_adam(value),
        beta=jnp.float32(config.kl.coefficient),
        moments=first_moments(jnp.zeros(())),
        sample_key=keys.streams.act,
        shuffle_key=keys.streams.shuffle,
        cursor=jnp.zeros((), jnp.int32),
        updates=jnp.zeros((), jnp.int32),
    )


def loss_of(
    parts: tuple[Part, Part | None],
    base: Decoder,
    batch: Experience,
    tokens: Array,
    hyper: Hyper,
    plan: Plan,
) -> tuple[Array, tuple[Array, Array]]:
    """The loss of all or part of a minibatch that has so many tokens; its parts, and the largest |ρ − 1|."""
    policy, value = parts
    rows = (batch.prompts, batch.completions)
    mask = batch.completions.mask
    now = score_completions(base, policy, *rows, hyper.temperature, plan.checkpoint).log_probs
    moved = jnp.where(mask, jnp.abs(jnp.exp(now - batch.log_probs) - 1.0), 0.0)
    errors = jnp.zeros_like(now)
    if value is not None:
        values, width = values_before(base, value, *rows, plan.checkpoint), hyper.value_clip_epsilon
        if plan.clip_value:
            errors = losses.clipped_value_error(values, batch.values, batch.returns, width)
        else:
            errors = losses.value_error(values, batch.returns)
    per_token = (
        losses.clip_surrogate(now, batch.log_probs, batch.advantages, hyper.clip_epsilon),
        errors,
        losses.approximate_kl(now, batch.log_probs),
        (moved > hyper.clip_epsilon).astype(jnp.float32),
    )
    means = jnp.stack([jnp.sum(jnp.where(mask, terms, 0.0)) for terms in per_token]) / tokens
    return means[POLICY] + hyper.value_coef * means[VALUE], (means, jnp.max(moved))


def gradient_of(
    base: Decoder, state: PPOState, minibatch: Experience, hyper: Hyper, plan: Plan
) -> tuple[tuple[Part, Part | None], Array, Array]:
    """The gradient of policy and critic, micro-batch by micro-batch; the loss's parts; largest |ρ − 1|."""
    parts = (state.policy, state.value)
    tokens = jnp.maximum(jnp.sum(minibatch.completions.mask), 1).astype(jnp.float32)
    slope = jax.grad(loss_of, has_aux=True)
    if plan.micro_batches == 1:
        gradient, (means, moved) = slope(parts, base, minibatch, tokens, hyper, plan)
        return gradient, means, moved

    def add(total: Any, part: Experience) -> tuple[Any, Array]:
        gradient, (means, moved) = slope(parts, base, part, tokens, hyper, plan)
        return jax.tree.map(jnp.add, total, (gradient, means)), moved

    nothing = (jax.tree.map(jnp.zeros_like, parts), jnp.zeros(4))
    (gradient, means), moved = jax.lax.scan(add, nothing, divided(minibatch, plan.micro_batches))
    return gradient, means, jnp.max(moved)


def gradient_step(
    base: Decoder, state: PPOState, minibatch: Experience, hyper: Hyper, plan: Plan
) -> tuple[PPOState, Stepped]:
    """One optimizer step of policy and critic on a minibatch."""
    (policy_slope, value_slope), means, moved = gradient_of(base, state, minibatch, hyper, plan)
    rate, value_rate = rates(hyper, state.updates)
    numbers = Numbers(rate, jnp.float32(0.0), hyper.max_grad_norm, hyper.adam_eps)
    policy, policy_optimizer, norm = adamw_step(
        state.policy, policy_slope, state.policy_optimizer, numbers
    )
    stepped = state._replace(policy=policy, policy_optimizer=policy_optimizer)
    value_norm = jnp.zeros(())
    if state.value is not None:
        numbers = numbers._replace(learning_rate=value_rate)
        value, value_optimizer, value_norm = adamw_step(
            state.value, value_slope, state.value_optimizer, numbers
        )
        stepped = stepped._replace(value=value, value_optimizer=value_optimizer)
    parts = (means[POLICY], means[VALUE], means[KL], means[CLIPPED])
    return stepped, Stepped(*parts, norm, value_norm, moved, taken=jnp.ones(()))


def rates(hyper: Hyper, updates: Array) -> tuple[Array, Array]:
    """Learning rates of policy and critic at an update: straight lines to the final one."""
    line = hyper.final_learning_rate, updates, hyper.total_updates
    return on_line(hyper.learning_rate, *line), on_line(hyper.value_learning_rate, *line)


def next_beta(beta: Array, kl: Array, completions: int, hyper: Hyper) -> Array:
    """β after a batch whose completions had so much KL on average."""
    error = jnp.clip(kl / hyper.kl_target - 1.0, -LARGEST_ERROR, LARGEST_ERROR)
    return beta * (1.0 + error * completions / hyper.kl_horizon)


def optimize(
    base: Decoder, state: PPOState, experience: Experience, hyper: Hyper, plan: Plan
) -> tuple[PPOState, Stepped]:
    """All epochs and minibatches; what each step saw is stacked (epochs, minibatches)."""

    def step(carry: tuple[PPOState, Array], minibatch: Experience):
        state, stopped = carry
        if not plan.stop_on_kl:
            state, seen = gradient_step(base, state, minibatch, hyper, plan)
            return (state, stopped), seen
        return jax.lax.cond(stopped, left_out, guarded, state, minibatch)

    def guarded(state: PPOState, minibatch: Experience):
        after, seen = gradient_step(base, state, minibatch, hyper, plan)
        # measured before the step: a policy that is too far already is left where it is
        stopped = seen.approx_kl > hyper.target_kl
        kept = jax.tree.map(lambda old, new: jnp.where(stopped, old, new), state, after)
        return (kept, stopped), seen._replace(taken=1.0 - stopped)

    def left_out(state: PPOState, minibatch: Experience):
        return (state, jnp.asarray(True)), Stepped(*jnp.zeros(len(Stepped._fields)))

    def epoch(carry: tuple[PPOState, Array], key: Array):
        return jax.lax.scan(step, carry, shuffled(experience, key, plan.minibatches))

    keys = jax.random.split(jax.random.fold_in(state.shuffle_key, state.updates), plan.epochs)
    (state, _), seen = jax.lax.scan(epoch, (state, jnp.asarray(False)), keys)
    return state, seen


def experience_of(
    state: PPOState,
    samples: Samples,
    scoring: Scoring,
    given: Array,
    hyper: Hyper,
    numbers: Shaping,
    kind: Kind,
) -> tuple[Experience, Rewards]:
    """The samples with rewards, advantages and returns; `given` is what the reward said of them."""
    kl = losses.sampled_kl(scoring.log_probs, scoring.reference_log_probs)
    steered = (state.beta, state.moments, numbers, kind.normalized)
    rewards = rewards_of(given, samples, kl, *steered)
    mask, values = samples.completions.mask, scoring.values
    how = (hyper.gamma, hyper.gae_lambda, kind.advantage, kind.group_size, kind.whiten)
    advantages, returns = advantages_of(rewards.rewards, values, mask, *how)
    experience = Experience(
        prompts=samples.prompts,
        completions=samples.completions,
        log_probs=scoring.log_probs,
        reference_log_probs=scoring.reference_log_probs,
        rewards=rewards.rewards,
        values=values,
        advantages=advantages,
        returns=returns,
        scores=rewards.scores,
    )
    return experience, rewards


def learn(
    base: Decoder,
    state: PPOState,
    samples: Samples,
    scoring: Scoring,
    given: Array,
    hyper: Hyper,
    numbers: Shaping,
    plan: Plan,
) -> tuple[PPOState, dict[str, Array]]:
    """The state after all steps on the samples; `given` is what the reward said of them."""
    experience, rewards = experience_of(state, samples, scoring, given, hyper, numbers, plan.kind)
    mask = samples.completions.mask
    beta, rate = state.beta, rates(hyper, state.updates)[0]
    state, seen = optimize(base, state, experience, hyper, plan)
    kl = jnp.mean(jnp.sum(rewards.kl, axis=1))
    if plan.adaptive:
        state = state._replace(beta=next_beta(beta, kl, len(samples.ended), hyper))
    state = state._replace(moments=rewards.moments, updates=state.updates + 1)
    tokens, taken = jnp.sum(mask), jnp.sum(seen.taken)
    means = jax.tree.map(lambda values: masked_mean(values, seen.taken > 0.0), seen)
    gap = jnp.abs(samples.log_probs - scoring.log_probs)
    metrics = {
        "loss/policy": means.policy_loss,
        "loss/value": means.value_loss,
        "train/score": jnp.mean(given if given.ndim == 1 else jnp.sum(given, axis=1)),
        "train/reward": jnp.mean(jnp.sum(experience.rewards, axis=1)),
        "train/kl": kl,
        "train/beta": beta,
        "train/entropy": masked_mean(scoring.entropies, mask),
        "train/length": tokens / len(samples.ended),
        "train/eos_rate": jnp.mean(samples.ended.astype(jnp.float32)),
        "train/approx_kl": means.approx_kl,
        "train/clip_fraction": means.clip_fraction,
        "train/grad_norm": means.grad_norm,
        "train/value_grad_norm": means.value_grad_norm,
        "train/first_ratio_gap": seen.ratio_gap[0, 0],
        "train/log_prob_gap": jnp.max(jnp.where(mask, gap, 0.0)),
        "train/learning_rate": rate,
        "train/optimizer_steps": taken,
    }
    if state.value is not None:
        explained = losses.explained_variance(experience.values, experience.returns, mask)
        metrics["train/explained_variance"] = explained
    return state, metrics


_compiled = partial(jax.jit, static_argnames="plan", donate_argnames="state")
compiled_learn, _compiled_step = _compiled(learn), _compiled(gradient_step)


@final
class ModelTrainer:
    """One optimizer step at a time, for those who drive the loop themselves."""

    def __init__(self, base: Decoder, config: LanguagePPOConfig, checkpoint: bool = False) -> None:
        self.base = base
        self.hyper, self.plan = hyper_of(config), plan_of(config, checkpoint=checkpoint)

    def train_step(self, state: PPOState, batch: Experience) -> tuple[PPOState, Stepped]:
        """The state after one step on a minibatch, with the losses; the old state is given up."""
        return _compiled_step(self.base, state, batch, self.hyper, self.plan)
