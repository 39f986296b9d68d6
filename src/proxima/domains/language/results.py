"""What a language run says besides rewards, as types."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import with_config

from proxima.run.results import STRICT, Alarm, Number, by_name


@with_config(STRICT)
@dataclass(frozen=True, kw_only=True)
class Gain:
    """A figure's mean before and after, and the difference with its 95 % interval over prompts."""

    before: Number
    after: Number
    gain: Number
    low: Number
    high: Number

    __getitem__ = by_name


@with_config(STRICT)
@dataclass(frozen=True, kw_only=True)
class LanguageTrial:
    """What judging a stage of a trial finds out besides."""

    calibration: Mapping[str, float] = field(default_factory=dict)
    """Mean and deviation by which a reward model's scores are normalised."""
    gains: Mapping[str, Gain] = field(default_factory=dict)
    """What PPO changed on the held-out prompts, by figure."""
    alarms: tuple[Alarm, ...] = ()

    __getitem__ = by_name
