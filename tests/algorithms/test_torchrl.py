"""Our returns, samples and updates are TorchRL's: live where it is installed (extra `oracle`), else golden.

Both sides get the same weights, rollout and noise (`torchrl_cases`). Of agents only the functions that all
have and the names of metrics are used, so that how a learner keeps its nets is its own business.
"""

import importlib
import itertools
import json
import math
import warnings
from importlib.util import find_spec

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torchrl_cases as given
from problems import problem_of

from proxima.algorithms.ddpg import DDPGConfig
from proxima.algorithms.ddpg import ddpg as make_ddpg
from proxima.algorithms.dqn import DQNConfig
from proxima.algorithms.dqn import dqn as make_dqn
from proxima.algorithms.ppo import Aux, PPOConfig
from proxima.algorithms.ppo import ppo as make_ppo
from proxima.algorithms.pqn import PQNConfig
from proxima.algorithms.pqn import pqn as make_pqn
from proxima.algorithms.sac import SACConfig
from proxima.algorithms.sac import sac as make_sac
from proxima.core import prioritized as core_prioritized
from proxima.core import returns
from proxima.core.distributions import TanhNormal
from proxima.core.n_step import empty_window, n_step_samples
from proxima.core.spaces import Discrete, box, fields, mask_space
from proxima.core.types import Transition, View
from proxima.nets import mlp, q
from proxima.nets.actor_critic import MLPConfig

INSTALLED = find_spec("torch") is not None and find_spec("torchrl") is not None
GAMMA, LAM = jnp.float32(given.GAMMA), jnp.float32(given.LAM)
NETWORK = MLPConfig(hidden=(given.WIDTH,), activation="tanh")
OBS = box(-10.0, 10.0, (given.SEEN,))
MASKED = fields({"seen": OBS, "action_mask": mask_space(Discrete(given.CHOICES))})
CHOICES = MASKED, Discrete(given.CHOICES)
NUMBERS = OBS, box(-1.0, 1.0, (given.NUMBERS,))
FROM_BUFFER = {
    "gamma": given.GAMMA,
    "tau": given.TAU,
    "batch_size": given.COUNT,
    "buffer_size": given.COUNT,
    "warmup_steps": 0,
    "steps_per_update": given.STEPS,
    "gradient_steps": 1,
    "max_grad_norm": None,
}
RATES = {"actor_learning_rate": given.RATE, "critic_learning_rate": given.RATE}


@pytest.fixture
def nothing_random(monkeypatch):
    """Layers have the given weights in the order in which they are made; draws are the given noise.

    Of the buffer every row is drawn once, in order.
    """
    made, noise = itertools.count(), given.noise()

    def linear(key, inputs, outputs, gain):
        weight, bias = given.layer(next(made), inputs, outputs)
        return mlp.Linear(jnp.asarray(weight), jnp.asarray(bias))

    def bits(key, shape, dtype=jnp.uint32):
        return jnp.arange(math.prod(shape), dtype=dtype).reshape(shape)

    for module in (mlp, q):
        monkeypatch.setattr(module, "linear", linear)
    monkeypatch.setattr(jax.random, "bits", bits)
    monkeypatch.setattr(jax.random, "normal", lambda key, shape, *_: jnp.resize(noise, shape))
    monkeypatch.setattr(jax.random, "uniform", lambda key, shape, *_: jnp.full(shape, 0.5))


def transitions(action, masked=False, aux=None):
    """The rollout as we have it."""
    steps = given.rollout()
    obs, next_obs = steps.obs, steps.next_obs
    if masked:
        obs = {"seen": obs, "action_mask": steps.mask}
        next_obs = {"seen": next_obs, "action_mask": steps.next_mask}
    endings = steps.terminated, steps.truncated
    real = np.ones_like(steps.terminated)
    rollout = Transition(obs, action, steps.reward, next_obs, *endings, real, aux)
    return jax.tree.map(jnp.asarray, rollout)


def updated(agent, rollout, updates):
    """The metrics of a fresh learner's updates on the same rollout, each a list."""
    learner = agent.init(jax.random.key(0))
    if rollout.aux is None:
        noise = agent.noise(None, jax.random.key(0), (given.STEPS, given.ENVS))
        rollout = rollout._replace(aux=agent.explore(learner, View(rollout.obs), noise).aux)
    update, history = jax.jit(lambda *arguments: agent.update(*arguments)), []
    for _ in range(updates):
        learner, metrics = update(learner, rollout, jax.random.key(0))
        history.append(metrics)
    return {name: [float(metrics[name]) for metrics in history] for name in history[0]}


def from_buffer(make, config, spaces, rollout):
    agent = make(config, problem_of(spaces, given.ENVS, NETWORK, total_updates=given.UPDATES))
    return updated(agent, rollout, given.UPDATES)


def gae():
    steps, (value, next_value) = given.rollout(), given.values()
    endings = steps.terminated, steps.truncated
    advantage = returns.gae(steps.reward, value, next_value, *endings, GAMMA, LAM)
    return {"advantage": advantage, "target": advantage + value}


def lambda_returns():
    steps, (_, next_value) = given.rollout(), given.values()
    endings, real = (steps.terminated, steps.truncated), np.ones_like(steps.terminated)
    targets = returns.lambda_returns(steps.reward, next_value, *endings, real, GAMMA, LAM)
    return {"returns": targets}


def n_step():
    zeros = jnp.zeros((2, given.ENVS, given.SEEN)), jnp.zeros((2, given.ENVS), jnp.int32)
    rollout = transitions(given.rollout().choice)
    samples, complete, _ = n_step_samples(empty_window(3, *zeros), rollout, 3, GAMMA)
    assert complete[2:].all() and not complete[:2].any(), "the window's own rows are none"
    samples = jax.tree.map(lambda part: part[2:], samples)
    return {"reward": samples.reward, "next_obs": samples.next_obs, "steps": samples.steps}


def prioritized():
    alpha, rows, known = jnp.float32(given.ALPHA), given.ROWS, len(given.ERRORS)
    kept = core_prioritized.no_priorities(rows)
    kept = core_prioritized.add_rows(kept, jnp.arange(known), alpha)
    kept = core_prioritized.change(kept, jnp.arange(known), jnp.asarray(given.ERRORS), alpha)
    kept = core_prioritized.add_rows(kept, jnp.arange(known, rows), alpha)
    uniforms, beta = jnp.asarray(given.UNIFORMS), jnp.float32(given.BETA)
    drawn = core_prioritized.draw(kept, uniforms, jnp.int32(rows), beta)
    return {"rows": drawn.rows, "weight": drawn.weight}


def tanh_normal():
    mean, log_std, raw = jnp.asarray(given.normal("tanh", 3, given.COUNT, 2))
    bounds = (jnp.broadcast_to(bound, mean.shape) for bound in (given.LOW, given.HIGH))
    policy = TanhNormal(mean, log_std, *bounds)
    return {"action": policy.to_action(raw), "log_prob": policy.log_prob(raw)}


def ppo(spaces, action, log_prob, **settings):
    config = PPOConfig(
        learning_rate=given.RATE,
        gamma=given.GAMMA,
        gae_lambda=given.LAM,
        clip_epsilon=given.CLIP,
        entropy_coef=given.ENTROPY_COEF,
        value_coef=given.VALUE_COEF,
        max_grad_norm=1e9,
        epochs_per_update=given.UPDATES,
        batch_size=given.COUNT,
        minibatch_size=given.COUNT,
        **settings,
    )
    agent = make_ppo(config, problem_of(spaces, given.ENVS, NETWORK))
    rollout = transitions(action, spaces is CHOICES, Aux(action, log_prob, None))
    return updated(agent, rollout, 1)


def ppo_choices():
    steps = given.rollout()
    settings = {"value_clip_epsilon": given.VALUE_CLIP, "normalize_advantages": "minibatch"}
    return ppo(CHOICES, steps.choice, steps.choice_log_prob, **settings)


def ppo_numbers():
    steps = given.rollout()
    return ppo(NUMBERS, steps.number, steps.number_log_prob, normalize_advantages="off")


def pqn():
    config = PQNConfig(
        name="pqn",
        learning_rate=given.RATE,
        gamma=given.GAMMA,
        q_lambda=given.LAM,
        epochs_per_update=given.EPOCHS,
        batch_size=given.COUNT,
        minibatch_size=given.COUNT,
    )
    agent = make_pqn(config, problem_of(CHOICES, given.ENVS, NETWORK))
    return updated(agent, transitions(given.rollout().choice, True), 1)


def dqn(**settings):
    settings = {"n_step": 3, "loss": "smooth_l1"} | FROM_BUFFER | settings
    config = DQNConfig(name="dqn", learning_rate=given.RATE, target_period=2, **settings)
    return from_buffer(make_dqn, config, CHOICES, transitions(given.rollout().choice, True))


def dqn_double():
    return dqn(
        n_step=1,
        loss="l2",
        double=True,
        dueling=True,
        prioritized=True,
        priority_alpha=given.ALPHA,
        priority_beta=given.BETA,
        buffer_size=given.CAPACITY,
    )


def ddpg(**settings):
    config = DDPGConfig(name="ddpg", **(FROM_BUFFER | RATES | settings))
    rollout = transitions(given.rollout().number)
    return from_buffer(make_ddpg, config, NUMBERS, rollout)


def td3():
    return ddpg(
        critics=2,
        critic_loss="smooth_l1",
        target_noise=given.TARGET_NOISE,
        target_noise_clip=given.TARGET_NOISE_CLIP,
    )


def sac(spaces, action, critic_loss):
    config = SACConfig(
        name="sac",
        temperature=given.TEMPERATURE,
        temperature_learning_rate=given.RATE,
        target_entropy=given.TARGET_ENTROPY,
        critic_loss=critic_loss,
        **FROM_BUFFER,
        **RATES,
    )
    return from_buffer(make_sac, config, spaces, transitions(action, spaces is CHOICES))


def sac_numbers():
    return sac(NUMBERS, given.rollout().number, "l2")


def sac_choices():
    return sac(CHOICES, given.rollout().choice, "smooth_l1")


OURS = (
    gae, lambda_returns, n_step, prioritized, tanh_normal, ppo_choices, ppo_numbers,
    pqn, dqn, dqn_double, ddpg, td3, sac_numbers, sac_choices,
)  # fmt: skip


GOLDEN = json.loads(given.GOLDEN.read_text())


@pytest.fixture(scope="module")
def oracle():
    """TorchRL at work, or None where it is not installed."""
    if not INSTALLED:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("torchrl_oracle")


@pytest.mark.parametrize("case", OURS, ids=lambda case: case.__name__)
def test_our_numbers_are_torchrls(case, oracle, nothing_random):
    name = case.__name__
    theirs, ours = GOLDEN[name] if oracle is None else oracle.compute(name), case()
    for key, expected in theirs.items():
        actual = np.asarray(ours[key], np.float64)
        # Ours is float32: differences up to 1e-5 were seen.
        np.testing.assert_allclose(actual, expected, rtol=5e-5, atol=1e-6, err_msg=key)


@pytest.mark.skipif(not INSTALLED, reason="TorchRL is not installed (extra `oracle`)")
@pytest.mark.parametrize("name", list(GOLDEN))
def test_golden_numbers_are_what_torchrl_says_now(name, oracle):
    now = oracle.compute(name)
    assert now.keys() == GOLDEN[name].keys()
    for key, numbers in GOLDEN[name].items():
        np.testing.assert_allclose(numbers, now[key], rtol=1e-6, atol=1e-9, err_msg=key)


def test_every_case_has_golden_numbers_that_say_something():
    assert list(GOLDEN) == [case.__name__ for case in OURS]
    for name in ("ppo_choices", "ppo_numbers"):
        assert 0.1 < GOLDEN[name]["train/clip_fraction"][0] < 0.9
    assert sorted(set(GOLDEN["prioritized"]["rows"])) == list(range(given.ROWS))
