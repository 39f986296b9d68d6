"""Texts for many who ask at once: rows of one cache, which a text takes when it begins and leaves at its end.

    begin:  prompt through the model ─► its keys and values into free rows ─► the first token of each
    step:   one more token of every row that is taken

Nobody waits for the end of others' texts. Same seed, same text, whoever is served beside it: a prompt is read
by itself, and all texts of one size are written by one program of a fixed number of rows, whose sums are in
the same order whatever the other rows hold. The numbers drawn are those of `generate`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from proxima.core.errors import ProximaError
from proxima.domains.domain import Piece, TextJob, TextModel, TextRequest
from proxima.domains.language import talk
from proxima.domains.language.generate import Limits, bucket, draw, likeliest
from proxima.domains.language.tokenizer import Tokenizer, left_padded
from proxima.nets import decoding
from proxima.nets.transformer import Decoder, logits_of

SMALLEST = 64  # tokens of the smallest rows; others are twice, four times, … as long
BROKEN = "\ufffd"  # what a decoder writes for bytes that are no whole character yet


class Sampling(NamedTuple):
    """How the next tokens are drawn, (B,) each."""

    uniform: np.ndarray
    temperature: np.ndarray
    greedy: np.ndarray
    top_p: np.ndarray


class Size(NamedTuple):
    """What decides which program writes a text; a request alone decides it."""

    capacity: int  # tokens of a row
    limited: bool  # by top_p, for which the vocabulary is sorted


def drawn(decoder: Decoder, h: Array, sampling: Sampling, limited: bool) -> Array:
    """The next token of every row (B,) after states (B, width)."""
    logits = logits_of(decoder, h) / sampling.temperature[:, None]
    limits = Limits(logits.shape[1], jnp.asarray(sampling.top_p)[:, None])
    allowed = likeliest(logits, limits) if limited else None
    token, _ = draw(logits, jnp.asarray(sampling.uniform), allowed)
    return jnp.where(sampling.greedy, jnp.argmax(logits, axis=1).astype(jnp.int32), token)


@partial(jax.jit, static_argnames=("limited",))
def _first(
    decoder: Decoder, ids: Array, mask: Array, sampling: Sampling, limited: bool
) -> tuple[Array, decoding.Cache]:
    """First tokens (B,), all of the same prompt (1, T), and what the model remembers of it."""
    empty = decoding.empty_cache(decoder, *ids.shape)
    h, cache = decoding.cached_states(decoder, ids, mask, empty)
    rows = len(sampling.uniform)
    return drawn(decoder, jnp.broadcast_to(h[:, -1], (rows, h.shape[2])), sampling, limited), cache


@partial(jax.jit, donate_argnames=("caches",))
def _placed(caches: decoding.LayerCaches, prompt: decoding.Cache, row: int) -> decoding.LayerCaches:
    """The caches with a prompt at the beginning of one row, and nothing else in it."""
    width = prompt.mask.shape[1]

    def put(layers: tuple[Array, ...], new: Array) -> tuple[Array, ...]:
        return tuple(
            jax.lax.dynamic_update_slice(layer, part, (row, 0, 0, 0))
            for layer, part in zip(layers, new, strict=True)
        )

    seen = jnp.zeros(caches.mask.shape[1], bool).at[:width].set(prompt.mask[0])
    return decoding.LayerCaches(
        put(caches.keys, prompt.keys),
        put(caches.values, prompt.values),
        caches.mask.at[row].set(seen),
        caches.length.at[row].set(width),
    )


@partial(jax.jit, static_argnames=("limited",), donate_argnames=("caches",))
def _next(
    decoder: Decoder,
    layers: decoding.Layers,
    caches: decoding.LayerCaches,
    token: Array,
    going: Array,
    sampling: Sampling,
    limited: bool,
) -> tuple[Array, decoding.LayerCaches]:
    """The tokens (B,) that follow these."""
    h, caches = decoding.next_states(decoder, layers, token, going, caches)
    return drawn(decoder, h, sampling, limited), caches


_apart = jax.jit(decoding.apart)


@final
class Wording:
    """The text of tokens that come one by one, as far as it can no longer change."""

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str]) -> None:
        self._tokenizer, self._stop = tokenizer, stop
        self.ids: list[int] = []
        self._given = 0  # characters

    def add(self, token: int, is_last: bool) -> tuple[str, bool]:
        """What is new to the text, and whether a stop has ended it; the stop is left out."""
        self.ids.append(token)
        text = self._tokenizer.decode(self.ids)
        cuts = [at for stop in self._stop if (at := text.find(stop, self._given)) >= 0]
        if cuts:
            text = text[: min(cuts)]
        elif not is_last:
            text = text.rstrip(BROKEN)
            text = text[: len(text) - max((_begun(text, stop) for stop in self._stop), default=0)]
        new, self._given = text[self._given :], max(self._given, len(text))
        return new, bool(cuts)


def _begun(text: str, stop: str) -> int:
    """How many characters at the end of the text may be the beginning of the stop."""
    return next(n for n in range(len(stop) - 1, -1, -1) if text.endswith(stop[:n]))


class Row(NamedTuple):
    """A text being written."""

    job: TextJob
    number: int
    wording: Wording
    uniform: np.ndarray  # for each of its tokens


@final
class Group:
    """Rows of one size; some are taken."""

    def __init__(self, decoder: Decoder, size: Size, rows: int) -> None:
        cache = decoding.empty_cache(decoder, rows, size.capacity)
        whole = decoding.caches_apart(cache)
        self.caches = whole._replace(length=jnp.zeros(rows, jnp.int32))
        self.rows: list[Row | None] = [None] * rows
        self.tokens = np.zeros(rows, np.int32)


@final
class Writer:
    """A model that writes up to so many texts at once."""

    def __init__(self, speaker: talk.Speaker, rows: int) -> None:
        self._speaker, self._rows = speaker, rows
        self._decoder, self._tokenizer = speaker.decoder, speaker.tokenizer
        self._layers = _apart(self._decoder, None)
        self._groups: dict[Size, Group] = {}

    def read(self, request: TextRequest) -> TextJob:
        """The request in tokens; refused where its texts do not fit the model."""
        prompt = self._prompt(request)
        room = self._decoder.config.context - len(prompt)
        if not prompt:
            raise ProximaError("the prompt is empty; give some words to go on from")
        if room < 1 or (request.new_tokens or 1) > room:
            fitting = f", or ask for at most {room} more" if room > 0 else ""
            raise ProximaError(
                f"the prompt has {len(prompt)} tokens, and with {request.new_tokens or 1} more it is longer "
                f"than the model's context of {self._decoder.config.context}; shorten it{fitting}"
            )
        if request.texts > self._rows:
            raise ProximaError(
                f"{request.texts} texts of one prompt, and at most {self._rows} are written"
            )
        return TextJob(
            request, prompt, request.new_tokens or min(self._speaker.settings.usual, room)
        )

    def begin(self, job: TextJob) -> list[Piece] | None:
        """The first tokens of the job's texts; None where too few rows are free."""
        if sum(row is not None for group in self._groups.values() for row in group.rows) > (
            self._rows - job.request.texts
        ):
            return None
        ids, mask = left_padded([job.prompt], self._tokenizer.pad_id, bucket(len(job.prompt)))
        size = Size(bucket(max(SMALLEST, ids.shape[1] + job.new_tokens)), job.request.top_p < 1)
        group = self._group(size)
        key = jax.random.key(job.request.seed)
        stop = job.request.stop
        rows = [
            Row(job, n, Wording(self._tokenizer, stop), _uniform(key, n, job.new_tokens))
            for n in range(job.request.texts)
        ]
        taken: list[Row | None] = [*rows, *[None] * (self._rows - len(rows))]
        tokens, prompt = _first(
            self._decoder, ids, mask, self._sampling(taken), limited=size.limited
        )
        pieces = []
        for row, token in zip(rows, np.asarray(tokens).tolist(), strict=False):
            at = group.rows.index(None)
            group.caches = _placed(group.caches, prompt, at)
            pieces.append(self._take(group, at, row, token))
        return pieces

    def step(self) -> list[Piece]:
        """One more token of every text that is being written."""
        pieces = []
        for size, group in list(self._groups.items()):
            going = np.asarray([row is not None for row in group.rows])
            if not going.any():
                continue
            sampling = self._sampling(group.rows)
            tokens, group.caches = _next(
                self._decoder,
                self._layers,
                group.caches,
                group.tokens.copy(),  # JAX may read it later, when it has changed
                going,
                sampling,
                limited=size.limited,
            )
            for at, token in enumerate(np.asarray(tokens).tolist()):
                row = group.rows[at]
                if row is not None:
                    pieces.append(self._take(group, at, row, token))
        return pieces

    def drop(self, job: TextJob) -> None:
        """Give up the job's texts."""
        for group in self._groups.values():
            group.rows = [None if row is not None and row.job is job else row for row in group.rows]

    def warm_up(self) -> None:
        """Compiles what a short prompt needs; longer ones are compiled when they first come."""
        job = self.read(TextRequest([0], 0, new_tokens=min(2, self._decoder.config.context - 1)))
        self.begin(job)
        self.step()
        self.drop(job)

    def _prompt(self, request: TextRequest) -> list[int]:
        if request.turns:
            return self._tokenizer.encode([conversation(self._speaker, request.turns)])[0]
        if isinstance(request.prompt, str):
            return self._tokenizer.encode([request.prompt])[0]
        ids, known = list(request.prompt), self._tokenizer.size
        if ids and not 0 <= min(ids) <= max(ids) < known:
            raise ProximaError(f"the prompt's ids must be from 0 to {known - 1}")
        return ids

    def _group(self, size: Size) -> Group:
        if size not in self._groups:
            # the caches of sizes that nobody uses make room
            self._groups = {
                known: group for known, group in self._groups.items() if any(group.rows)
            }
            self._groups[size] = Group(self._decoder, size, self._rows)
        return self._groups[size]

    def _sampling(self, rows: Sequence[Row | None]) -> Sampling:
        usual = self._speaker.settings.temperature

        def column(of: Callable[[Row], float], kind: type) -> np.ndarray:
            return np.asarray([of(row) if row is not None else 1 for row in rows], kind)

        def temperature(row: Row) -> float:
            given = row.job.request.temperature
            return usual if given is None else given or 1.0  # greedy at 0

        return Sampling(
            column(lambda row: row.uniform[len(row.wording.ids)], np.float32),
            column(temperature, np.float32),
            column(lambda row: row.job.request.temperature == 0, bool),
            column(lambda row: row.job.request.top_p, np.float32),
        )

    def _take(self, group: Group, at: int, row: Row, token: int) -> Piece:
        """What the token adds to its text; the row is free where that ends."""
        has_ended = token in self._tokenizer.eos_ids
        is_full = len(row.wording.ids) + 1 == row.job.new_tokens
        text, is_stopped = row.wording.add(token, has_ended or is_full)
        finish = "stop" if has_ended or is_stopped else "length" if is_full else None
        group.rows[at] = row if finish is None else None
        group.tokens[at] = token
        return Piece(row.job, row.number, text, len(row.wording.ids), finish)


def _uniform(key: Array, number: int, count: int) -> np.ndarray:
    """The numbers that `generate` draws the tokens of its row of that number by, and perhaps more."""
    # As many as a power of two, or each count would be a program: the first ones do not depend on it.
    return np.asarray(jax.random.uniform(jax.random.fold_in(key, number), (bucket(count),)))


def conversation(speaker: talk.Speaker, turns: Sequence[Mapping[str, str]]) -> str:
    """The turns in the model's chat template; without one, their texts in lines, written as in training."""
    if speaker.chats:
        return speaker.tokenizer.chat(turns, now=speaker.settings.now)
    return talk.written(speaker, "\n".join(turn["content"] for turn in turns))


def load_text_model(
    reference: str, output_directory: str, trial: int | None, rows: int
) -> TextModel:
    """The model of a run or a folder, ready to write."""
    found = talk.find_model(reference, output_directory, trial)
    speaker = talk.load(found)
    writer = Writer(speaker, rows)
    writer.warm_up()
    is_folder = found.folder == Path(reference)  # and no run's
    name = Path(reference).resolve().name if is_folder else found.name.partition(",")[0]
    config = speaker.decoder.config
    about = {
        **{"model": found.name, "context": config.context, "vocabulary": config.vocabulary},
        **{"chat_template": speaker.chats, "temperature": speaker.settings.temperature},
    }
    return TextModel(name, about, rows, writer.read, writer.begin, writer.step, writer.drop)
