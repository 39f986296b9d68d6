"""Generation: prompts in, sampled completions out, as one compiled loop over a cache of keys and values.

    h = prompts through the model;  token ~ softmax(logits(h) / T)
    while some row has not ended:  h = token through the model;  token ~ softmax(logits(h) / T)

A row ends at any of the EOS ids, looked for among what was generated only, or at the limit, and then
it is told as cut; no EOS is ever put there. In training and evaluation sampling is plain: what the policy
is trained on must be what it says. Whoever reads its texts may leave out unlikely tokens (top-k, top-p).
Prompts are padded on the left to one of a few widths, so that few programs are compiled. Left out on
purpose: beams, penalties, several models at once.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from proxima.core.errors import ProximaError
from proxima.domains.language.model import Part
from proxima.domains.language.samples import Rows, Samples
from proxima.domains.language.tokenizer import Ids, Tokenizer, left_padded, unpadded
from proxima.nets import decoding
from proxima.nets.transformer import Decoder, logits_of, merge
from proxima.train.together import gathered

NARROWEST = 8  # the smallest width of prompts; the others are twice, four times, … as wide


@final
@dataclass(frozen=True, eq=False)
class Generator:
    """Completions of prompts by any part over one base, at one temperature."""

    base: Decoder
    tokenizer: Tokenizer
    new_tokens: int
    temperature: float = 1.0
    greedy: bool = False  # the most probable token each time; log-probabilities stay those at T
    # Draw among the so many likeliest tokens only; log-probabilities as above.
    top_k: int | None = None
    # Draw among the likeliest tokens that have this probability together.
    top_p: float | None = None

    def __post_init__(self) -> None:
        tokens, known = self.tokenizer.size, self.base.config.vocabulary
        if tokens > known:  # there are ids that the model has no embedding for
            raise ProximaError(
                f"the tokenizer has {tokens} tokens and the model {known}; take the tokenizer that "
                "belongs to the model"
            )
        if self.new_tokens < 1:
            raise ProximaError(f"new_tokens: {self.new_tokens}, and at least 1 is needed")
        if not 0 < self.temperature < math.inf:
            raise ProximaError(
                f"temperature: {self.temperature:g} must be above 0; greedy takes the likeliest token"
            )
        check_limits(self.top_k, self.top_p)

    def generate(
        self, part: Part, prompts: Rows | Sequence[str] | Sequence[Ids], key: Array
    ) -> Samples:
        """What the part says after the prompts: rows, lists of ids, or texts."""
        rows = prompts if isinstance(prompts, Rows) else self.rows(prompts)
        check_rows(rows, self.base, self.new_tokens)
        return compiled_completions(
            self.base if part.decoder is None else part.decoder,
            part.adapters,
            rows,
            key,
            self.temperature,
            jnp.asarray(self.tokenizer.eos_ids, jnp.int32),
            self.tokenizer.pad_id,
            new_tokens=self.new_tokens,
            greedy=self.greedy,
            limits=limits_of(self.top_k, self.top_p, self.base.config.vocabulary),
        )

    def rows(self, prompts: Sequence[str] | Sequence[Ids]) -> Rows:
        """Prompts as rows padded on the left to the width of a bucket."""
        lists = self.tokenizer.ids(prompts)
        check_prompts(lists, self.base, self.new_tokens)
        width = bucket(max(len(ids) for ids in lists))
        return left_padded(lists, self.tokenizer.pad_id, width)

    def texts(self, samples: Samples) -> list[str]:
        """The completions as text, special tokens left out."""
        return [self.tokenizer.decode(ids) for ids in unpadded(samples.completions)]


def bucket(length: int, longest: int | None = None) -> int:
    """The width for prompts of so many tokens: 8, 16, 32, …, but no wider than the longest of all."""
    width = NARROWEST
    while width < length:
        width *= 2
    return width if longest is None else min(width, max(longest, length))


def check_prompts(prompts: Sequence[Ids], base: Decoder, new_tokens: int) -> None:
    """Refuses prompts that are empty, leave no room for a completion or have ids that the model has not."""
    if not prompts:
        raise ProximaError("prompts: there are none; give at least one")
    vocabulary = base.config.vocabulary
    for row, ids in enumerate(prompts):
        what, numbers = f"prompts[{row}]", np.asarray(ids)
        if not len(ids):
            raise ProximaError(f"{what}: is empty; give it at least one token")
        # beyond its ends, an embedding gives any row, and no error
        if numbers.dtype.kind not in "iu" or not 0 <= numbers.min() <= numbers.max() < vocabulary:
            raise ProximaError(
                f"{what}: expected ids from 0 to {vocabulary - 1}, those of the model's vocabulary"
            )
        check_room(what, len(ids), new_tokens, base.config.context)


def check_rows(prompts: Rows, base: Decoder, new_tokens: int) -> None:
    """Refuses rows with a prompt that leaves no room for a completion."""
    if prompts.ids.shape[1] + new_tokens <= base.config.context:
        return  # whatever the masks say
    for row, count in enumerate(np.asarray(gathered(prompts.mask)).sum(axis=1).tolist()):
        check_room(f"prompts[{row}]", count, new_tokens, base.config.context)


def check_room(what: str, count: int, new_tokens: int, context: int) -> None:
    """Refuses a prompt of `count` tokens after which so many new ones do not fit the context."""
    room = context - count
    if new_tokens <= room:
        return
    remedy = f", or ask for fewer (new_tokens={room}, --new-tokens {room})" if room > 0 else ""
    new = "1 new one" if new_tokens == 1 else f"{new_tokens} new ones"
    raise ProximaError(
        f"{what}: has {count} tokens, and with {new} it is longer than the model's context of {context}; "
        f"shorten it{remedy}"
    )


class Limits(NamedTuple):
    """Which tokens are drawn from at all; scalars."""

    top_k: Array | int
    top_p: Array | float


def check_limits(
    top_k: int | None, top_p: float | None, names: tuple[str, str] = ("top_k", "top_p")
) -> None:
    """Refuses limits that leave no token, or that mean nothing; `names` are what the user calls them."""
    if top_k is not None and top_k < 1:
        raise ProximaError(f"{names[0]}: {top_k}, and at least 1 token is needed")
    if top_p is not None and not 0 < top_p <= 1:
        raise ProximaError(
            f"{names[1]}: {top_p:g} must be above 0 and at most 1, which keeps all tokens"
        )


def limits_of(top_k: int | None, top_p: float | None, vocabulary: int) -> Limits | None:
    """The limits as numbers of a compiled program; None where every token may be drawn."""
    if top_k is None and top_p is None:
        return None
    most = vocabulary if top_k is None else min(top_k, vocabulary)
    return Limits(jnp.int32(most), jnp.float32(1.0 if top_p is None else top_p))


class _Loop(NamedTuple):
    """What goes round while tokens are drawn; ids, masks and log-probabilities (N, B)."""

    drawn: Array  # tokens so far
    token: Array  # (B,) the last ones
    going: Array  # (B,) bool: no EOS yet
    caches: decoding.LayerCaches
    ids: Array
    mask: Array
    log_probs: Array


def completions_of(
    decoder: Decoder,
    adapters,
    prompts: Rows,
    key: Array,
    temperature: Array | float,
    eos_ids: Array,
    pad_id: Array | int,
    new_tokens: int,
    greedy: bool = False,
    limits: Limits | None = None,
) -> Samples:
    """Completions of the prompts; those of a row depend on the key, its number and its prompt alone."""
    rows, width = prompts.ids.shape
    if decoder.embedding.dtype == jnp.float32:  # in bfloat16, merging would round the changes away
        decoder, adapters = merge(decoder, adapters), None
    row_keys = jax.vmap(lambda row: jax.random.fold_in(key, row))(jnp.arange(rows))
    uniform = jax.vmap(lambda row_key: jax.random.uniform(row_key, (new_tokens,)))(row_keys).T

    def write(loop: _Loop, h: Array) -> _Loop:
        logits = logits_of(decoder, h) / temperature
        at = loop.drawn
        allowed = None if limits is None else likeliest(logits, limits)
        token, log_prob = draw(logits, None if greedy else uniform[at], allowed)
        token = jnp.where(loop.going, token, pad_id)
        ended = jnp.any(token[:, None] == eos_ids[None], axis=1)
        return _Loop(
            at + 1,
            token,
            loop.going & ~ended,
            loop.caches,
            loop.ids.at[at].set(token),
            loop.mask.at[at].set(loop.going),
            loop.log_probs.at[at].set(jnp.where(loop.going, log_prob, 0.0)),
        )

    def step(loop: _Loop) -> _Loop:
        h, caches = decoding.next_states(decoder, layers, loop.token, loop.going, loop.caches)
        return write(loop._replace(caches=caches), h)

    # The last token of all is never put through the model: nothing is asked after it.
    empty = decoding.empty_cache(decoder, rows, width + new_tokens - 1)
    h, cache = decoding.cached_states(decoder, prompts.ids, prompts.mask, empty, adapters)
    layers = decoding.apart(decoder, adapters)
    first = _Loop(
        drawn=jnp.zeros((), jnp.int32),
        token=jnp.zeros(rows, jnp.int32),
        going=jnp.ones(rows, bool),
        caches=decoding.caches_apart(cache),
        ids=jnp.full((new_tokens, rows), pad_id, jnp.int32),
        mask=jnp.zeros((new_tokens, rows), bool),
        log_probs=jnp.zeros((new_tokens, rows)),
    )
    last = jax.lax.while_loop(
        lambda loop: (loop.drawn < new_tokens) & jnp.any(loop.going), step, write(first, h[:, -1])
    )
    completions = Rows(last.ids.T, last.mask.T)
    return Samples(prompts, completions, last.log_probs.T, ~last.going)


compiled_completions = partial(jax.jit, static_argnames=("new_tokens", "greedy"))(completions_of)


def likeliest(logits: Array, limits: Limits) -> Array:
    """Which tokens (B, vocabulary) may be drawn: the top_k likeliest, of those as few as have top_p together.

    Tokens as likely as the last one that is kept are kept too, so that the order of ids decides nothing.
    top_p counts probabilities among the top_k, as Hugging Face's libraries do.
    """
    descending = -jnp.sort(-logits, axis=1)
    last = jnp.take_along_axis(descending, jnp.full((len(logits), 1), limits.top_k - 1), axis=1)
    weights = jnp.where(descending >= last, jnp.exp(descending - descending[:, :1]), 0.0)
    sums = jnp.cumsum(weights, axis=1)
    needed = sums - weights < limits.top_p * sums[:, -1:]
    count = jnp.maximum(jnp.sum(needed, axis=1, keepdims=True), 1)
    smallest = jnp.take_along_axis(descending, count - 1, axis=1)
    # a rounded sum may be the whole before its end: all is all
    return logits >= jnp.where(limits.top_p >= 1.0, last, smallest)


def draw(logits: Array, uniform: Array | None, allowed: Array | None = None) -> tuple[Array, Array]:
    """Tokens (B,) drawn from softmax(logits) by uniform numbers, the likeliest without; log-probs.

    The inverse of the distribution function, found in two steps: in which block of tokens, then which
    of the block. One random number per token instead of one per word of the vocabulary. Where `allowed`
    is False nothing is drawn; log-probabilities are those among all tokens nevertheless.
    """
    rows, vocabulary = logits.shape
    size = 1 << (vocabulary.bit_length() // 2)  # near the root: as many blocks as tokens in each
    top = jnp.max(logits, axis=1, keepdims=True)

    def in_blocks(weights: Array) -> tuple[Array, Array]:
        padded = jnp.pad(weights, ((0, 0), (0, -vocabulary % size)))
        blocks = padded.reshape(rows, -1, size)
        return blocks, jnp.cumsum(jnp.sum(blocks, axis=2), axis=1)

    weights = jnp.exp(logits - top)
    blocks, sums = in_blocks(weights)
    total = sums[:, -1]
    if allowed is not None:
        blocks, sums = in_blocks(jnp.where(allowed, weights, 0.0))
    if uniform is None:
        token = jnp.argmax(logits, axis=1)
    else:
        block, rest = _inverse(sums, uniform * sums[:, -1])
        inside = jnp.take_along_axis(blocks, block[:, None, None], axis=1)[:, 0]
        token = block * size + _inverse(jnp.cumsum(inside, axis=1), rest)[0]
    token = token.astype(jnp.int32)
    chosen = jnp.take_along_axis(logits, token[:, None], axis=1)
    return token, (chosen - top)[:, 0] - jnp.log(total)


def _inverse(sums: Array, goal: Array) -> tuple[Array, Array]:
    """Where running sums (B, K) first exceed the goal (B,), and how far the goal is beyond the sum before.

    Rounding may put the goal at the last sum or beyond; just below it, what is found has a weight.
    """
    goal = jnp.minimum(goal, jnp.nextafter(sums[:, -1], 0.0))
    index = jnp.sum(sums <= goal[:, None], axis=1)
    before = jnp.take_along_axis(sums, jnp.maximum(index - 1, 0)[:, None], axis=1)[:, 0]
    return index, jnp.where(index > 0, goal - before, goal)
