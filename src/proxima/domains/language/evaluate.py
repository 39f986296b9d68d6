"""How good a policy is: held-out prompts, the same random numbers every time, and a judge of its own.

    completions = the policy's own, at the sampling temperature
    reward      the plain score: no price of KL, no penalty for a missing end; left out where there is none
    judge       an independent opinion of the completion alone; the prompt is not the policy's doing
    kl          Σ over a completion's tokens of log π − log π_ref (k1), in nats, then the mean
    distinct_n  different n-grams over all n-grams of all completions, the ends left out

Prompts and keys are fixed, so that two evaluations differ by the policy alone, and prompts can be
paired: before and after, trial and trial. Evaluation changes nothing. When to worry is in `alarms.py`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
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
from proxima.domains.language.experience import TokenAttributor
from proxima.domains.language.generate import Generator
from proxima.domains.language.judge import Judge
from proxima.domains.language.model import REFERENCE, Part, score_completions
from proxima.domains.language.rewards import RewardComputer
from proxima.domains.language.samples import Experience, Rows, Samples
from proxima.domains.language.tokenizer import Tokenizer, unpadded
from proxima.nets.transformer import Decoder
from proxima.train.stage import Preview

Numbers = NDArray[np.float64]
UNLEARNT = dict.fromkeys(("value", "reward", "advantage"))  # nobody's opinion before it is learnt
MOST_LOGITS = 2**26  # numbers of one pass over completions; more rows are scored in several


class Measured(NamedTuple):
    """What a policy did on the held-out prompts; one number per prompt unless said otherwise."""

    samples: Samples
    texts: list[str]  # the completions, for people
    log_probs: Numbers  # (B, N), 0 on pads
    reference_log_probs: Numbers  # (B, N)
    reward: Numbers | None
    judge: Numbers | None
    kl: Numbers
    entropy: Numbers  # mean over the completion's tokens
    length: Numbers  # tokens, an end among them
    ended: Numbers  # 1.0 or 0.0

    @property
    def worth(self) -> Numbers:
        """What speaks for the policy: its reward or, where there is none, the judge's opinion."""
        opinion = self.judge if self.reward is None else self.reward
        assert opinion is not None  # `stages.dpo_faults`
        return opinion

    def by_prompt(self) -> dict[str, list[float]]:
        """The figures of each prompt, to be paired with another policy's."""
        names = ("reward", "judge", "kl", "entropy", "length", "ended")
        known = {name: getattr(self, name) for name in names}
        return {name: values.tolist() for name, values in known.items() if values is not None}

    def of(self, prompt: int) -> dict[str, Any]:
        """A completion in words and numbers, as samples.json holds it."""
        return {
            "text": self.texts[prompt],
            "ended": bool(self.ended[prompt]),
            "reward": None if self.reward is None else float(self.reward[prompt]),
            "judge": None if self.judge is None else float(self.judge[prompt]),
        }


@final
class Evaluator:
    """Measures policies on fixed held-out prompts."""

    def __init__(
        self,
        generator: Generator,
        reward: RewardComputer | None,
        judge: Judge | None,
        config: LanguageEvaluationConfig,
        prompts: Sequence[Sequence[int]],
        tokenizer: Tokenizer,
        seed: int,
    ):
        """`seed` is the experiment's, not the trial's: all trials are asked the same."""
        self.generator, self.reward, self.judge = generator, reward, judge
        self.config, self.tokenizer = config, tokenizer
        self.prompts: Rows = generator.rows(evaluation_prompts(config, prompts))
        self.key = evaluation_keys(jnp.uint32(seed), 1)[0]
        self._reference: Measured | None = None
        self._newest: Measured | None = None  # of the last policy that was evaluated

    def evaluate(self, part: Part) -> dict[str, float]:
        """The figures of a policy, by name."""
        self._newest = self.measure(part)
        return figures(self._newest)

    def preview(self) -> Preview | None:
        """What the policy wrote that was evaluated last, for onlookers; nothing is computed for it."""
        if self._newest is None:
            return None
        rows = self._rows(self._newest, _unlearnt(self._newest), UNLEARNT)
        return Preview(samples=rows)

    def measure(self, part: Part) -> Measured:
        """All that evaluation finds out about a policy, prompt by prompt."""
        samples = self.generator.generate(part, self.prompts, self.key)
        texts = self.generator.texts(samples)
        scored = _scored(self.generator.base, part, samples, self.generator.temperature)
        log_probs, reference, entropies = (np.asarray(part, np.float64) for part in scored)
        length = np.asarray(samples.completions.mask).sum(axis=1).astype(np.float64)
        reward = (
            None if self.reward is None else np.asarray(self.reward.scores(samples), np.float64)
        )
        return Measured(
            samples=samples,
            texts=texts,
            log_probs=log_probs,
            reference_log_probs=reference,
            reward=reward,
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
        measured: Measured | None = None,
    ) -> list[dict[str, Any]]:
        """Rows for people: a prompt, the completion before and after, scores, and each token's part in it.

        `learnt` makes experience of samples as training does (`ppo.experience_from`); with it tokens have
        values and advantages. `measured` is what `measure` said of the part, where that is known already.
        """
        before, after = self.reference(), self.measure(part) if measured is None else measured
        experience = _unlearnt(after) if learnt is None else learnt(after.samples)
        rows = self._rows(after, experience, {} if learnt else UNLEARNT)
        return [
            {"prompt": row["prompt"], "before": before.of(index), "after": row["after"]}
            for index, row in enumerate(rows)
        ]

    def _rows(
        self, after: Measured, experience: Experience, unknown: Mapping[str, None]
    ) -> list[dict[str, Any]]:
        """The first prompts with what the policy wrote; `unknown` is what nobody knows of tokens."""
        count = min(self.config.samples, len(after.texts))
        tokens: list[list[dict[str, Any]]] = [[] for _ in range(count)]
        first = jax.tree.map(lambda leaf: leaf[:count], experience)
        for pair in TokenAttributor(self.tokenizer).extract_pairs(first):
            token = {**pair._asdict(), **unknown}
            del token["row"], token["state"]  # told by where the token stands
            tokens[pair.row].append(token)
        prompts = [self.tokenizer.decode(ids) for ids in unpadded(self.prompts)]
        return [
            {
                "prompt": prompts[row],
                "after": {**after.of(row), "kl": float(after.kl[row]), "tokens": tokens[row]},
            }
            for row in range(count)
        ]


def evaluation_prompts(
    config: LanguageEvaluationConfig, held_out: Sequence[Sequence[int]]
) -> list[list[int]]:
    """The held-out prompts that policies are measured on; a single one has no standard error."""
    chosen = [list(ids) for ids in held_out[: config.prompts]]
    if len(chosen) < 2:
        raise ProximaError(
            f"evaluation: {len(chosen)} held-out prompt(s), at least 2 are needed; raise data.held_out "
            "or give more data"
        )
    return chosen


def figures(measured: Measured) -> dict[str, float]:
    """Means over the prompts, with the standard errors of reward and judge."""
    pairs = zip(unpadded(measured.samples.completions), measured.ended, strict=True)
    tokens = [ids[:-1] if ended else ids for ids, ended in pairs]  # without the EOS
    length = measured.length
    named = {
        **_opinion("reward", measured.reward),
        "eval/kl": measured.kl.mean(),
        "eval/entropy": np.sum(measured.entropy * length) / length.sum(),
        "eval/length": length.mean(),
        "eval/eos_rate": measured.ended.mean(),
        "eval/distinct_1": distinct(tokens, 1),
        "eval/distinct_2": distinct(tokens, 2),
        **_opinion("judge", measured.judge),
    }
    return {name: float(value) for name, value in named.items()}


def distinct(texts: Sequence[Sequence[int]], size: int) -> float:
    """Different runs of `size` tokens over all of them (Li et al. 2016, arXiv 1510.03055); 1 for none."""
    runs = [tuple(text[i : i + size]) for text in texts for i in range(len(text) - size + 1)]
    return len(set(runs)) / len(runs) if runs else 1.0


def _scored(
    base: Decoder, part: Part, samples: Samples, temperature: float
) -> Iterator[NDArray[Any]]:
    """Log-probabilities now and of the reference, and entropies, (B, N); so many rows at a time."""
    rows, width = samples.completions.ids.shape
    size = min(rows, max(1, MOST_LOGITS // (width * base.config.vocabulary)))
    parts = []
    for start in range(0, rows, size):
        # the last rows again where they do not fill a pass: one shape, one compilation
        chosen = np.minimum(np.arange(start, start + size), rows - 1)
        prompts, completions = (
            Rows(half.ids[chosen], half.mask[chosen])
            for half in (samples.prompts, samples.completions)
        )
        parts.append(_both(base, part, prompts, completions, jnp.float32(temperature)))
    return (np.concatenate(batches)[:rows] for batches in zip(*parts, strict=True))


@eqx.filter_jit
def _both(
    base: Decoder, part: Part, prompts: Rows, completions: Rows, temperature: Array
) -> tuple[Array, Array, Array]:
    now = score_completions(base, part, prompts, completions, temperature)
    then = score_completions(base, REFERENCE, prompts, completions, temperature)
    return now.log_probs, then.log_probs, now.entropies


def _unlearnt(measured: Measured) -> Experience:
    """Experience of completions that nobody valued."""
    valued = ("rewards", "values", "advantages", "returns")
    return Experience(
        prompts=measured.samples.prompts,
        completions=measured.samples.completions,
        log_probs=jnp.asarray(measured.log_probs),
        reference_log_probs=jnp.asarray(measured.reference_log_probs),
        scores=jnp.asarray(measured.worth),
        **dict.fromkeys(valued, jnp.zeros(measured.log_probs.shape)),
    )


def _opinion(name: str, values: Numbers | None) -> dict[str, Any]:
    """The mean of an opinion and its standard error; nothing where nobody has it."""
    if values is None:
        return {}
    return {f"eval/{name}": values.mean(), f"eval/{name}_error": _error(values)}


def _error(values: Numbers) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))
