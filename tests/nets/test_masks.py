"""Named observations and masks from end to end: learnt, evaluated, saved, resumed, exported."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probes import MaskedProbe
from problems import problem_of
from tracking import ABOUT

from proxima.algorithms.ppo import PPOConfig, ppo
from proxima.core.errors import ProximaError
from proxima.core.normalize import add_samples, first_moments, normalize
from proxima.core.spaces import (
    Discrete,
    MultiDiscrete,
    action_mask,
    fields,
    flat_size,
    mask_space,
    zeros,
)
from proxima.core.trees import pack_rows
from proxima.core.types import View
from proxima.domains.interface import interface_of
from proxima.domains.judging import policy_function
from proxima.nets.actor_critic import MLPConfig, actor_critic, check_spaces
from proxima.nets.encoder import encoder
from proxima.track.registry import export_program, load_exported, write_policy
from proxima.train import checkpoint
from proxima.train.compiled.collect import Collector
from proxima.train.compiled.episodes import play, random_action
from proxima.train.compiled.program import compiled_program
from proxima.train.devices import Layout

ENVS = 8
CONFIG = PPOConfig(
    learning_rate=1e-2,
    batch_size=128,
    minibatch_size=64,
    epochs_per_update=4,
    entropy_coef=0.0,
    normalize_observations=True,
)
KINDS = pytest.mark.parametrize("env", [MaskedProbe(), MaskedProbe(parts=2)], ids=["one", "two"])


def program_of(env, config=CONFIG):
    spaces = env.observation_space, env.action_space
    agent = ppo(config, problem_of(spaces, ENVS, MLPConfig(hidden=(16,)), total_updates=100))
    collector = Collector(env, ENVS, config.batch_size // ENVS)
    return agent, compiled_program(agent, collector, Layout(1, 1), 0)


@KINDS
def test_the_best_valid_action_is_learnt_and_no_invalid_one_is_played(env):
    _, program = program_of(env)
    active = np.ones(1, bool)
    states, sums = program.chunk(program.init([0]), active, 60)
    for policy in ("greedy", "sampled", "random"):
        returns = program.evaluate(states.learner, policy, 32).returns
        assert (returns >= 0).all(), policy  # one invalid action alone would cost 10
    assert program.evaluate(states.learner, "greedy", 32).returns.mean() > 3.9
    assert np.isfinite(sums["loss/total"]).all()


@KINDS
def test_masked_rollouts_have_finite_losses_and_gradients_from_the_first_update(env):
    _, program = program_of(env)
    _, sums = program.chunk(program.init([0]), np.ones(1, bool), 1)
    assert all(np.isfinite(values).all() for values in sums.values())


def test_a_stop_and_resume_with_named_observations_is_exact(tmp_path):
    env, active = MaskedProbe(), np.ones(2, bool)
    _, program = program_of(env)
    states, _ = program.chunk(program.init([0, 1]), active, 3)
    lanes = checkpoint.split_trials(states)
    manifest = {"scenario": {}, "loop": {}}
    paths = [
        checkpoint.save(tmp_path / str(trial), 3, lane, manifest, keep=2, best=False)
        for trial, lane in enumerate(lanes)
    ]
    on, _ = program.chunk(states, active, 3)
    fresh = checkpoint.split_trials(program.init([0, 1]))
    loaded = [checkpoint.load(path, each)[0] for path, each in zip(paths, fresh, strict=True)]
    resumed, _ = program.chunk(program.lay_out(checkpoint.stack_trials(loaded)), active, 3)
    for one, other in zip(
        checkpoint.split_trials(on), checkpoint.split_trials(resumed), strict=True
    ):
        for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
            if jnp.issubdtype(left.dtype, jax.dtypes.prng_key):
                left, right = jax.random.key_data(left), jax.random.key_data(right)
            np.testing.assert_array_equal(left, right)


def test_an_exported_policy_takes_the_fields_and_obeys_the_mask(tmp_path):
    env = MaskedProbe()
    agent, program = program_of(env)
    (lane,) = checkpoint.split_trials(program.init([0]))
    interface = interface_of(env.observation_space, env.action_space)
    function, weights = policy_function(agent, lane.learner, interface)
    kinds = {"observation": interface.observation, "action": interface.action}
    exported = export_program(function, weights, {"observation": kinds["observation"]})
    write_policy(exported, weights, ABOUT | kinds, tmp_path / "policy")
    act, *_ = load_exported(tmp_path / "policy")
    rows = zeros(env.observation_space, (3,))
    rows["action_mask"] = np.eye(3, dtype=bool)
    np.testing.assert_array_equal(act(rows), [0, 1, 2])  # a single action is left in each
    with pytest.raises(ValueError, match="lack board"):
        act({name: rows[name] for name in rows if name != "board"})


def test_random_actions_are_uniform_over_the_valid_ones():
    mask = jnp.asarray([True, False, True, True])
    keys = jax.random.split(jax.random.key(0), 30_000)
    drawn = jax.vmap(lambda key: random_action(Discrete(4), key, mask))(keys)
    np.testing.assert_allclose(
        np.bincount(drawn, minlength=4) / 30_000, [1 / 3, 0, 1 / 3, 1 / 3], atol=0.02
    )
    both = jax.vmap(lambda key: random_action(MultiDiscrete(4, 2), key))(keys[:100])
    assert both.shape == (100, 2)


def test_a_rule_plays_the_evaluation_episodes():
    def best(view):
        order = jnp.broadcast_to(jnp.arange(3), view.obs["action_mask"].shape)
        return jnp.max(jnp.where(view.obs["action_mask"], order, -1), axis=-1)

    evaluation = play(best, MaskedProbe(), 0, 5)
    np.testing.assert_array_equal(evaluation.returns, np.full((1, 5), 4.0))
    np.testing.assert_array_equal(evaluation.lengths, np.full((1, 5), 4.0))


def test_an_mlp_lays_fields_side_by_side_and_leaves_the_mask_out():
    space = MaskedProbe().observation_space
    obs = zeros(space, (5, 7))
    obs["flag"][...] = [True, False]
    dense = encoder(jax.random.key(0), "auto", space)
    rows = dense(obs)
    assert rows.shape == (5, 7, 9) and flat_size(space) == dense.size == 9
    assert rows.dtype == jnp.float32
    np.testing.assert_array_equal(rows[0, 0], [0, 0, 0, 0, 0, 0, 1, 0, 0])


def test_normalising_leaves_booleans_alone():
    space = MaskedProbe().observation_space
    obs = zeros(space, (50,))
    obs["time"] = np.arange(50, dtype=np.int32)
    moments = add_samples(first_moments(zeros(space)), obs, jnp.ones(50, bool))
    seen = normalize(moments, obs)
    assert seen["action_mask"].dtype == bool and seen["action_mask"].all()
    assert float(jnp.std(seen["time"])) == pytest.approx(1.0, abs=1e-3)


def test_packing_a_named_observation_into_rows_and_back_is_exact():
    env = MaskedProbe()
    _, obs = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 6))
    rows, unpack = pack_rows(obs, 1)
    for name, leaf in unpack(rows).items():
        assert leaf.dtype == obs[name].dtype
        np.testing.assert_array_equal(leaf, obs[name])


@KINDS
def test_a_net_gives_masked_logits_no_gradient(env):
    net = actor_critic(
        jax.random.key(0), MLPConfig(hidden=(8,)), env.observation_space, env.action_space
    )
    _, obs = jax.vmap(env.reset)(jax.random.split(jax.random.key(1), 64))
    mask = action_mask(obs)
    obs["action_mask"] = mask.at[..., 2].set(False).at[..., 0].set(True)  # never the last one

    def loss(net):
        distribution = net.policy(obs)
        return jnp.mean(distribution.log_prob(distribution.mode()) + distribution.entropy())

    slope = jax.jit(jax.grad(loss))(net).actor.layers[-1].bias.reshape(-1, 3)
    assert (slope[:, 2] == 0).all() and np.isfinite(slope).all() and (slope[:, 0] != 0).all()


def test_a_mask_alone_fits_no_net():
    space = fields({"action_mask": mask_space(Discrete(3))})
    with pytest.raises(ProximaError, match="nothing but an action mask"):
        check_spaces(MLPConfig(), space, Discrete(3), "Blind-v0")


def test_a_space_of_fields_is_hashable_and_sorted_like_a_dict():
    space = MaskedProbe().observation_space
    assert hash(space) == hash(fields(dict(reversed(list(space.items())))))
    leaves = jax.tree.leaves(zeros(space))
    assert [leaf.shape for leaf in leaves] == [each.shape for each in space.spaces]
    assert View(zeros(space)).obs.keys() == set(space.names)
