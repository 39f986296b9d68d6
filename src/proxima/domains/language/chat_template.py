"""Chat templates: conversations as a model reads them, character for character as transformers writes them.

    text = chat_text(template, messages, {"tools": …, "bos_token": …})

A template is a Jinja program that comes with a model. It runs in Jinja's sandbox, and here within bounds:
so many steps (a turn of a loop, a call), so much text, no value longer than that. What steps cannot see,
a search in a long list say, is bounded by processor time. Left out on purpose: the mask of what the
assistant said (`generation` only marks it), and functions as tools, which are given as JSON schemas.
"""

import json
import math
import re
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache, wraps
from typing import Any, NamedTuple

from proxima.core.errors import ProximaError
from proxima.core.extras import needs_extra

with needs_extra("language", "the model's chat template"):
    from jinja2 import Template, TemplateError, TemplateSyntaxError, nodes, pass_context
    from jinja2.ext import Extension, loopcontrols
    from jinja2.parser import Parser
    from jinja2.runtime import Context, Macro
    from jinja2.sandbox import ImmutableSandboxedEnvironment

Message = Mapping[str, Any]  # role, content, and what else the template knows

STEPS = 300_000  # of a conversation; the longest there are need some ten thousand
SECONDS = 5.0  # of the processor, for what the steps cannot see
LONGEST = 10_000_000  # characters or items of a value, and of the whole text
LARGEST = 1_000_000  # number that a function is given, a width for example
BITS = 4096  # of a whole number
CHARACTERS_PER_STEP = 16  # of the template's own text
STEP, SIZE = " step", " size"  # our own filters, under names that no template can write
# A width of millions in a format, or one that is given apart.
WIDE = re.compile(r"%[-#0 +\d.]*(\d{7}|\*)|\{[^{}]*:[^{}]*\d{7}")
# These make a text longer by a factor that they are given.
GROWING = {"batch", "center", "expandtabs", "indent", "join", "ljust", "rjust", "wordwrap", "zfill"}
TAG = "CONTINUE_FINAL_MESSAGE_TAG "


class ChatTemplate(NamedTuple):
    """A template and where it stands."""

    text: str
    source: str


def chat_text(
    template: ChatTemplate,
    messages: Sequence[Message],
    variables: Mapping[str, Any],
    now: datetime | None = None,
) -> str:
    """The conversation in the template; `now` is the moment that it is told, otherwise the present."""
    moment = datetime.now() if now is None else now
    try:
        given = {name: _plain(value, name) for name, value in variables.items()}
        given["messages"] = _plain(list(messages), "messages")
        given["strftime_now"] = moment.strftime
        compiled = _compiled(template.text)
        compiled.environment.meter = Meter()  # type: ignore[attr-defined]
        return compiled.render(given)
    except ProximaError:
        raise
    except Exception as failure:  # a template is a program: it may raise anything
        raise ProximaError(f"{template.source}{_line(failure)}: {_words(failure)}") from failure


def continued_text(
    template: ChatTemplate,
    messages: Sequence[Message],
    variables: Mapping[str, Any],
    now: datetime | None = None,
) -> str:
    """The conversation up to the end of its last message's content, for the model to go on with."""
    *before, last = messages or [{}]
    content = last.get("content")
    if not isinstance(content, str) or "content" not in template.text:
        raise ProximaError("messages: the last one has no text in its content to go on from")
    marked = [*before, {**last, "content": content + TAG}]
    text = chat_text(template, marked, variables, now)
    start = text.rfind(TAG.strip())
    if start < 0 or content.strip() not in text:
        raise ProximaError(
            f"{template.source}: the chat template does not write the last message as it is, so there is "
            "nothing to go on from; end with a message that it keeps"
        )
    kept = text[:start]
    # a template that trims messages has trimmed this one's end too
    return kept if text[start : start + len(TAG)] == TAG else kept.rstrip()


class Meter:
    """What a template has used up."""

    def __init__(self) -> None:
        self.steps, self.written = 0, 0
        self.started = time.thread_time()

    def step(self, count: int) -> bool:
        """True, and an error once there were too many."""
        self.steps += count
        if self.steps > STEPS:
            raise TemplateError(f"it takes more than {STEPS:,} steps")
        # asking for the time costs more than a step
        if self.steps % 64 < count and time.thread_time() - self.started > SECONDS:
            raise TemplateError(f"it takes more than {SECONDS:g} seconds")
        return True

    def write(self, value: Any) -> Any:
        """The value, which is about to be printed."""
        self.written += _size(value)
        _check(self.written)
        return value


class Generation(Extension):
    """{% generation %}…{% endgeneration %}: around what the assistant said; the text is the same."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        """As transformers has it, down to the scope of what is set inside."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_said"), [], [], body).set_lineno(line)

    def _said(self, caller: Macro) -> str:
        return caller()


class Environment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox with Hugging Face's settings, filters and functions, and a meter."""

    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self) -> None:
        extensions: list[type[Extension]] = [Generation, loopcontrols]
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
        self.meter = Meter()
        self.finalize = lambda value: self.meter.write(value)
        self.globals["raise_exception"] = refuse
        del self.globals["lipsum"], self.filters["random"]  # same conversation, same text
        self.filters["tojson"] = to_json
        self.filters = {name: _bounded(name, made) for name, made in self.filters.items()}
        self.filters[STEP] = pass_context(lambda context, count: self.meter.step(count))
        self.filters[SIZE] = _sized

    def _generate(self, source: nodes.Template, *arguments: Any, **options: Any) -> str:
        return super()._generate(_counted(source), *arguments, **options)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """What a function gives back to the template."""
        __self.meter.step(1)
        name, owner = getattr(__obj, "__name__", ""), getattr(__obj, "__self__", None)
        _checked_arguments("", tuple(kwargs.values()))
        if isinstance(owner, str):
            args = _checked_arguments(name, (owner, *args))[1:]
        else:
            _checked_arguments("", args)
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """left operator right, where that is not too long."""
        whole = isinstance(left, int) and isinstance(right, int)
        if operator == "*" and whole:
            _check(left.bit_length() + right.bit_length(), BITS)
        elif operator == "*" and not isinstance(left, float) and not isinstance(right, float):
            _check(_factor(left) * _factor(right))
        if operator == "**" and whole:
            _check(left.bit_length() * right, BITS)
        if operator == "%" and isinstance(left, str):
            _checked_arguments("format", (left,))
        made = super().call_binop(context, operator, left, right)
        _check(1 if isinstance(made, int) else _factor(made))
        return made

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """The sandbox's own format, where no width is too large."""
        made = super().wrap_str_format(value)
        if made is not None:
            _checked_arguments("format", (value.__self__,))
        return made


def refuse(message: str) -> None:
    """raise_exception: how a template says what it does not take."""
    raise TemplateError(message)


def to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """tojson: JSON as it is; Jinja's own filter escapes what HTML would take for tags."""
    _check(_size(value) * (1 + _factor(0 if indent is None else indent)))
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


@lru_cache
def _compiled(text: str) -> Template:
    return Environment().from_string(text)


def _counted(tree: nodes.Template) -> nodes.Template:
    """The template, which tells the meter each time that it goes through a body that can be repeated."""
    for joined in list(tree.find_all(nodes.Concat)):
        joined.nodes = [_filtered(joined, value, SIZE) for value in joined.nodes]
    repeated = (nodes.For, nodes.Macro, nodes.CallBlock, nodes.Block)
    for node in list(tree.find_all(repeated)):
        written = sum(len(text.data) for text in node.find_all(nodes.TemplateData))
        step = _filtered(node, nodes.Const(1 + written // CHARACTERS_PER_STEP), STEP)
        node.body = [nodes.ExprStmt(step, lineno=node.lineno), *node.body]  # type: ignore[attr-defined]
        if isinstance(node, nodes.For) and node.test is not None:
            tried = _filtered(node, nodes.Const(1), STEP)
            node.test = nodes.And(tried, node.test, lineno=node.lineno)
    return tree.set_environment(tree.environment)  # type: ignore[return-value, arg-type]


def _filtered(node: nodes.Node, value: nodes.Expr, name: str) -> nodes.Filter:
    return nodes.Filter(value, name, [], [], None, None, lineno=node.lineno)


def _bounded(name: str, made: Callable[..., Any]) -> Callable[..., Any]:
    """The filter, which refuses what would become too long."""

    @wraps(made)
    def bounded(*args: Any, **kwargs: Any) -> Any:
        args = _checked_arguments(name, args)
        _checked_arguments("", tuple(kwargs.values()))
        return made(*args, **kwargs)

    return bounded


def _checked_arguments(name: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments, of which no number, width or product of lengths is larger than anybody needs."""
    for value in values:
        if isinstance(value, int) and abs(value) > LARGEST:
            raise TemplateError(f"it gives a function a number above {LARGEST:,}")
    if name == "join":  # an iterator would be at its end once it is measured
        values = tuple(list(v) if isinstance(v, Iterator) else v for v in values)
        _check(sum(map(_size, values)))
    texts = [value for value in values if isinstance(value, str)]
    if name == "replace" and len(texts) > 2:
        _check(len(texts[0]) // max(1, len(texts[1])) * len(texts[2]))
    if name == "format" and texts and WIDE.search(texts[0]):
        raise TemplateError("it formats with a width that is too large")
    if name in GROWING:
        _check(math.prod(sorted(map(_factor, values))[-2:]))
    return values


@pass_context
def _sized(context: Context, value: Any) -> Any:
    """The value, unless it is too long to be put together with others."""
    _check(_size(value))
    return value


def _check(size: int, most: int = LONGEST) -> None:
    if size > most:
        raise TemplateError(f"it makes a value longer than {most:,}")


def _factor(value: Any) -> int:
    """How many times longer the value can make another."""
    if isinstance(value, str | list | tuple | dict | range):
        return len(value)
    return abs(value) if isinstance(value, int) else 1


def _size(value: Any) -> int:
    """About how many characters the value is when written; counted no further than what is too long."""
    size, waiting = 0, [value]
    while waiting and size <= LONGEST:
        item = waiting.pop()
        size += len(item) if isinstance(item, str) else 4  # with brackets, commas and quotes
        if isinstance(item, Mapping):
            waiting += [*item.keys(), *item.values()]
        elif isinstance(item, list | tuple):
            waiting += item
    return size


def _plain(value: Any, where: str) -> Any:
    """A copy of what a template is given, made of what JSON has."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    raise ProximaError(
        f"{where}: a chat template takes texts, numbers, lists and mappings, not {type(value).__name__}"
    )


def _line(failure: Exception) -> str:
    """Where in the template it happened, in words."""
    line = failure.lineno if isinstance(failure, TemplateSyntaxError) else None
    frames = traceback.extract_tb(failure.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename in ("<template>", "<unknown>")]
    line = lines[-1] if line is None and lines else line
    return "" if line is None else f", line {line}"


def _words(failure: Exception) -> str:
    if isinstance(failure, RecursionError):
        return "the chat template calls itself, or is nested, too deeply"
    if isinstance(failure, TemplateError):
        return f"the chat template: {failure.message or type(failure).__name__}"
    return f"the chat template failed ({type(failure).__name__}: {failure})"
