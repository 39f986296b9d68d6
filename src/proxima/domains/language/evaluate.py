"""How good a policy is: held-out prompts, the same random numbers every time, and a judge of its own.

    completions = the policy's own, at the sampling temperature
    reward      the plain score: no price of KL, no penalty for a missing end
    judge       an independent opinion of the completion alone; the prompt is not the policy's doing
    kl          Σ over a completion's tokens of log π − log π_ref (k1), in nats, then the mean
    distinct_n  different n-grams over all n-grams of all completions, the ends left out

Prompts and keys are fixed, so that two evaluations differ by the policy alone, and prompts can be
paired: before and after, trial and trial. Evaluation changes nothing. When to worry is in `alarms.py`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from proxima.core.errors import ProximaError
from proxima.core.seeds import evaluation_keys
from proxima.domains.language.config import LanguageEvaluationConfig
from proxima.domains.language.experience import Pair, TokenAttributor
from proxima.domains.language.generate import Generator
from proxima.domains.language.judge import Judge
from proxima.domains.language.model import REFERENCE, Part, score_completions
from proxima.domains.language.rewards import RewardComputer
from proxima.domains.language.samples import Experience, Rows, Samples
from proxima.domains.language.tokenizer import Tokenizer, unpadded
from proxima.nets.transformer import Decoder

Numbers = NDArray[np.float64]
MOST_LOGITS = 2**26  # numbers of one pass over completions; more rows are scored in several


class Measured(NamedTuple):
    """What a policy did on the held-out prompts; one number per prompt unless said otherwise."""

    samples: Samples
    texts: list[str]  # the completions, for people
    log_probs: Numbers  # (B, N), 0 on pads
    reference_log_probs: Numbers  # (B, N)
    reward: Numbers
    judge: Numbers | None
    kl: Numbers
    entropy: Numbers  # mean over the completion's tokens
    length: Numbers  # tokens, an end among them
    ended: Numbers  # 1.0 or 0.0

    def by_prompt(self) -> dict[str, list[float]]:
        """The figures of each prompt, to be paired with another policy's."""
        names = ("reward", "judge", "kl", "entropy", "length", "ended")
        known = {name: getattr(self, name) for name in names}
        return {name: each.tolist() for name, each in known.items() if each is not None}


@final
class Evaluator:
    """Measures policies on fixed held-out prompts."""

    def __init__(
        self,
        generator: Generator,
        reward: RewardComputer,
        judge: Judge | None,
        config: LanguageEvaluationConfig,
        prompts: Sequence[Sequence[int]],
        tokenizer: Tokenizer,
        seed: int,
    ):
        """`seed` is the experiment's, not the trial's: all trials are asked the same."""
        self.generator, self.reward, self.judge = generator, reward, judge
        self.config, self.tokenizer = config, tokenizer
        chosen = [list(each) for each in prompts[: config.prompts]]
        if len(chosen) < 2:
            raise ProximaError(
                f"evaluation: {len(chosen)} held-out prompt(s), at least 2 are needed; raise data.held_out "
                "or give more data"
            )
        self.prompts: Rows = generator.rows(chosen)
        self.key = evaluation_keys(jnp.uint32(seed), 1)[0]
        self._reference: Measured | None = None

    def evaluate(self, part: Part) -> dict[str, float]:
        """The figures of a policy, by name."""
        return figures(self.measure(part))

    def measure(self, part: Part) -> Measured:
        """All that evaluation finds out about a policy, prompt by prompt."""
        samples = self.generator.generate(part, self.prompts, self.key)
        texts = self.generator.texts(samples)
        scored = _scored(self.generator.base, part, samples, self.generator.temperature)
        log_probs, reference, entropies = (np.asarray(each, np.float64) for each in scored)
        length = np.asarray(samples.completions.mask).sum(axis=1).astype(np.float64)
        return Measured(
            samples=samples,
            texts=texts,
            log_probs=log_probs,
            reference_log_probs=reference,
            reward=np.asarray(self.reward.scores(samples), np.float64),
            judge=None if self.judge is None else np.asarray(self.judge(texts), np.float64),
            kl=(log_probs - reference).sum(axis=1),
            entropy=entropies.sum(axis=1) / length,
            length=length,
            ended=np.asarray(samples.ended, np.float64),
        )

    def reference(self) -> Measured:
        """What the reference does with the same prompts and keys; measured once."""
        if self._reference is None:
            self._reference = self.measure(REFERENCE)
        return self._reference

    def samples(
        self,
        part: Part,
        learnt: Callable[[Samples], Experience] | None = None,
        found: Measured | None = None,
    ) -> list[dict[str, Any]]:
        """Rows for people: a prompt, the completion before and after, scores, and each token's part in it.

        `learnt` makes experience of samples as training does (`ppo.experience_from`); with it tokens have
        values and advantages. `found` is what `measure` said of the part, where that is known already.
        """
        before, after = self.reference(), self.measure(part) if found is None else found
        experience = _unlearnt(after) if learnt is None else learnt(after.samples)
        count = min(self.config.samples, len(after.texts))
        tokens: list[list[dict[str, Any]]] = [[] for _ in range(count)]
        for pair in TokenAttributor(self.tokenizer).extract_pairs(_first(experience, count)):
            tokens[pair.row].append(_told_token(pair, learnt is not None))
        prompts = [self.tokenizer.decode(ids) for ids in unpadded(self.prompts)]
        return [
            {
                "prompt": prompts[place],
                "before": _told(before, place),
                "after": {
                    **_told(after, place),
                    "kl": float(after.kl[place]),
                    "tokens": tokens[place],
                },
            }
            for place in range(count)
        ]


def figures(found: Measured) -> dict[str, float]:
    """Means over the prompts, with the standard errors of reward and judge."""
    tokens = _contents(found.samples)
    named = {
        "eval/reward": found.reward.mean(),
        "eval/reward_error": _error(found.reward),
        "eval/kl": found.kl.mean(),
        "eval/entropy": np.sum(found.entropy * found.length) / found.length.sum(),
        "eval/length": found.length.mean(),
        "eval/eos_rate": found.ended.mean(),
        "eval/distinct_1": distinct(tokens, 1),
        "eval/distinct_2": distinct(tokens, 2),
    }
    if found.judge is not None:
        named |= {"eval/judge": found.judge.mean(), "eval/judge_error": _error(found.judge)}
    return {name: float(value) for name, value in named.items()}


def distinct(texts: Sequence[Sequence[int]], size: int) -> float:
    """Different runs of `size` tokens over all of them (Li et al. 2016, arXiv 1510.03055); 1 for none."""
    runs = [tuple(text[i : i + size]) for text in texts for i in range(len(text) - size + 1)]
    return len(set(runs)) / len(runs) if runs else 1.0


def _scored(
    base: Decoder, part: Part, samples: Samples, temperature: float
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Log-probabilities now and of the reference, and entropies, (B, N); so many rows at a time."""
    rows, width = samples.completions.ids.shape
    size = min(rows, max(1, MOST_LOGITS // (width * base.config.vocabulary)))
    parts = []
    for start in range(0, rows, size):
        # the last rows again where they do not fill a pass: one shape, one compilation
        places = np.minimum(np.arange(start, start + size), rows - 1)
        prompts, completions = (
            Rows(each.ids[places], each.mask[places])
            for each in (samples.prompts, samples.completions)
        )
        parts.append(_both(base, part, prompts, completions, jnp.float32(temperature)))
    joined = [
        np.concatenate([np.asarray(one) for one in each])[:rows]
        for each in zip(*parts, strict=True)
    ]
    return joined[0], joined[1], joined[2]


@eqx.filter_jit
def _both(
    base: Decoder, part: Part, prompts: Rows, completions: Rows, temperature: Array
) -> tuple[Array, Array, Array]:
    now = score_completions(base, part, prompts, completions, temperature)
    then = score_completions(base, REFERENCE, prompts, completions, temperature)
    return now.log_probs, then.log_probs, now.entropies


def _told(found: Measured, place: int) -> dict[str, Any]:
    return {
        "text": found.texts[place],
        "ended": bool(found.ended[place]),
        "reward": float(found.reward[place]),
        "judge": None if found.judge is None else float(found.judge[place]),
    }


def _told_token(pair: Pair, learnt: bool) -> dict[str, Any]:
    """A token's figures; values and such are nobody's opinion where nothing was learnt."""
    row = pair._asdict()
    del row["row"], row["state"]  # told by their places
    return row if learnt else row | {"value": None, "reward": None, "advantage": None}


def _unlearnt(found: Measured) -> Experience:
    """Experience of completions that nobody valued."""
    nothing = jnp.zeros(found.log_probs.shape)
    return Experience(
        prompts=found.samples.prompts,
        completions=found.samples.completions,
        log_probs=jnp.asarray(found.log_probs),
        reference_log_probs=jnp.asarray(found.reference_log_probs),
        rewards=nothing,
        values=nothing,
        advantages=nothing,
        returns=nothing,
        scores=jnp.asarray(found.reward),
    )


def _first(experience: Experience, count: int) -> Experience:
    return jax.tree.map(lambda leaf: leaf[:count], experience)


def _contents(samples: Samples) -> list[list[int]]:
    """The ids of each completion without the EOS that ended it."""
    pairs = zip(unpadded(samples.completions), np.asarray(samples.ended), strict=True)
    return [ids[:-1] if ended else ids for ids, ended in pairs]


def _error(values: Numbers) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))
