"""Optuna's samplers, a generation at a time: TPE and CMA-ES.

TPE      tree-structured Parzen estimator (Bergstra et al. 2011): draws where good values are dense
CMA-ES   a normal distribution that moves and stretches towards good values (Hansen, arXiv 1604.00772)

A generation is drawn when all values before are known, and they are told in the order of their numbers:
which training finished first makes no difference.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, final

from proxima.core.errors import ProximaError
from proxima.core.extras import needs_extra
from proxima.scenario.search import Range, SearchConfig, Value
from proxima.tune.draws import CMA_ES_ROLE, TPE_ROLE, admissible, library_seed
from proxima.tune.method import Check, Method, Ranges, Settings
from proxima.tune.methods.whole import WholeTrainings
from proxima.tune.space import index_of, settings_at

with needs_extra("tune", "search.method: tpe or cma-es"):
    import cmaes  # noqa: F401  Optuna itself imports it only when it draws
    import optuna
    from optuna.distributions import (
        BaseDistribution,
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )
    from optuna.trial import TrialState

# Of CMA-ES: half of it are parents, and one parent says nothing of the spread.
SMALLEST_GENERATION = 4


def make_tpe(
    config: SearchConfig, ranges: Ranges, check: Check, drawn: Sequence[Settings] = ()
) -> Method:
    """TPE. Every generation has a sampler of its own, so what was drawn before is not drawn again."""

    def draw(settings: list[Settings], values: list[float]) -> list[Settings]:
        known = drawn[len(settings) :][: _size(config, settings)]
        return list(known) or tpe_generation(config, ranges, check, settings, values)

    return WholeTrainings(config.evaluations, draw([], []), draw)


def make_cma_es(
    config: SearchConfig, ranges: Ranges, check: Check, drawn: Sequence[Settings] = ()
) -> Method:
    """CMA-ES. The sampler remembers its path, so what was drawn before is drawn again."""
    for path, span in ranges.items():
        if span.kind == "choice":
            raise ProximaError(
                f"search.space: cma-es moves in numbers, and {path} is a choice; use method tpe"
            )
    if config.generation < SMALLEST_GENERATION:
        raise ProximaError(
            f"search.generation: {config.generation} is too few for cma-es; at least {SMALLEST_GENERATION}"
        )
    draw = CMAES(config, ranges, check, drawn)
    return WholeTrainings(config.evaluations, draw([], []), draw)


def tpe_generation(
    config: SearchConfig,
    ranges: Ranges,
    check: Check,
    settings: list[Settings],
    values: list[float],
) -> list[Settings]:
    """The generation that follows on these configurations and their values."""
    seed = library_seed(config, TPE_ROLE, len(settings) // config.generation)
    # The liar takes those of this generation for bad, so that they do not crowd together.
    sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True)
    study = _study(sampler)
    for configuration, value in zip(settings, values, strict=True):
        study.add_trial(_finished(ranges, configuration, value))
    return _asked(study, ranges, check, _size(config, settings))


@final
class CMAES:
    """Owns Optuna's study of CMA-ES; a call tells it the newest generation and draws the next."""

    def __init__(
        self, config: SearchConfig, ranges: Ranges, check: Check, drawn: Sequence[Settings]
    ) -> None:
        self._config, self._ranges, self._check, self._drawn = config, ranges, check, drawn
        seed = library_seed(config, CMA_ES_ROLE)
        self._study = _study(optuna.samplers.CmaEsSampler(seed=seed, popsize=config.generation))
        # The sampler learns the ranges from a finished trial; of this one it uses nothing else.
        middle = settings_at(ranges, [0.5] * len(ranges))
        self._study.add_trial(_finished(ranges, middle, 0.0))

    def __call__(self, settings: list[Settings], values: list[float]) -> list[Settings]:
        """The generation that follows on these configurations and their values."""
        newest = self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        for trial, value in zip(newest, values[len(values) - len(newest) :], strict=True):
            self._study.tell(trial.number, value)
        size = _size(self._config, settings)
        following = _asked(self._study, self._ranges, self._check, size)
        for now, before in zip(following, self._drawn[len(settings) :], strict=False):
            if not _is_close(now, before):
                raise ProximaError(
                    "the search cannot go on: cma-es draws other settings than when it began; "
                    "install the versions of optuna and cmaes that it began with"
                )
        return following


def _study(sampler: optuna.samplers.BaseSampler) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # no line for every study
    return optuna.create_study(direction="maximize", sampler=sampler)


def _asked(study: optuna.Study, ranges: Ranges, check: Check, count: int) -> list[Settings]:
    return [admissible(_suggestions(study, ranges), check) for _ in range(count)]


def _suggestions(study: optuna.Study, ranges: Ranges) -> Iterator[Settings]:
    """Settings for one configuration; asking for others says that the last ones are impossible."""
    while True:
        trial = study.ask(_distributions(ranges))
        yield {path: _value(span, trial.params[path]) for path, span in ranges.items()}
        study.tell(trial, state=TrialState.FAIL)


def _finished(ranges: Ranges, settings: Settings, value: float) -> optuna.trial.FrozenTrial:
    """A trial; Optuna takes -inf for a value, the worst one."""
    params = {path: _parameter(span, settings[path]) for path, span in ranges.items()}
    return optuna.create_trial(params=params, distributions=_distributions(ranges), value=value)


def _size(config: SearchConfig, settings: Sequence[Settings]) -> int:
    """Configurations of the generation that follows on these; the last one may be smaller."""
    return min(config.generation, config.configs - len(settings))


def _distributions(ranges: Ranges) -> dict[str, BaseDistribution]:
    return {path: _distribution(span) for path, span in ranges.items()}


def _distribution(span: Range) -> BaseDistribution:
    if span.kind == "choice":  # by index, as Optuna takes True and 1 for the same
        return CategoricalDistribution(range(len(span.choices)))
    if span.kind == "int":
        return IntDistribution(int(span.low), int(span.high))
    return FloatDistribution(span.low, span.high, log=span.kind == "log")


def _parameter(span: Range, value: Value) -> Any:
    """A value as Optuna has it."""
    return index_of(span, value) if span.kind == "choice" else value


def _value(span: Range, parameter: Any) -> Value:
    """A value as we have it."""
    if span.kind == "choice":
        return span.choices[int(parameter)]
    if span.kind == "int":
        return int(parameter)
    return min(max(float(parameter), span.low), span.high)


def _is_close(now: Settings, before: Settings) -> bool:
    """But for rounding, which may differ between machines; the settings of CMA-ES are numbers."""
    return all(math.isclose(now[path], before[path], rel_tol=1e-9) for path in now)  # type: ignore[arg-type]
