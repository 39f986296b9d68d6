"""Chat templates: the characters of transformers, bounds that no template passes, and failures in words."""

import json
import signal

import pytest
from chat_templates import CASES, GOLDEN, KEPT, NOW, SCHEMA, TALK, USER, write_folder

from proxima.core.errors import ProximaError
from proxima.domains.language import chat_template
from proxima.domains.language.chat_template import ChatTemplate, chat_text
from proxima.domains.language.tokenizer import load_tokenizer

EXPECTED = json.loads(GOLDEN.read_text())


def rendered(text, messages=(USER,), **variables):
    return chat_text(ChatTemplate(text, "model/chat_template.jinja"), messages, variables)


@pytest.mark.parametrize("name", CASES)
def test_the_text_is_that_of_transformers(name, tmp_path):
    template, messages, options = CASES[name]
    tokenizer = load_tokenizer(write_folder(tmp_path, template))
    assert tokenizer.chat(messages, now=NOW, **options) == EXPECTED[name]
    tokenizer.save(tmp_path / "again")
    again = load_tokenizer(tmp_path / "again")
    assert again.chat(messages, now=NOW, **options) == EXPECTED[name]


def test_templates_by_name(tmp_path):
    several = [
        {"name": "default", "template": "usual"},
        {"name": "tool_use", "template": "tools{{ tools | length }}"},
        {"name": "rag", "template": "rag"},
    ]
    tokenizer = load_tokenizer(write_folder(tmp_path, several))
    tokenizer.save(tmp_path / "again")
    for read in (tokenizer, load_tokenizer(tmp_path / "again")):
        assert read.chat(TALK) == "usual"
        assert read.chat(TALK, tools=[SCHEMA]) == "tools1"
        assert read.chat(TALK, template="rag") == "rag"
        with pytest.raises(ProximaError, match="named other; there are default, rag, tool_use"):
            read.chat(TALK, template="other")


def test_files_of_their_own_count_more_than_the_settings(tmp_path):
    write_folder(tmp_path, "settings")
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "rag.jinja").write_text("rag")
    with pytest.raises(ProximaError, match="named default; there are rag"):
        load_tokenizer(tmp_path).chat(TALK)
    (tmp_path / "chat_template.jinja").write_text("file")
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.chat(TALK) == "file" and tokenizer.chat(TALK, template="rag") == "rag"


def test_nothing_to_go_on_from(tmp_path):
    tokenizer = load_tokenizer(write_folder(tmp_path, "{{ messages[0].content }}"))
    for messages, words in (
        ([], "messages: there are none"),
        ([USER, {"role": "assistant"}], "has no text in its content"),
        ([USER, {"role": "assistant", "content": "so"}], "does not write the last message"),
    ):
        with pytest.raises(ProximaError, match=words):
            tokenizer.chat(messages, continue_final_message=True)


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (
            "\n{{ raise_exception('no system turns') }}",
            ", line 2: the chat template: no system turns$",
        ),
        ("{{ messages[0].who.name }}", ", line 1: the chat template: .*no attribute 'who'"),
        ("a\n\n{{ 'a' + 1 }}", r", line 3: the chat template failed \(TypeError: can only concat"),
        ("{{ 1 / 0 }}", r"failed \(ZeroDivisionError"),
        ("{{ messages | tojson | int / 'a' }}", r"failed \(TypeError"),
        ("{{ {1: range(2)} | tojson }}", r"failed \(TypeError: .*range is not JSON serializable"),
        ("{{ strftime_now(5) }}", r"failed \(TypeError"),
        ("a\n{% for %}", ", line 2: the chat template: "),
        ("{{ messages | nothing }}", "No filter named 'nothing'"),
        ("{% include 'other' %}", r"failed \(TypeError: no loader"),
        (
            "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
            "calls itself, or is nested, too deeply",
        ),
        ("{{ " + "(" * 9000 + "1" + ")" * 9000 + " }}", "calls itself, or is nested, too deeply"),
        ("{% for a in b %}" * 30 + "{% endfor %}" * 30, r"failed \(SyntaxError"),
        ("{{ messages.append(1) }}", "'append' of 'list' object is unsafe"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
    ],
)
def test_a_template_that_fails_is_named_with_what_it_says(template, words):
    with pytest.raises(ProximaError, match=rf"^model/chat_template\.jinja.*{words}"):
        rendered(template)


ENDLESS = {
    "nested loops": "{% for a in r %}{% for b in r %}{% for c in r %}{% endfor %}{% endfor %}{% endfor %}",
    "a filtered loop": "{% for a in r %}{% for b in r if false %}{% endfor %}{% endfor %}",
    "a recursive loop": "{% for a in r recursive %}{{ loop(r) if loop.depth < 5 }}{% endfor %}",
    "macros": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "blocks": "{% block a %}{% for i in r %}{{ self.b() }}{% endfor %}{% endblock %}"
    "{% block b %}{% for i in r %}{% endfor %}{% endblock %}",
}
TOO_LONG = {
    "a power": "{{ 9 ** (10 ** 9) }}",
    "powers": "{% set ns = namespace(n=3) %}{% for a in r %}{% set ns.n = ns.n * ns.n %}{% endfor %}",
    "a product": "{{ 'a' * 10 ** 11 }}",
    "a list": "{{ [0] * 10 ** 11 }}",
    "doubling": "{% set ns = namespace(t='a') %}{% for a in r %}{% set ns.t = ns.t ~ ns.t %}{% endfor %}",
    "adding": "{% set ns = namespace(t='a') %}{% for a in r %}{% set ns.t = ns.t + ns.t %}{% endfor %}",
    "printing": "{% for a in r %}{{ 'a' * 1000 }}{% endfor %}",
    "nesting": "{% set ns = namespace(t=[1]) %}{% for a in range(99) %}{% set ns.t = [ns.t, ns.t] %}"
    "{% endfor %}{{ ns.t }}",
    "nested JSON": "{% set ns = namespace(t=[1]) %}{% for a in range(99) %}{% set ns.t = [ns.t, ns.t] %}"
    "{% endfor %}{{ ns.t | tojson }}",
    "a width": "{{ 'a' | center(10 ** 11) }}",
    "a method's width": "{{ 'a'.ljust(10 ** 11) }}",
    "a format's width": "{{ '%99999999999d' % 1 }}",
    "a filter's format": "{{ '%99999999999d' | format(1) }}",
    "a method's format": "{{ '{:99999999999}'.format(1) }}",
    "replacing": "{% set t = 'a' * 10 ** 6 %}{{ t.replace('a', t) }}",
    "a filter that replaces": "{% set t = 'a' * 10 ** 6 %}{{ t | replace('a', t) }}",
    "joining": "{% set t = 'a' * 10 ** 6 %}{{ t.join(t) }}",
    "joining many": "{{ (['a' * 10 ** 6] * 10 ** 5) | join }}",
    "indenting": "{{ ('a\n' * 10 ** 6) | indent(10 ** 6) }}",
    "indented JSON": "{{ messages | tojson(indent=10 ** 9) }}",
    "a batch": "{{ [1] | batch(10 ** 9, 0) | list }}",
    "a range": "{{ range(10 ** 9) | list }}",
}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_template_without_end_is_ended(name):
    with pytest.raises(ProximaError, match=r"chat_template\.jinja.*: it takes more than"):
        rendered(ENDLESS[name], r=list(range(10000)))


@pytest.mark.parametrize("name", TOO_LONG)
def test_a_template_that_takes_all_memory_is_ended(name):
    told = "longer than|a number above|width|takes more than|Range too big"
    with pytest.raises(ProximaError, match=f"chat_template.jinja.*({told})"):
        rendered(TOO_LONG[name], r=list(range(100000)))


def test_what_no_step_shows_is_ended_by_the_processors_time(monkeypatch):
    monkeypatch.setattr(chat_template, "SECONDS", 0.05)
    with pytest.raises(ProximaError, match=r"it takes more than 0\.05 seconds"):
        rendered("{% for a in r %}{{ -1 in r }}{% endfor %}", r=list(range(100000)))


def test_a_signal_reaches_a_template_that_goes_on():
    def interrupt(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with pytest.raises(KeyboardInterrupt):
            rendered(ENDLESS["nested loops"], r=list(range(10000)))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_large_numbers_are_no_long_texts():
    assert rendered("{{ 0.5 * 40000000 }} {{ 2 ** 100 }} {{ 7 * 10 ** 9 }}").startswith(
        "20000000.0"
    )


def test_a_long_conversation_is_within_bounds():
    turns = [{"role": "user", "content": "word " * 100}] * 5000
    assert len(rendered(KEPT, turns)) == 5000 * (len("<user></>") + 500)


def test_each_conversation_has_the_whole_bound():
    loop = "{% for a in r %}{% for b in r %}{% endfor %}{% endfor %}{{ messages[0].role }}"
    for _ in range(3):
        assert rendered(loop, r=list(range(400))) == "user"


def test_what_is_no_json_is_refused():
    with pytest.raises(
        ProximaError, match=r"messages\[0\]\.content\[1\]: a chat template takes.*object"
    ):
        rendered("", [{"role": "user", "content": ["a", object()]}])
