"""Maximum a posteriori policy optimisation: its losses and dual variables, one number per element.

The policy is drawn towards a weighting of sampled actions while two constraints hold, each through a dual
variable that gradient descent adjusts: the temperature keeps the weighting within ε of the prior, α keeps
the new policy within ε_policy of the old (Abdolmaleki et al. 2018, arXiv 1806.06920; in SPO the weighting
comes from search, arXiv 2402.07963). A dual is kept as a number whose softplus it is.
"""

import jax
import jax.numpy as jnp
from jax import Array

from proxima.core.distributions import Distribution, MultiCategorical, Normal, TanhNormal

LOWEST_LOG_DUAL = -18.0  # softplus is then 1.5e-8: smaller, and advantages divided by it overflow
LEAST = -100.0  # an exponent whose exponential is no part of any sum, in float32


def dual(log_dual: Array) -> Array:
    """The dual variable, softplus of what is learnt, never 0."""
    return jax.nn.softplus(jnp.maximum(log_dual, LOWEST_LOG_DUAL))


def temperature_loss(advantage: Array, temperature: Array, epsilon: Array) -> Array:
    """η (ε + log mean exp(A/η)) over the N particles, the last axis (arXiv 1806.06920, eq. 4).

    Its minimum over η is where the weighting softmax(A/η) is ε away from the prior, in KL. The largest A
    is taken out before the division, η log Σ exp(A/η) = m + η log Σ exp((A − m)/η), and no exponent is
    below LEAST, so that neither the loss nor its gradient overflows.
    """
    largest = jnp.max(advantage, axis=-1, keepdims=True)
    exponent = jnp.maximum((advantage - largest) / temperature, LEAST)
    log_mean = jnp.log(jnp.mean(jnp.exp(exponent), axis=-1))
    return largest[..., 0] + temperature * (epsilon + log_mean)


def alpha_loss(kl: Array, alpha: Array, epsilon: Array) -> Array:
    """α (ε_policy − KL) as a loss of α alone: it rises while the policy is too far from the old one."""
    return alpha * (epsilon - jax.lax.stop_gradient(kl))


def weighted_cross_entropy(log_prob: Array, weight: Array) -> Array:
    """−Σ wᵢ log π(aᵢ) over the particles, the last axis; what has no weight does not count."""
    return -jnp.sum(jnp.where(weight > 0.0, weight * log_prob, 0.0), axis=-1)


def categorical_kl(old_logits: Array, new_logits: Array) -> Array:
    """KL(old ‖ new) = Σ p (log p − log q) over the last axis, of normalised logits; −inf has p = 0."""
    valid = (old_logits > -jnp.inf) & (new_logits > -jnp.inf)
    old, new = (jnp.where(valid, logits, 0.0) for logits in (old_logits, new_logits))
    return jnp.sum(jnp.where(valid, jnp.exp(old) * (old - new), 0.0), axis=-1)


def normal_kl(old: Normal | TanhNormal, new: Normal | TanhNormal) -> Array:
    """KL(old ‖ new) = Σ log(σ'/σ) + (σ² + (μ − μ')²) / 2σ'² − ½, over the last axis."""
    # The same for squashed normals: a bijection changes no divergence.
    ratio = jnp.exp(2.0 * (old.log_std - new.log_std))
    shift = jnp.square(old.mean - new.mean) * jnp.exp(-2.0 * new.log_std)
    return jnp.sum(new.log_std - old.log_std + 0.5 * (ratio + shift - 1.0), axis=-1)


def kl(old: Distribution, new: Distribution) -> Array:
    """KL(old ‖ new) of two action distributions of one kind, over the leading axes."""
    if isinstance(old, Normal | TanhNormal):
        assert isinstance(new, Normal | TanhNormal)
        return normal_kl(old, new)
    assert not isinstance(new, Normal | TanhNormal)
    per_choice = categorical_kl(old.logits, new.logits)
    return jnp.sum(per_choice, axis=-1) if isinstance(old, MultiCategorical) else per_choice
