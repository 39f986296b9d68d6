"""The few pieces of HTML that a report is made of; whatever is plain text comes out escaped.

    tag("p.lead", "a < b ", tag("strong", "c"))   →   <p class="lead">a &lt; b <strong>c</strong></p>

A page needs nothing from outside: style and pictures are in it, and there is no script.
"""

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from proxima.core.addresses import masked
from proxima.files import replacing
from proxima.report.style import NARROW, WIDTH, png

DOTS = 220  # per inch: two for each of the page's own dots at its full width
PHONE = 600  # dots of width up to which the narrow pictures are shown
VOID = {"img", "input", "meta", "source"}  # have no end


class Markup(NamedTuple):
    """HTML that is kept as it is, as only `tag` should make it."""

    html: str


Content = str | Markup


def tag(name: str, *content: Content, attributes: Mapping[str, str] | None = None) -> Markup:
    """An element; `td.number` is a td of the class number. Text in it is escaped."""
    name, _, kind = name.partition(".")
    given = ({"class": kind} if kind else {}) | dict(attributes or {})
    said = "".join(f' {key}="{escape(value)}"' for key, value in given.items())
    if name in VOID:
        return Markup(f"<{name}{said}>")
    return Markup(f"<{name}{said}>{join(content).html}</{name}>")


def join(content: Sequence[Content]) -> Markup:
    """Pieces one after the other."""
    return Markup(
        "".join(each.html if isinstance(each, Markup) else escape(each) for each in content)
    )


def table(head: Sequence[Content], rows: Sequence[Sequence[Content]], kind: str = "") -> Markup:
    """A table whose first column names the rows; on a narrow page it scrolls by itself."""
    top = tag("tr", *(tag("th", cell, attributes={"scope": "col"}) for cell in head))
    body = (
        tag("tr", tag("th", row[0], attributes={"scope": "row"}), *map(_cell, row[1:]))
        for row in rows
    )
    whole = tag("table", tag("thead", top), tag("tbody", *body))
    return tag("div", whole, attributes={"class": f"scroll {kind}".strip(), "tabindex": "0"})


def shaded(text: str, strength: float) -> Markup:
    """A cell of a table, blue for a positive and orange for a negative strength from −1 to 1."""
    # Okabe and Ito's blue and vermillion, pale enough for dark letters
    colour = "0, 114, 178" if strength > 0 else "213, 94, 0"
    style = f"background: rgba({colour}, {0.55 * min(1.0, abs(strength)):.2f})"
    return tag("td", text, attributes={"style": style})


def fold(title: str, *content: Content) -> Markup:
    """What is shown when its title is clicked."""
    return tag("details", tag("summary", title), *content)


def section(title: str, *content: Content) -> Markup:
    """A part of the page under a heading."""
    return tag("section", tag("h2", title), *content)


def picture(draw: Callable[[float], Any], words: str) -> Markup:
    """A figure drawn twice, for the width of a desk and of a phone; `words` say what it shows."""
    wide, narrow = (_png_address(png(draw(width), DOTS)) for width in (WIDTH, NARROW))
    phone = {"media": f"(max-width: {PHONE}px)", "srcset": narrow}
    return tag(
        "figure",
        tag(
            "picture",
            tag("source", attributes=phone),
            tag("img", attributes={"src": wide, "alt": words}),
        ),
    )


def film(gif: bytes, words: str) -> Markup:
    """A GIF in the page."""
    source = "data:image/gif;base64," + b64encode(gif).decode()
    return tag("figure", tag("img.film", attributes={"src": source, "alt": words}))


def write_page(path: Path, page: str, what: str) -> None:
    """Write a page, whole or not at all; an error says which page it is."""
    with replacing(path, what) as fresh:
        fresh.write_text(page, encoding="utf-8", errors="replace")  # half a surrogate is no text


def heading(title: str, description: str, about: Sequence[str]) -> Markup:
    """The top of a page: its title, what it is about, and short facts."""
    facts = [part for fact in about for part in (" · ", tag("span", fact))][1:]
    described = [tag("p.description", description)] if description else []
    return tag("header", tag("h1", title), *described, tag("p.about", *facts))


def making(
    run_id: str,
    root: str,
    info: Mapping[str, Any],
    commands: Mapping[str, str],
    scenario: str,
    more: Mapping[str, str] | None = None,
) -> list[Content]:
    """How the run was made: its facts, commands that go on from it and what they do, its settings."""
    told = "".join(f"# {what}\n{command}\n" for command, what in commands.items())
    facts = {"Run": run_id, "Files": root, **(more or {}), **info["versions"]}
    if info["mlflow_run_id"] is not None:
        facts["MLflow run"] = info["mlflow_run_id"]
    return [
        table(["", ""], [[name, value] for name, value in facts.items()], "facts"),
        tag("pre", told),
        # masked again: older versions stored passwords
        fold("Settings (scenario.yaml)", tag("pre", masked(scenario))),
    ]


def document(title: str, *content: Content, style: str = "") -> str:
    """A whole page that needs nothing besides itself; `style` is what it adds to the common one."""
    style = files("proxima.report").joinpath("page.css").read_text(encoding="utf-8") + style
    view = {"name": "viewport", "content": "width=device-width, initial-scale=1"}
    head = tag(
        "head",
        tag("meta", attributes={"charset": "utf-8"}),
        tag("meta", attributes=view),
        tag("title", title),
        Markup(f"<style>{style}</style>"),
    )
    body = tag("body", tag("main", *content))
    return f'<!doctype html>\n<html lang="en">{head.html}{body.html}</html>\n'


def _cell(content: Content) -> Markup:
    ready = isinstance(content, Markup) and content.html.startswith("<td")
    return content if isinstance(content, Markup) and ready else tag("td", content)


def _png_address(content: bytes) -> str:
    return "data:image/png;base64," + b64encode(content).decode()
