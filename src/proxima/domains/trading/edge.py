"""Whether a run shows an edge, in a sentence that follows from its figures alone.

    interval       of the log return on the test split, over trials or walks, against buy and hold there
    deflated       Sharpe ratio of the one chosen on validation: the probability that it is more than luck
    overfitting    of a walk: how often the best of one half of time is in the lower half in the other

An edge takes both of the first. The third is about choosing among what was tried: seeds that are all
equally good give one half, as noise does, so it is stated and decides nothing.
"""

from typing import NamedTuple

from proxima.report.numbers import share
from proxima.run.results import Aggregate, Number

CONFIDENT = 0.95  # of a deflated Sharpe ratio, as in Bailey and López de Prado 2014
COIN = 0.5  # the probability of backtest overfitting that noise gives
LASTING = 0.05  # below it, Bailey et al. 2017 do not reject the choice


class Evidence(NamedTuple):
    """The figures that decide."""

    earned: Aggregate  # log return on the test split
    held: Number  # that of buy and hold there
    sharpe: Number  # of the one chosen on validation
    deflated: Number  # its deflated Sharpe ratio
    overfitting: Number = None  # of a walk


def edge(evidence: Evidence) -> str:
    """What the figures say of an edge; nothing of a single trial, which has no interval."""
    earned, held = evidence.earned, evidence.held
    if earned.low is None or earned.high is None or held is None:
        return ""
    above, skilled = earned.low > held, _skilled(evidence)
    side = "above" if above else "below" if earned.high < held else "around"
    against = {
        "above": "the interval lies above buy and hold",
        "below": "the interval lies below buy and hold",
        "around": "the interval includes buy and hold",
    }[side]
    joint = "and" if above == skilled else "but"
    judged = f"{against}, {joint} {_deflated_words(evidence)}"
    if above and skilled:
        return f"An edge, unless something leaks: {judged}.{_choice(evidence)}"
    return f"No edge is shown: {judged}.{_choice(evidence)}"


def _skilled(evidence: Evidence) -> bool:
    sharpe, deflated = evidence.sharpe, evidence.deflated
    return bool(sharpe and sharpe > 0 and deflated is not None and deflated > CONFIDENT)


def _deflated_words(evidence: Evidence) -> str:
    sharpe, deflated = evidence.sharpe, evidence.deflated
    if sharpe is None or sharpe <= 0:
        return "the Sharpe ratio of the one chosen on validation is not above 0"
    if deflated is None:
        return "its deflated Sharpe ratio cannot be computed"
    side = "above" if deflated > CONFIDENT else "not above"
    return f"the deflated Sharpe ratio, {share(deflated)}, is {side} {share(CONFIDENT)}"


def _choice(evidence: Evidence) -> str:
    """What the probability of backtest overfitting says of choosing among walks."""
    if evidence.overfitting is None:
        return ""
    meaning = "leaves open whether the best walk of one time is better than others at another"
    if evidence.overfitting < LASTING:
        meaning = "says that the best walk of one time is better than others at another too"
    elif evidence.overfitting >= COIN:
        meaning = "says that the best walk of one time is no better than others at another"
    return f" The probability of backtest overfitting, {share(evidence.overfitting)}, {meaning}."
