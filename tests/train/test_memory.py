"""What does not fit into memory is an error before anything is compiled: what is needed, what there is."""

import jax
import jax.numpy as jnp
import pytest
import texts
from tiny import TINY

from proxima import ProximaError, load
from proxima.run.start import make_runnable
from proxima.train import memory
from proxima.train.memory import Need, check_memory, tree_bytes

TOO_LARGE = {
    "network.hidden=[100000, 1000000]": ("network", "TB for weights"),
    "evaluation.final_episodes=2147483647": ("evaluation.final_episodes", "GB for an evaluation"),
    "env.num_envs=2147483584": ("env.num_envs", "GB for environments"),
}


@pytest.mark.parametrize("setting", TOO_LARGE)
def test_more_than_the_machine_has(setting, monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 10**10)
    batch = ["algorithm.batch_size=2147483584"] if "num_envs" in setting else []
    with pytest.raises(ProximaError) as caught:
        make_runnable(load("cartpole", [*TINY, setting, *batch]))
    where, purpose = TOO_LARGE[setting]
    told = str(caught.value)
    assert told.startswith(where) and purpose in told
    assert "needs at least" in told and "there are 10 GB" in told and "smaller" in told


def test_replay_counts(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 10**10)
    with pytest.raises(ProximaError, match=r"algorithm\.buffer_size.* needs at least \d+ GB"):
        make_runnable(load("pendulum_ddpg", ["algorithm.buffer_size=1e9"]))


def test_what_fits_is_no_error(monkeypatch):
    needs = [Need("nets", "network", 600), Need("a rollout", "env", 400)]
    monkeypatch.setattr(memory, "available_bytes", lambda: 1000)
    check_memory(needs)
    monkeypatch.setattr(memory, "available_bytes", lambda: 999)
    with pytest.raises(ProximaError) as caught:
        check_memory(needs)
    assert str(caught.value) == (
        "network: needs at least 1 kB of memory (600 B for nets, 400 B for a rollout), and there are 999 B; "
        "make network smaller"
    )
    monkeypatch.setattr(memory, "available_bytes", lambda: None)
    check_memory(needs)


def test_the_size_of_a_tree_is_that_of_its_arrays():
    shapes = {"a": jax.ShapeDtypeStruct((3, 5), jnp.float32), "b": jnp.zeros(7, jnp.int8)}
    assert tree_bytes(shapes) == 3 * 5 * 4 + 7
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 3))
    assert tree_bytes(keys) == jax.random.key_data(jax.random.split(jax.random.key(0), 3)).nbytes


def test_this_machine_says_how_much_there_is():
    assert memory.available_bytes() is None or memory.available_bytes() > 10**8


def test_a_language_model_counts(workdir, monkeypatch):
    texts.write_texts(workdir)
    monkeypatch.setattr(memory, "available_bytes", lambda: 10**9)
    large = {"model.new.layers": 512, "model.new.width": 1_000_000, "model.new.heads": 2}
    with pytest.raises(ProximaError, match=r"model\.new: needs at least \S+ [TPEZ]B of memory"):
        make_runnable(load("movie_critic", texts.TINY | large))
