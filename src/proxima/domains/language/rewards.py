"""Rewards: what completions are worth, less the price of leaving the reference.

    score   a reward model's opinion, or a Python function's, of the whole completion; or a number per token
    score ← normalised, clipped, if asked; less a penalty where the completion did not end by itself
    r_t   = [t is the last valid token] · score − β (log π(t) − log π_ref(t))

so that Σ_t r_t = score − β Σ_t KL_t with the estimator k1. A score is what was given: 0.75 stays 0.75
unless the settings say otherwise. A reward model may read in another tokenizer than the policy writes.
"""

import inspect
import math
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import partial
from types import FunctionType
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import DTypeLike

from proxima.core.errors import ProximaError
from proxima.core.functions import function_at
from proxima.core.losses import sampled_kl
from proxima.core.normalize import Moments, add_samples, first_moments, normalize
from proxima.domains.language.config import RewardConfig
from proxima.domains.language.generate import bucket
from proxima.domains.language.model import joined
from proxima.domains.language.reward_model import RewardModel, scores
from proxima.domains.language.samples import Rows, Samples
from proxima.domains.language.tokenizer import Tokenizer, left_padded, unpadded

RewardFunction = Callable[[list[str], list[str]], Any]  # prompts, completions → numbers


class Rewards(NamedTuple):
    """What a batch of completions earned."""

    rewards: Array  # (B, N), float32, 0 on pads
    scores: Array  # (B,) of the whole, penalty taken, KL not
    kl: Array  # (B, N) log π − log π_ref
    moments: Moments  # of the scores, or with a number per token of those; after this batch


class Shaping(NamedTuple):
    """The numbers of the settings."""

    clip: Array | float  # infinite: none
    missing_eos_penalty: Array | float


def shaping(config: RewardConfig) -> Shaping:
    """The numbers of the settings, ready for a compiled program."""
    clip = float("inf") if config.clip is None else config.clip
    return Shaping(jnp.float32(clip), jnp.float32(config.missing_eos_penalty))


def last_tokens(mask: Array) -> Array:
    """True at the last valid token of each row (B, N)."""
    following = jnp.pad(mask[:, 1:], ((0, 0), (0, 1)))
    return mask & ~following


def rewards_of(
    given: Array,
    samples: Samples,
    kl: Array,
    beta: Array | float,
    moments: Moments,
    numbers: Shaping,
    normalized: bool,
) -> Rewards:
    """The reward of each token; `given` is one score per completion (B,) or one per token (B, N)."""
    mask, ends = samples.completions.mask, last_tokens(samples.completions.mask)
    given = given.astype(jnp.float32)
    if normalized:
        counted = mask if given.ndim == 2 else jnp.ones(given.shape, bool)
        moments = add_samples(moments, given, counted)
        given = normalize(moments, given)
    given = jnp.clip(given, -numbers.clip, numbers.clip)
    whole = given if given.ndim == 2 else jnp.broadcast_to(given[:, None], mask.shape)
    earned = jnp.where(mask if given.ndim == 2 else ends, whole, 0.0)
    missing = ends & ~samples.ended[:, None]
    earned = earned - jnp.where(missing, numbers.missing_eos_penalty, 0.0)
    rewards = earned - jnp.where(mask, beta * kl, 0.0)
    return Rewards(rewards, jnp.sum(earned, axis=1), kl, moments)


_compiled_rewards = partial(jax.jit, static_argnames="normalized")(rewards_of)
_compiled_scores = jax.jit(scores)


@final
class RewardComputer:
    """One interface for reward models, functions of whole completions and functions of tokens."""

    def __init__(
        self,
        config: RewardConfig,
        model: RewardModel | None = None,
        function: RewardFunction | str | None = None,
        tokenizer: Tokenizer | None = None,
        model_tokenizer: Tokenizer | None = None,
    ) -> None:
        """`tokenizer` is the policy's, needed where texts are; the model's only where it is another one."""
        self.config, self.model = config, model
        self.tokenizer, self.model_tokenizer = tokenizer, model_tokenizer
        function = function or config.function
        self.name = repr(function)
        if isinstance(function, str):
            self.name, function = function, function_at(function, "reward.function")
        elif isinstance(function, FunctionType):
            self.name = f"{function.__module__}.{function.__qualname__}"
        self.function = function
        self._check()

    @property
    def model_of_ids(self) -> RewardModel | None:
        """The reward model where it reads the policy's own ids, so that no text is made."""
        reads_ids = self.config.kind == "model" and self.model_tokenizer is None
        return self.model if reads_ids else None

    def scores(self, samples: Samples) -> Array:
        """What each completion (B,) is worth, as it was given: nothing normalised, nothing taken off."""
        given = self.given(samples)
        return given if given.ndim == 1 else jnp.sum(given, axis=1)

    def compute_rewards(
        self,
        samples: Samples,
        log_probs: Array,
        reference_log_probs: Array,
        beta: float = 0.0,
        moments: Moments | None = None,
    ) -> Rewards:
        """The reward of each token, with the price of KL; `moments` are those of the batches before."""
        return _compiled_rewards(
            self.given(samples),
            samples,
            sampled_kl(log_probs, reference_log_probs),
            beta,
            first_moments(jnp.zeros(())) if moments is None else moments,
            shaping(self.config),
            normalized=self.config.normalize,
        )

    def given(self, samples: Samples) -> Array:
        """What the model or function says: (B,), or one number per token (B, N), 0 on pads."""
        if self.config.kind == "function":
            return self._of_function(samples)
        assert self.model is not None
        if self.model_tokenizer is None:
            rows = joined(samples.prompts, samples.completions)
            self._check_lengths(np.asarray(rows.mask).sum(axis=1).tolist())
        else:
            rows = self._read_again(samples, self.model_tokenizer)
        return _compiled_scores(self.model, rows)

    def _of_function(self, samples: Samples) -> Array:
        assert self.function is not None and self.tokenizer is not None
        completions = unpadded(samples.completions)
        prompts = [self.tokenizer.decode(ids) for ids in unpadded(samples.prompts)]
        texts = [self.tokenizer.decode(ids) for ids in completions]
        where, width = f"reward.function {self.name}", samples.log_probs.shape[1]
        answer = asked(self.function, where, prompts, texts)
        lengths = [len(ids) for ids in completions] if self.config.per_token else None
        return jnp.asarray(checked(where, answer, texts, "completion", lengths, width))

    def _read_again(self, samples: Samples, tokenizer: Tokenizer) -> Rows:
        """The texts in the reward model's tokenizer; an end that was written is its own EOS there."""
        assert self.tokenizer is not None and self.model is not None
        written = unpadded(joined(samples.prompts, samples.completions))
        texts = [self.tokenizer.decode(ids) for ids in written]
        ends = [[tokenizer.eos_id] if ended else [] for ended in np.asarray(samples.ended)]
        lists = [[*ids, *end] for ids, end in zip(tokenizer.encode(texts), ends, strict=True)]
        self._check_lengths(list(map(len, lists)))
        return left_padded(lists, tokenizer.pad_id, bucket(max(map(len, lists))))

    def _check_lengths(self, lengths: Sequence[int]) -> None:
        assert self.model is not None
        context = self.model.base.config.context
        for row, length in enumerate(lengths):
            if length > context:
                raise ProximaError(
                    f"reward: the text of row {row} has {length} tokens for the reward model, more than "
                    f"its context of {context}; ask for fewer new_tokens, or take another reward model"
                )

    def _check(self) -> None:
        config = self.config
        if config.kind == "model" and self.model is None:
            raise ProximaError(
                "reward.kind is model, and there is none; run the stage reward_model, or set reward.path"
            )
        if config.kind == "model" and config.per_token:
            raise ProximaError("reward.per_token: a reward model scores wholes; set it to false")
        if config.kind == "function" and self.function is None:
            raise ProximaError(
                "reward.kind is function, and reward.function is not set; give its dotted path"
            )
        if config.kind == "function" and self.function is not None:
            check_takes(self.function, f"reward.function {self.name}", "two lists", [], [])
        reads_texts = config.kind == "function" or self.model_tokenizer is not None
        if reads_texts and self.tokenizer is None:
            raise ProximaError("reward: texts are needed, and so is the policy's tokenizer")


def check_takes(function: Callable[..., Any], where: str, what: str, *columns: list[str]) -> None:
    """Refuses a function of the user's that cannot be called with so many lists of texts."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions written in C do not say
        return
    try:
        signature.bind(*columns)
    except TypeError as failure:
        raise ProximaError(
            f"{where}: is called with {what} of texts, and takes {signature} ({failure})"
        ) from None


def asked(function: Callable[..., Any], where: str, *columns: list[str]) -> Any:
    """What a function of the user's answers to lists of texts; one that raises is told with its row."""
    try:
        answer = function(*map(list, columns))
        # an iterator is the function's own code still
        return list(answer) if isinstance(answer, Iterator) else answer
    except ProximaError:
        raise
    except Exception as failure:
        row = _failing_row(function, columns)
        raise ProximaError(f"{where}{row}: raised {type(failure).__name__}: {failure}") from failure


def _failing_row(function: Callable[..., Any], columns: Sequence[list[str]]) -> str:
    """The first row at which the function raises by itself, in words; nothing where none does."""
    for row, texts in enumerate(zip(*columns, strict=True)):
        try:
            answer = function(*([text] for text in texts))
            if isinstance(answer, Iterator):
                list(answer)
        except Exception:  # any: what it raised is reported already, here only where
            return f", row {row} ({texts[-1]!r})"
    return ""


def checked(
    where: str,
    answer: Any,
    texts: Sequence[str],
    what: str,
    lengths: list[int] | None = None,
    width: int = 1,
    dtype: DTypeLike = np.float32,
) -> np.ndarray:
    """A function's numbers as an array, (B,) or with lengths (B, width); what is wrong, in words."""
    table = np.zeros((len(texts), 1 if lengths is None else width), dtype)
    most = float(np.finfo(dtype).max)
    for row, value in enumerate(_listed(where, answer, len(texts), what)):
        here = f"{where}, row {row}"
        values = [value] if lengths is None else _listed(here, value, lengths[row], "token")
        numbers = [_number(here, value) for value in values]
        for number in numbers:
            if not abs(number) <= most:
                raise ProximaError(
                    f"{here}: returned {number} for {texts[row]!r}; return finite numbers"
                )
        table[row, : len(numbers)] = numbers
    return table[:, 0] if lengths is None else table


def _listed(where: str, answer: Any, count: int, what: str) -> Sequence[Any]:
    try:
        # letters, keys and sets are in no order of rows
        values = None if isinstance(answer, str | bytes | Mapping | Set) else list(answer)
    except Exception:  # whatever a type of the user's own raises
        values = None
    if values is None:
        raise ProximaError(
            f"{where}: returned {type(answer).__name__}; return one number per {what}"
        )
    if len(values) != count:
        raise ProximaError(
            f"{where}: returned {len(values)} numbers for {count} {what}s; return one per {what}"
        )
    return values


def _number(where: str, value: Any) -> float:
    """The number that a value is; a text of digits is none, nor is a list of one."""
    try:
        if not isinstance(value, str | bytes) and np.ndim(value) == 0:
            return float(value)
    except OverflowError:
        return math.inf
    except Exception:  # whatever a type of the user's own raises
        pass
    raise ProximaError(f"{where}: returned {reprlib.repr(value)}; return a number")
