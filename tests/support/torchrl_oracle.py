"""What TorchRL makes of `torchrl_cases`, in float64: returns, samples, and whole updates by its losses.

`python tests/support/torchrl_oracle.py` writes golden_torchrl.json anew; it needs the extra `oracle`. An
update is TorchRL's loss, torch's Adam, and TorchRL's target nets. Where TorchRL has another convention than
we, a line beside it says which, and what is returned follows ours.
"""

import itertools
import json
import sys
import warnings
from collections.abc import Callable, Iterable
from typing import Any
from unittest import mock

import numpy as np
import torch
import torchrl_cases as given
from tensordict import TensorDict
from torch import Tensor
from torchrl.data import LazyTensorStorage
from torchrl.modules import ProbabilisticActor, TanhNormal, ValueOperator
from torchrl.objectives import (
    ClipPPOLoss,
    DDPGLoss,
    DiscreteSACLoss,
    DQNLoss,
    LossModule,
    SACLoss,
    SoftUpdate,
    TD3Loss,
    ValueEstimators,
)
from torchrl.objectives.value import GAE
from torchrl.objectives.value.functional import (
    vec_generalized_advantage_estimate,
    vec_td_lambda_return_estimate,
)
from torchrl_nets import (
    adam,
    choice_critics,
    choosing_actor,
    critics,
    deterministic_actor,
    dueling,
    layer_normed,
    leaves,
    normal_actor,
    perceptron,
    q_actor,
    take_step,
    tanh_normal_actor,
)
from torchrl_samples import (
    along_time,
    by_env,
    by_time,
    draw,
    fixed_noise,
    sampler_of,
    samples,
    tensor,
    three_steps,
)

DIGITS = 7  # of the numbers in the file
Numbers = dict[str, list[Any]]
Row = dict[str, Any]  # a number for each name


def gae() -> Numbers:
    steps = along_time("choice")["next"]
    value, next_value = map(by_env, given.values())
    endings = {name: steps[name] for name in ("done", "terminated")}
    advantage, target = vec_generalized_advantage_estimate(
        given.GAMMA, given.LAM, value, next_value, steps["reward"], **endings
    )
    return {"advantage": by_time(advantage), "target": by_time(target)}


def lambda_returns() -> Numbers:
    steps, next_value = along_time("choice")["next"], by_env(given.values()[1])
    endings = {name: steps[name] for name in ("done", "terminated")}
    returns = vec_td_lambda_return_estimate(
        given.GAMMA, given.LAM, next_value, steps["reward"], **endings
    )
    return {"returns": by_time(returns)}


def n_step() -> Numbers:
    multi = three_steps(along_time("choice"))
    return {
        "reward": by_time(multi["next", "reward"]),
        "next_obs": by_time(multi["next", "observation"]),
        "steps": by_time(multi["steps_to_next_obs"]),
    }


def prioritized() -> Numbers:
    sampler, storage = sampler_of(given.ROWS), LazyTensorStorage(given.ROWS)
    storage.set(range(given.ROWS), torch.zeros(given.ROWS))
    known = len(given.ERRORS)
    sampler.update_priority(np.arange(known), tensor(abs(given.ERRORS)))
    for row in range(known, given.ROWS):
        sampler.update_priority(row, sampler.default_priority)
    rows, weight = draw(sampler, storage, given.UNIFORMS)
    return {"rows": rows.tolist(), "weight": weight.tolist()}


def tanh_normal() -> Numbers:
    mean, log_std, raw = tensor(given.normal("tanh", 3, given.COUNT, given.NUMBERS))
    bounds = {"low": tensor(given.LOW), "high": tensor(given.HIGH)}
    policy = TanhNormal(mean, log_std.exp(), safe_tanh=False, **bounds)
    action = policy.transforms[0](raw)
    return {"action": action.tolist(), "log_prob": policy.log_prob(action).tolist()}


def ppo_choices() -> Numbers:
    """Masks, normalised advantages, clipped values."""
    settings = {"clip_value": given.VALUE_CLIP, "normalize_advantage": True}
    return ppo(choosing_actor(0), "choice", given.rollout().choice_log_prob, **settings)


def ppo_numbers() -> Numbers:
    return ppo(normal_actor(), "number", given.rollout().number_log_prob)


def ppo(actor: ProbabilisticActor, action: str, log_prob: np.ndarray, **settings: Any) -> Numbers:
    """The means of one update's gradient steps, each on the whole rollout."""
    critic = ValueOperator(perceptron(2, given.SEEN, 1), in_keys=["observation"])
    steps = along_time(action)
    steps["action_log_prob"] = tensor(log_prob).transpose(0, 1)
    GAE(gamma=given.GAMMA, lmbda=given.LAM, value_network=critic)(steps)
    loss = ClipPPOLoss(
        actor,
        critic,
        clip_epsilon=given.CLIP,
        loss_critic_type="l2",
        entropy_coeff=given.ENTROPY_COEF,
        critic_coeff=given.VALUE_COEF,
        log_explained_variance=True,
        **settings,
    )
    # Theirs normalises advantages by the deviation with n − 1, ours with n.
    factor = (given.COUNT / (given.COUNT - 1)) ** 0.5 if loss.normalize_advantage else 1.0
    optimizer = adam(loss.parameters(), eps=1e-5)
    rows = [ppo_step(loss, steps.reshape(-1), optimizer, factor) for _ in range(given.UPDATES)]
    # Theirs is of the net at every step, ours of the net that valued the rollout.
    first = {"train/explained_variance": gathered(rows[:1])["train/explained_variance"]}
    return means_of(rows) | first


def ppo_step(
    loss: ClipPPOLoss, steps: TensorDict, optimizer: torch.optim.Optimizer, factor: float
) -> Row:
    parts = loss(steps)
    policy = factor * parts["loss_objective"]
    total = policy + parts["loss_critic"] + parts["loss_entropy"]
    return {
        "loss/total": total,
        "loss/policy": policy,
        "loss/value": parts["loss_critic"] / given.VALUE_COEF,
        "train/entropy": parts["entropy"],
        # Theirs is estimator k1, the mean of −log ρ; ours is k3, of ρ − 1 − log ρ.
        "train/approx_kl": parts["mean_ratio"] - 1.0 + parts["kl_approx"],
        "train/clip_fraction": parts["clip_fraction"],
        "train/grad_norm": take_step(optimizer, total),
        "train/explained_variance": parts["explained_variance"],
    }


def pqn() -> Numbers:
    """The means of one update's gradient steps: TorchRL's Q-learning with TD(λ) and without a target net."""
    net = layer_normed(perceptron(0, given.SEEN, given.CHOICES))
    loss = DQNLoss(q_actor(net), loss_function="l2", delay_value=False, action_space="categorical")
    loss.make_value_estimator(ValueEstimators.TDLambda, gamma=given.GAMMA, lmbda=given.LAM)
    steps, estimator = along_time("choice"), loss.value_estimator
    # Theirs computes returns before every step, ours before every rollout.
    returns = estimator.value_estimate(steps.clone(), target_params=loss.value_network_params)
    optimizer, rows = torch.optim.RAdam(loss.parameters(), lr=given.RATE), []
    with mock.patch.object(estimator, "value_estimate", lambda *_, **__: returns.detach()):
        for _ in range(given.EPOCHS):
            half = loss(steps)["loss"] / 2  # ours is half the square
            rows.append({"loss/q": half, "train/grad_norm": take_step(optimizer, half)})
    return means_of(rows)


def dqn() -> Numbers:
    """Masks, and samples of three steps."""
    learn = q_learner(perceptron(0, given.SEEN, given.CHOICES), loss_function="smooth_l1")
    steps = three_steps(along_time("choice")).reshape(-1)
    return gathered(learn(steps) for _ in range(given.UPDATES))


def dqn_double() -> Numbers:
    """A dueling head, the net itself chooses, and samples are drawn by priority."""
    learn, capacity = q_learner(dueling(), loss_function="l2", double_dqn=True), given.CAPACITY
    sampler, storage, rows = sampler_of(capacity), LazyTensorStorage(capacity), []
    for update in range(given.UPDATES):
        fresh = torch.arange(update * given.COUNT, (update + 1) * given.COUNT)
        storage.set(fresh, samples("choice"))
        # Of new rows theirs is the largest so far, ours too, but never below 1.
        largest = max(1.0 - given.SMALLEST, float(sampler.default_priority))
        sampler.update_priority(fresh, torch.full((given.COUNT,), largest))
        sampler.beta = given.beta_of(update)
        index, weight = draw(sampler, storage, np.full(given.COUNT, 0.5))
        drawn = storage.get(index)
        drawn["priority_weight"] = weight
        # Theirs divides by the sum of the weights, ours by their number.
        rows.append(learn(drawn, weight.mean()))
        # Theirs is the square of the error, ours its size (arXiv 1511.05952, section 3.3).
        sampler.update_priority(index, drawn["td_error"].sqrt().squeeze(-1))
    return gathered(rows)


def q_learner(net: torch.nn.Module, **settings: Any) -> Callable[..., Row]:
    """One gradient step on samples; after every second one the target moves."""
    loss = DQNLoss(q_actor(net), action_space="categorical", delay_value=True, **settings)
    loss.make_value_estimator(gamma=given.GAMMA)
    target, optimizer = SoftUpdate(loss, tau=given.TAU), adam(loss.parameters())
    count = itertools.count(1)

    def learn(drawn: TensorDict, factor: Any = 1.0) -> Row:
        value = factor * loss(drawn)["loss"]
        norm = take_step(optimizer, value)
        if next(count) % 2 == 0:
            target.step()
        error = drawn["td_error"].sqrt().mean()
        return {"loss/q": value, "train/grad_norm": norm, "train/td_error": error}

    return learn


def ddpg() -> Numbers:
    """One critic, no noise."""
    actor, (critic,) = deterministic_actor(), critics(1)
    loss = DDPGLoss(actor, critic, loss_function="l2", delay_actor=True, delay_value=True)
    return actor_critic(loss, "number", "value", given.noise()[:1])


def td3() -> Numbers:
    """Two critics, and noise on the target's actions."""
    loss = TD3Loss(
        deterministic_actor(),
        critics(2),
        bounds=(-1.0, 1.0),
        policy_noise=given.TARGET_NOISE,
        noise_clip=given.TARGET_NOISE_CLIP,
        loss_function="smooth_l1",
    )
    return actor_critic(loss, "number", "qvalue", given.noise()[:1])


SOFT = {"alpha_init": given.TEMPERATURE, "target_entropy": given.TARGET_ENTROPY}


def sac_numbers() -> Numbers:
    loss = SACLoss(tanh_normal_actor(), critics(2), loss_function="l2", **SOFT)
    return actor_critic(loss, "number", "qvalue", given.noise(), loss.log_alpha)


def sac_choices() -> Numbers:
    """Masks."""
    settings = SOFT | {"action_space": "categorical", "num_actions": given.CHOICES}
    actor = choosing_actor(4)
    loss = DiscreteSACLoss(actor, choice_critics(), loss_function="smooth_l1", **settings)
    return actor_critic(loss, "choice", "qvalue", given.noise(), loss.log_alpha)


def actor_critic(
    loss: LossModule,
    action: str,
    critic: str,
    noise: np.ndarray,
    log_alpha: Tensor | None = None,
) -> Numbers:
    """A step of the critics, one of the actor through the critics just changed, and the targets' moves."""
    loss.make_value_estimator(gamma=given.GAMMA)
    targets = SoftUpdate(loss, tau=given.TAU)
    by_critics = adam(leaves(getattr(loss, f"{critic}_network_params")))
    by_actor, rows = adam(leaves(loss.actor_network_params)), []
    by_temperature = None if log_alpha is None else adam([log_alpha])
    for _ in range(given.UPDATES):
        with fixed_noise(noise):
            value = loss(samples(action))[f"loss_{critic}"]
            norms = [take_step(by_critics, value)]
            parts = loss(samples(action))
        norms.append(take_step(by_actor, parts["loss_actor"]))
        row = {"loss/critic": value, "loss/actor": parts["loss_actor"]}
        rows.append(row | {"train/grad_norm": np.hypot(*norms)})
        if by_temperature is not None:
            rows[-1] |= temperature_step(parts, log_alpha, by_temperature)
        targets.step()
    return gathered(rows)


def temperature_step(parts: TensorDict, log_alpha: Tensor, optimizer: torch.optim.Optimizer) -> Row:
    # Theirs is log α (H − H̄), ours the paper's α (H − H̄); a step is by the derivative by log α.
    alpha = parts["alpha"].clone()
    ours = alpha / log_alpha.item() * parts["loss_alpha"].item()
    take_step(optimizer, alpha * parts["loss_alpha"])
    entropy = parts["entropy"]
    return {"loss/temperature": ours, "train/temperature": alpha, "train/entropy": entropy}


def gathered(rows: Iterable[Row]) -> Numbers:
    """By name, the numbers of all rows."""
    numbers = [{name: float(value) for name, value in row.items()} for row in rows]
    return {name: [row[name] for row in numbers] for name in numbers[0]}


def means_of(rows: Iterable[Row]) -> Numbers:
    return {name: [float(np.mean(numbers))] for name, numbers in gathered(rows).items()}


CASES = (
    gae, lambda_returns, n_step, prioritized, tanh_normal, ppo_choices, ppo_numbers,
    pqn, dqn, dqn_double, ddpg, td3, sac_numbers, sac_choices,
)  # fmt: skip


def compute(name: str) -> Numbers:
    """TorchRL's numbers of the case."""
    case = {case.__name__: case for case in CASES}[name]
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return case()
    finally:
        torch.set_default_dtype(before)


def rounded(part: Any) -> Any:
    if isinstance(part, list):
        return [rounded(inner) for inner in part]
    return float(f"{part:.{DIGITS}g}") if isinstance(part, float) else part


def main() -> None:
    golden = {
        case.__name__: {key: rounded(part) for key, part in compute(case.__name__).items()}
        for case in CASES
    }
    given.GOLDEN.write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    sys.exit(main())
