"""Trainers from Python: whatever environment and net one has, trained, used and shown."""

import io
import sys

import equinox as eqx
import gymnasium
import jax
import known_envs
import numpy as np
import own_compiled
import own_envs
import pytest
from tiny import run_process

import proxima
from proxima.core.distributions import categorical
from proxima.core.errors import ProximaError
from proxima.domains.control.domain import build

SMALL = {
    "num_envs": 4,
    "max_steps": 512,
    "max_episodes": None,
    "batch_size": 64,
    "minibatch_size": 32,
    "epochs_per_update": 2,
    "updates_per_chunk": 2,
    "eval_episodes": 2,
    "final_episodes": 2,
    "film": False,
    "progress": False,
}


class Net(eqx.Module):
    """A policy and a value of Equinox's own layers."""

    actor: eqx.nn.Linear
    critic: eqx.nn.Linear

    def policy(self, obs):
        return categorical(self.actor(obs))

    def value(self, obs):
        return self.critic(obs)[0]


def make_net(key, observation_space, action_space):
    actor, critic = jax.random.split(key)
    inputs = observation_space.shape[0]
    return Net(
        eqx.nn.Linear(inputs, action_space.n, key=actor), eqx.nn.Linear(inputs, 1, key=critic)
    )


def instance():
    return gymnasium.make("CartPole-v1")


ENVIRONMENTS = {
    "a name": (lambda: "FrozenLake-v1", (16,)),
    "a Gymnasium instance": (instance, (4,)),
    "a wrapped one": (
        lambda: gymnasium.wrappers.RescaleObservation(
            gymnasium.wrappers.FlattenObservation(own_envs.Corridor()), np.float32(0), np.float32(1)
        ),
        (1,),
    ),
    "one that Gymnasium did not make": (own_envs.Corridor, (1,)),
    "a class": (lambda: own_envs.Corridor, (1,)),
    "a function": (lambda: own_envs.make_corridor, (1,)),
    "a compiled one": (own_compiled.Corridor, (1,)),
    "a compiled one's class": (lambda: own_compiled.Corridor, (1,)),
    "a compiled one of a plain class": (own_compiled.Plain, (1,)),
}


@pytest.mark.parametrize("kind", ENVIRONMENTS)
def test_any_environment_is_made(kind):
    make, shape = ENVIRONMENTS[kind]
    built = build(proxima.PPOTrainer(make(), **SMALL).scenario)
    try:
        assert built.observation_space.shape == shape
        states = built.program.init([0])
        _, metrics = built.program.chunk(states, np.array([True]), 1)
        assert np.isfinite(metrics["loss/policy"]).all()
    finally:
        built.program.close()


@pytest.mark.parametrize("env", [instance, own_compiled.Plain], ids=["host", "compiled"])
def test_an_instance_is_trained_on_and_evaluated(workdir, env):
    trainer = proxima.PPOTrainer(env(), max_steps_per_episode=7, **SMALL)
    assert max(trainer.train().evaluation.lengths) <= 7
    assert trainer.evaluate(2)["episodes"] == 2


@pytest.mark.parametrize("made", [own_envs.Corridor, own_compiled.Corridor], ids=["host", "jax"])
def test_a_class_is_named_by_its_path_and_takes_settings(made):
    trainer = proxima.PPOTrainer(made, params={"size": 3}, **SMALL)
    assert trainer.scenario.env.backend == f"{made.__module__}:Corridor"
    assert trainer.scenario.env.name == "Corridor"
    build(trainer.scenario).program.close()
    wrong = proxima.PPOTrainer(made, params={"sise": 3}, **SMALL)
    with pytest.raises(ProximaError, match=r"env.params.*refuses.*its settings: size"):
        build(wrong.scenario)


def test_a_function_that_no_module_has_lives_in_this_process(workdir):
    trainer = proxima.PPOTrainer(lambda: own_envs.Corridor(3), **SMALL)
    assert trainer.scenario.env.backend.startswith("python:environment-")
    assert trainer.scenario.env.name == "environment"


def test_a_run_of_such_an_environment_is_resumed_in_the_process_that_has_it(workdir):
    trainer = proxima.PPOTrainer(own_envs.Corridor(), frequency=1, **SMALL)

    def stop(view):
        if view["step"] >= 256:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trainer.train(stop)
    told = run_process(["resume", "corridor"], workdir)
    assert told.code == 1 and "lives in the program that made it" in told.err
    assert proxima.resume_experiment("corridor").trials[0].environment_steps == 512


def test_copies_are_not_the_instance_itself(workdir):
    env = own_envs.Corridor()
    env.reset(seed=0)
    env.step(1)
    built = build(proxima.PPOTrainer(env, **SMALL).scenario)
    built.program.chunk(built.program.init([0]), np.array([True]), 1)
    built.program.close()
    assert (env.place, env.time) == (1, 1)


def test_names_find_their_backend():
    backends = {
        name: proxima.PPOTrainer(name).scenario.env.backend
        for name in ("CartPole-v1", "Breakout-MinAtar", "FrozenLake-v1", "own_envs:make_corridor")
    }
    assert list(backends.values()) == ["gymnax", "gymnax", "gymnasium", "own_envs:make_corridor"]


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ("CartPoel-v1", "did you mean CartPole-v1"),
        (7, "a int is no environment; give a name, or a gymnasium.Env"),
        (lambda: "nothing", "gave a str, not a gymnasium.Env"),
        (lambda: own_envs.raises(), "could not be made: OSError: no such simulator"),
        (own_envs.Uncopyable(), "cannot be copied (it holds a window)"),
        (own_compiled.Named(), "title is a str.*declare it with eqx.field"),
        ("own_envs:nowhere", "own_envs has no environment nowhere"),
        ("own_envs:no_environment", "is a int, not a gymnasium.Env"),
        ("no_such_module:make", "cannot import no_such_module"),
    ],
)
def test_what_is_no_environment_is_refused_in_words(env, words):
    with pytest.raises(ProximaError, match=words.replace("(", r"\(").replace(")", r"\)")):
        build(proxima.PPOTrainer(env, **SMALL).scenario)


def test_a_vector_of_environments_is_refused_in_words():
    vector = gymnasium.make_vec("CartPole-v1", 2)
    with pytest.raises(ProximaError, match="makes its copies itself"):
        proxima.PPOTrainer(vector)
    vector.close()


def test_worker_processes_need_a_path():
    settings = SMALL | {"num_envs": 2, "max_steps": 128}
    with pytest.raises(ProximaError, match="cannot make an environment that lives in this program"):
        proxima.PPOTrainer(own_envs.Corridor(), workers=2, **settings)
    built = build(proxima.PPOTrainer(own_envs.make_corridor, workers=2, **settings).scenario)
    built.program.chunk(built.program.init([0]), np.array([True]), 1)
    built.program.close()


def test_nets_of_ones_own(workdir):
    keys = jax.random.split(jax.random.key(0))
    net = Net(eqx.nn.Linear(1, 2, key=keys[0]), eqx.nn.Linear(1, 1, key=keys[1]))
    trainer = proxima.PPOTrainer(own_envs.Corridor, network=net, **SMALL)
    assert trainer.scenario.network.kind.startswith("python:Net-")
    trainer.train()
    assert trainer.predict(np.zeros(1)).shape == ()
    build(proxima.PPOTrainer("CartPole-v1", network=make_net, **SMALL).scenario)
    with pytest.raises(ProximaError, match="is no net"):
        proxima.PPOTrainer("CartPole-v1", network=7)


def test_other_trainers_take_the_same():
    small = {
        key: SMALL[key]
        for key in ("eval_episodes", "final_episodes", "film", "progress", "max_episodes")
    }
    ddpg = proxima.DDPGTrainer(
        lambda: gymnasium.make("Pendulum-v1"),
        num_envs=2,
        max_steps=128,
        batch_size=16,
        buffer_size=300,
        warmup_steps=64,
        steps_per_update=4,
        **small,
    )
    build(ddpg.scenario).program.close()
    sac = proxima.SACTrainer("CartPole-v1", max_steps=128, batch_size=16, buffer_size=300, **small)
    assert sac.scenario.algorithm.name == "sac"
    dqn = proxima.DQNTrainer("CartPole-v1", num_envs=2, max_steps=128, n_step=2, **small)
    build(dqn.scenario).program.close()
    pqn = proxima.PQNTrainer("CartPole-v1", num_envs=2, max_steps=128, **small)
    assert pqn.scenario.algorithm.batch_size == 32 * 2
    spo = proxima.SPOTrainer(
        own_compiled.Corridor(),
        num_envs=4,
        max_steps=256,
        particles=4,
        depth=2,
        sequence_length=8,
        batch_size=4,
        buffer_size=320,
        **small,
    )
    build(spo.scenario).program.close()
    with pytest.raises(ProximaError, match="use PPOTrainer"):
        proxima.SPOTrainer(proxima.load("cartpole"))
    with pytest.raises(ProximaError, match="has no environment"):
        proxima.PPOTrainer(proxima.load("movie_critic"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A trained CartPole, its directory, and the trainer."""
    directory = tmp_path_factory.mktemp("trained")
    trainer = proxima.PPOTrainer("CartPole-v1", output_directory=str(directory / "logs"), **SMALL)
    before = repr(trainer)
    trainer.train()
    return directory, trainer, before


def test_predict_takes_one_observation_or_many(trained):
    _, trainer, _ = trained
    one, many = trainer.predict(np.zeros(4)), trainer.predict(np.zeros((3, 4)))
    assert isinstance(one, np.int32) and many.shape == (3,) and many.dtype == np.int32
    env = gymnasium.make("CartPole-v1")
    obs, _ = env.reset(seed=0)
    env.step(trainer.predict(obs))
    with pytest.raises(ProximaError, match="this policy takes"):
        trainer.predict(np.zeros(5))


def test_predictions_are_in_the_environments_own_terms(workdir):
    trainer = proxima.PPOTrainer(known_envs.Masked, **SMALL)
    trainer.train()
    env = known_envs.Masked()
    obs, _ = env.reset(seed=0)
    for _ in range(3):
        action = trainer.predict(obs)
        assert obs["action_mask"][action]
        obs, *_ = env.step(action)
    with pytest.raises(ProximaError, match="takes named arrays: action_mask"):
        trainer.predict(np.zeros(3))


def test_a_policy_is_saved_and_found_again_by_every_name(trained, monkeypatch):
    directory, trainer, _ = trained
    saved = trainer.save(directory / "kept")
    obs = np.random.default_rng(0).normal(size=(6, 4))
    expected = trainer.predict(obs)
    run = directory / "logs" / "cartpole_v1"
    monkeypatch.chdir(directory)
    for reference in (
        saved,
        str(saved),
        run / "trial_0",
        run / "trial_0" / "policy",
        "cartpole_v1",
        trainer.results.run_id,
    ):
        policy = proxima.load_policy(reference)
        np.testing.assert_array_equal(policy(obs), expected)
        np.testing.assert_array_equal(policy.predict(obs), expected)
    assert "ppo on CartPole-v1" in repr(policy) and "(4,)" in repr(policy)
    assert "last checkpoint, step 512" in repr(policy)
    trainer.save(directory / "kept")  # over an older one
    (directory / "other").mkdir()
    with pytest.raises(ProximaError, match="is no policy"):
        trainer.save(directory / "other")
    with pytest.raises(ProximaError, match="no experiment, run or run directory"):
        proxima.load_policy("nowhere")


def test_before_training_there_is_nothing_to_use():
    trainer = proxima.PPOTrainer()
    for use in (trainer.evaluate, lambda: trainer.predict(0), lambda: trainer.save("here")):
        with pytest.raises(ProximaError, match=r"train\(\) first"):
            use()


def test_trainers_and_results_read_well(trained):
    _, trainer, before = trained
    assert before == "Trainer(ppo on CartPole-v1, not trained yet: train())"
    text = repr(trainer)
    assert text.startswith("Trainer(ppo on CartPole-v1, TrialResult(") and len(text) < 250
    assert "greedy" in text and "512 steps" in text
    assert len(repr(trainer.results.evaluation)) < 120
    assert all(len(repr(stage)) < 120 for stage in trainer.results.stages.values())


def test_progress_is_shown_unless_it_is_not_wanted_and_a_summary_is_a_short_table(
    workdir, monkeypatch
):
    text = io.StringIO()
    monkeypatch.setattr(sys, "stderr", text)
    scenario = proxima.PPOTrainer("CartPole-v1", trials=2, **SMALL).scenario
    summary = repr(proxima.run_multiple_experiments(scenario))
    assert "steps" not in text.getvalue()
    proxima.Trainer(scenario).train()
    assert "512 / 512 steps" in text.getvalue() and "\x1b" not in text.getvalue()
    lines = summary.splitlines()
    assert lines[0].startswith("Summary(cartpole_v1 · ppo, run ") and len(summary) < 700
    assert lines[1].split() == ["trial", "steps", "episodes", "greedy", "random", "stopped"]
    assert [line.split()[0] for line in lines[2:4]] == ["0", "1"]
