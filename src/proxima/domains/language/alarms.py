"""What the Evaluator warns of, and when a policy counts as converged: plain rules over its history.

    kl          KL to the reference over its budget
    hacking     the reward rose while the judge fell: the reward is being gamed, not the task solved
    repetition  completions are made of ever fewer different pairs of words
    endings     completions that used to end no longer do

A history is the figures of one evaluation after the other, the first from before the first update. An
alarm starts to sound once and is reported once. Rise and fall count only beyond twice their standard error
where that is known: 128 prompts move by a few hundredths from chance alone, and an alarm that cries wolf
is turned off. Left out on purpose: alarms on training metrics, which the policy was trained on.
"""

import math
from collections.abc import Mapping, Sequence

from proxima.domains.language.config import AlarmConfig
from proxima.domains.language.stages import PPO_REMEDIES, Remedies
from proxima.train.convergence import Convergence
from proxima.train.stage import Alarm

Figures = Mapping[str, float]
LEAST_FALL = 0.1  # of the share of completions that end; smaller falls are chance
CERTAIN = 2.0  # standard errors


def alarms(
    history: Sequence[Figures], config: AlarmConfig, advice: Remedies = PPO_REMEDIES
) -> list[Alarm]:
    """Every alarm of the history where it first sounded, in the order in which they did.

    `advice` is what helps a policy of this kind, `stages.LanguageStage.remedies`.
    """
    first: dict[str, Alarm] = {}
    for count in range(1, len(history) + 1):
        for alarm in sounding(history[:count], config, advice):
            first.setdefault(alarm.kind, alarm)
    return list(first.values())


def new_alarms(
    history: Sequence[Figures], config: AlarmConfig, advice: Remedies = PPO_REMEDIES
) -> list[Alarm]:
    """The alarms that sounded for the first time at the last evaluation."""
    before = {alarm.kind for alarm in alarms(history[:-1], config)}
    return [alarm for alarm in sounding(history, config, advice) if alarm.kind not in before]


def sounding(
    history: Sequence[Figures], config: AlarmConfig, advice: Remedies = PPO_REMEDIES
) -> list[Alarm]:
    """The alarms that sound at the last evaluation of the history."""
    if not history:
        return []
    step = int(history[-1].get("step", len(history) - 1))
    texts = {
        "kl": _over_budget(history, config, advice),
        "hacking": _gamed(history, config, advice),
        "repetition": _repeats(history, config, advice),
        "endings": _endless(history, config, advice),
    }
    return [Alarm(kind, text, step) for kind, text in texts.items() if text is not None]


def observe_patience(memory: Convergence, value: float, step: int, patience: int) -> Convergence:
    """The memory after an evaluation: converged when the last `patience` ones brought nothing better."""
    if memory.best is None or value > memory.best:
        return Convergence(best=value)
    waited = memory.waited + 1
    if waited < patience:
        return memory._replace(waited=waited, converged=False, reached_at_step=None)
    reached = memory.reached_at_step if memory.converged else step
    return memory._replace(waited=waited, converged=True, reached_at_step=reached)


def _over_budget(history: Sequence[Figures], config: AlarmConfig, advice: Remedies) -> str | None:
    kl = _figure(history[-1], "eval/kl")
    if not kl > config.kl_budget:
        return None
    return (
        f"The policy is {kl:.1f} nats of KL away from the reference per completion; the budget is "
        f"{config.kl_budget:g}. Its texts may no longer be language. {advice.closer.capitalize()}, or train "
        "for fewer updates."
    )


def _gamed(history: Sequence[Figures], config: AlarmConfig, advice: Remedies) -> str | None:
    """The reward now above what it was when the judge was happiest, and the judge well below."""
    judged = [row for row in history if math.isfinite(_figure(row, "eval/judge"))]
    if not judged or judged[-1] is not history[-1]:
        return None
    best, now = max(judged, key=lambda row: row["eval/judge"]), history[-1]
    rise = _figure(now, "eval/reward") - _figure(best, "eval/reward")
    fall = best["eval/judge"] - now["eval/judge"]
    sure = rise > _chance(best, now, "eval/reward") and fall > _chance(best, now, "eval/judge")
    if not sure or fall < config.judge_drop:
        return None
    return (
        f"The reward rose from {best['eval/reward']:.2f} to {now['eval/reward']:.2f} while the judge "
        f"fell from {best['eval/judge']:.2f} to {now['eval/judge']:.2f}: the policy may be gaming the "
        f"reward. Read the samples; {advice.closer}, or take the policy of an earlier update."
    )


def _repeats(history: Sequence[Figures], config: AlarmConfig, advice: Remedies) -> str | None:
    first, now = (_figure(row, "eval/distinct_2") for row in (history[0], history[-1]))
    if not now < config.repetition * first:
        return None
    return (
        f"Completions repeat themselves: of their pairs of tokens {100 * now:.0f} % are different, "
        f"{100 * first:.0f} % at the start. The policy has collapsed onto few phrases. "
        f"{advice.closer.capitalize()}, or reward something that such phrases do not earn."
    )


def _endless(history: Sequence[Figures], config: AlarmConfig, advice: Remedies) -> str | None:
    first, now = (_figure(row, "eval/eos_rate") for row in (history[0], history[-1]))
    if not (now < config.endings * first and first - now > LEAST_FALL):
        return None
    return (
        f"Completions no longer end by themselves: {100 * now:.0f} % do, {100 * first:.0f} % at the start. "
        f"{advice.ending.capitalize()}, or allow more new_tokens."
    )


def _figure(row: Figures, name: str) -> float:
    """A figure of an evaluation; NaN, which no rule answers to, where it was not measured."""
    value = row.get(name)
    return math.nan if value is None else float(value)


def _chance(one: Figures, other: Figures, name: str) -> float:
    """How far two evaluations of a figure may lie apart by chance; 0 where that is not known."""
    errors = [_figure(row, f"{name}_error") for row in (one, other)]
    return CERTAIN * math.hypot(*errors) if all(map(math.isfinite, errors)) else 0.0
