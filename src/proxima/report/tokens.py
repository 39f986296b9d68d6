"""Texts with coloured tokens: the colours that a token's figures give it, and the words that explain them.

Blue is more than nothing and orange is less; the stronger, the further. A page draws them with tokens.css.
"""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from proxima.report.numbers import NOTHING
from proxima.report.style import number

COLUMNS = {
    "logprob_policy": "log-prob now",
    "logprob_ref": "before",
    "kl": "KL",
    "value": "value",
    "advantage": "advantage",
}
SCORES = {"reward": "reward", "judge": "judge", "kl": "KL"}  # of a whole text
DEEPEST = 95  # percentile of the values' size that gets the full colour; a few lie far beyond

Token = Mapping[str, Any]  # action, which is its text, and figures by the names of COLUMNS


class Scale(NamedTuple):
    """What tokens can be coloured by."""

    title: str
    less: str  # what orange means
    more: str  # what blue means
    unit: str = ""


SCALES = {
    "kl": Scale("KL", "likelier before", "likelier now", "\u00a0nats"),
    "advantage": Scale("advantage", "worse than expected", "better than expected"),
}


class Painted(NamedTuple):
    """A token as it is drawn; blanks before it have no colour, for at a line's end they would be a stripe."""

    blanks: str
    word: str
    words: str  # its figures
    colours: dict[str, str]  # CSS, by the names of SCALES


def style() -> str:
    """The rules of style for coloured tokens."""
    return files("proxima.report").joinpath("tokens.css").read_text(encoding="utf-8")


def deepest_of(tokens: Sequence[Token]) -> dict[str, float]:
    """By scale, the size of a figure that gets the full colour; scales that no token has are left out."""
    sizes = {
        name: [abs(token[name]) for token in tokens if _is_known(token.get(name))]
        for name in SCALES
    }
    return {
        name: max(1e-3, float(np.percentile(known, DEEPEST)))
        for name, known in sizes.items()
        if known
    }


def legend(name: str, deepest: float) -> tuple[str, str]:
    """What the ends of a scale mean, in words."""
    scale, size = SCALES[name], number(deepest)
    return f"{scale.less} (−{size}{scale.unit})", f"{scale.more} (+{size})"


def spoken(tokens: Sequence[Token], ended: bool) -> Sequence[Token]:
    """The tokens that are text: a text that ended has its ending as the last."""
    return tokens[:-1] if ended else tokens


def painted(token: Token, deepest: Mapping[str, float]) -> Painted:
    """The token with its colours."""
    word = token["action"].lstrip(" ")
    return Painted(
        token["action"][: len(token["action"]) - len(word)],
        word,
        " · ".join(f"{title} {rounded(token.get(name))}" for name, title in COLUMNS.items()),
        {name: _shade(token.get(name), size) for name, size in deepest.items()},
    )


def scores_of(text: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a whole text is worth, by name and in digits, as far as that is known."""
    known = {title: text.get(name) for name, title in SCORES.items()}
    return [(title, rounded(value)) for title, value in known.items() if value is not None]


def rounded(value: float | None) -> str:
    """A figure in digits."""
    return f"{value:.2f}".replace("-", "−") if value is not None and _is_known(value) else NOTHING


def _is_known(value: float | None) -> bool:
    return value is not None and bool(np.isfinite(value))


def _shade(value: float | None, deepest: float) -> str:
    if value is None or not np.isfinite(value):
        return "transparent"
    # Okabe and Ito's blue and vermillion, as in the report's shaded tables
    colour = "0, 114, 178" if value > 0 else "213, 94, 0"
    strength = min(1.0, abs(value) / deepest)
    return f"rgba({colour}, calc({strength:.2f} * var(--strong)))"
