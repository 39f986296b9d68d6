"""The few pieces of HTML that a report is made of; whatever is plain text comes out escaped.

    tag("p.lead", "a < b ", tag("strong", "c"))   →   <p class="lead">a &lt; b <strong>c</strong></p>

A page needs nothing from outside: style and pictures are in it, and there is no script.
"""

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, NamedTuple

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
    written = "".join(f' {key}="{escape(value)}"' for key, value in given.items())
    if name in VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{join(content).html}</{name}>")


def join(content: Sequence[Content]) -> Markup:
    """Pieces one after the other."""
    parts = (part.html if isinstance(part, Markup) else escape(part) for part in content)
    return Markup("".join(parts))


def table(head: Sequence[Content], rows: Sequence[Sequence[Content]], kind: str = "") -> Markup:
    """A table whose first column names the rows; on a narrow page it scrolls by itself."""
    column, line = {"scope": "col"}, {"scope": "row"}
    top = tag("tr", *(tag("th", name, attributes=column) for name in head))
    body = (tag("tr", tag("th", name, attributes=line), *map(_cell, rest)) for name, *rest in rows)
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
    wide, narrow = (_address(png(draw(width), DOTS), "png") for width in (WIDTH, NARROW))
    phone = {"media": f"(max-width: {PHONE}px)", "srcset": narrow}
    desk = {"src": wide, "alt": words}
    both = tag("source", attributes=phone), tag("img", attributes=desk)
    return tag("figure", tag("picture", *both))


def image(content: bytes, kind: Literal["gif", "png"], words: str) -> Markup:
    """A file's picture in the page, in its own size; `words` say what it shows."""
    shown = {"src": _address(content, kind), "alt": words}
    return tag("figure", tag("img.film", attributes=shown))


def alarm(title: str, lead: str, items: Sequence[str]) -> Markup:
    """A box that a reader must see before believing the rest."""
    listed = tag("ul", *(tag("li", item) for item in items))
    return tag("section.alarm", tag("h2", title), tag("p", lead), listed)


def write_page(path: Path, page: str, what: str) -> None:
    """Write a page, whole or not at all; an error says which page it is."""
    with replacing(path, what) as fresh:
        fresh.write_text(page, encoding="utf-8", errors="replace")  # half a surrogate is no text


def heading(title: str, description: str, about: Sequence[str]) -> Markup:
    """The top of a page: its title, what it is about, and short facts."""
    facts = [part for fact in about for part in (" · ", tag("span", fact))][1:]
    described = [tag("p.description", description)] if description else []
    return tag("header", tag("h1", title), *described, tag("p.about", *facts))


def document(title: str, *content: Content, style: str = "") -> str:
    """A whole page that needs nothing besides itself; `style` is what it adds to the common one."""
    style = files("proxima.report").joinpath("page.css").read_text(encoding="utf-8") + style
    view = {"name": "viewport", "content": "width=device-width, initial-scale=1"}
    metas = (tag("meta", attributes=about) for about in ({"charset": "utf-8"}, view))
    head = tag("head", *metas, tag("title", title), Markup(f"<style>{style}</style>"))
    body = tag("body", tag("main", *content))
    return f'<!doctype html>\n<html lang="en">{head.html}{body.html}</html>\n'


def _cell(content: Content) -> Markup:
    if isinstance(content, Markup) and content.html.startswith("<td"):
        return content
    return tag("td", content)


def _address(content: bytes, kind: Literal["gif", "png"]) -> str:
    return f"data:image/{kind};base64,{b64encode(content).decode()}"
