"""A model over several devices says and learns what it does on one."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from families import SHAPES, decoder_of, rows_of

from proxima.core.errors import ProximaError
from proxima.domains.language.config import MeshConfig
from proxima.domains.language.mesh import lay_out, lay_out_rows
from proxima.domains.language.model import Part, fresh_part, score_completions
from proxima.nets.lora import LoraConfig
from proxima.nets.transformer import new_decoder

LORA = LoraConfig(rank=2, targets=("q", "k", "v", "o", "up", "down"))


def loss(part, base, prompts, completions):
    scored = score_completions(base, part, prompts, completions, 1.0)
    return jnp.mean(scored.log_probs), scored.log_probs


slopes = jax.jit(jax.value_and_grad(loss, has_aux=True))


@pytest.mark.parametrize(("mesh", "lora"), [((2, 2), LORA), ((2, 2), None), ((4, 1), None)])
def test_the_same_on_several_devices(mesh, lora):
    base = decoder_of("qwen2")
    part = fresh_part(jax.random.key(0), base, lora)
    part = jax.tree.map(lambda leaf: leaf + 0.05, part)
    rows = rows_of([5, 3, 4, 1], 5), rows_of([4] * 4, 4, seed=1)
    (_, log_probs), gradient = slopes(part, base, *rows)
    config = MeshConfig(data=mesh[0], tensor=mesh[1])
    laid = lay_out(part, config), lay_out(base, config), *lay_out_rows(rows, config)
    (_, spread), gradient_spread = slopes(*laid)
    assert len(spread.sharding.device_set) == mesh[0] * mesh[1]
    np.testing.assert_allclose(spread, log_probs, atol=2e-5)
    for one, other in zip(jax.tree.leaves(gradient), jax.tree.leaves(gradient_spread), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-6)


def test_each_device_holds_its_share():
    config = MeshConfig(data=2, tensor=2)
    part = Part(decoder=decoder_of("llama"), adapters=None)
    laid = lay_out(part, config).decoder
    for leaf, axis in (
        (laid.embedding, 0),
        (laid.head, 1),
        (laid.layers.q.weight, 2),
        (laid.layers.o.weight, 1),
        (laid.layers.up.weight, 2),
        (laid.layers.down.weight, 1),
    ):
        shard = leaf.addressable_shards[0].data.shape
        assert shard[axis] == leaf.shape[axis] // 2
        assert shard[:axis] + shard[axis + 1 :] == leaf.shape[:axis] + leaf.shape[axis + 1 :]
    assert laid.norm.scale.sharding.is_fully_replicated


def test_one_device_is_left_alone():
    decoder, rows = decoder_of("llama"), rows_of([3], 4)
    assert lay_out(decoder, MeshConfig()) is decoder
    assert lay_out_rows(rows, MeshConfig()) is rows


def test_meshes_that_do_not_fit():
    decoder = decoder_of("llama")
    with pytest.raises(ProximaError, match="4 × 2 devices are asked for, 4 are here"):
        lay_out(decoder, MeshConfig(data=4, tensor=2))
    with pytest.raises(ProximaError, match="2 key-value heads cannot be divided into 4"):
        lay_out(decoder, MeshConfig(tensor=4))
    with pytest.raises(ProximaError, match="a batch of 3 cannot be divided into 2"):
        lay_out_rows(rows_of([3, 3, 3], 4), MeshConfig(data=2))


def test_an_odd_vocabulary_stays_whole():
    decoder = new_decoder(jax.random.key(0), replace(SHAPES["llama3"], vocabulary=301))
    laid = lay_out(decoder, MeshConfig(tensor=2))
    assert laid.embedding.sharding.is_fully_replicated
