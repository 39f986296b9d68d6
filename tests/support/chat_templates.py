"""Chat templates in the manner of well-known models, conversations for them, and what transformers writes.

`python tests/support/chat_templates.py` writes tests/support/golden_chat.json anew; it needs transformers.
"""

import json
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

from proxima.domains.language.tokenizer import train_tokenizer

GOLDEN = Path(__file__).parent / "golden_chat.json"
NOW = datetime(2026, 3, 9, 7, 5)
# A special token without an id would be added to the vocabulary by transformers.
TOKENS = {"unk_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>"}

TURNS = """{%- for message in messages %}
    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('roles must alternate') }}
    {%- endif %}
    {{- '<|' ~ message['role'] ~ '|>\\n' + message['content'] | trim }}
    {%- if not loop.last %}{{ eos_token }}{% endif %}
{%- endfor %}
{% if add_generation_prompt %}
<|assistant|>
{% endif %}
"""
TOOLS = """{{ bos_token }}{% if tools %}
[TOOLS]{{ tools | tojson }}[/TOOLS]
{% for tool in tools -%}
  {{ tool.function.name }}: {{ tool | tojson(indent=2) }}
  {{ tool.function.parameters | tojson(separators=(',', ':'), sort_keys=True) }}
{% endfor %}
{%- else %}
no tools{{ tools is none }}{{ documents is none }}
{%- endif %}
{%- for m in messages %}
[{{ m.role | upper }}]{% if m.tool_calls is defined %}
{%- for call in m.tool_calls %}{{ call.arguments | tojson(ensure_ascii=True) }};{% endfor %}
{%- else %}{{ m.content }}{% endif %}
{% endfor %}{{ unk_token }}|{{ sep_token is defined }}|{{ nothing }}"""
LOOPS = """{%- set ns = namespace(seen=0, last='') -%}
{% for m in messages %}
{% if m.role == 'system' %}{% continue %}{% endif %}
{% if ns.seen >= 2 %}{% break %}{% endif %}
{% set ns.seen = ns.seen + 1 %}
{{ loop.index }}/{{ loop.length }} {{ m.role }}{{ ',' if not loop.last }}
{% else %}
nobody
{% endfor %}
{% for c in 'abc' if c != 'b' %}{{ loop.revindex }}{{ c }}{% endfor %}
{% macro part(text, n=1) %}({{ text * n }}{{ caller() if caller }}){% endmacro %}
{{ part('x', 3) }}{% call part('y') %}z{% endcall %}
{{ "%s has %05.1f" % (ns.seen, 2.5) }} {{ '{:>4}'.format(7) }} {{ [1, 2] + [3] }} {{ 2 ** 10 }}
{{ messages | map(attribute='role') | join('+') }} {{ (messages | last).content.replace('a', 'A') }}
{% for key, value in {'b': 1, 'a': '<&>'} | dictsort %}{{ key }}={{ value }};{% endfor %}"""
GENERATION = """{% for m in messages %}
{% if m.role == 'assistant' %}
<a>{% generation %}{% set inner = 1 %}{{ m.content }}{{ eos_token }}{% endgeneration %}</a>{{ inner }}
{% else %}
<u>{{ m.content }}</u>
{% endif %}
{% endfor %}"""
DATED = """{{ strftime_now('%d %b %Y') }}{{ strftime_now(" %H:%M") if strftime_now is defined }}
{% for m in messages %}{{ m.content }}{% endfor %}"""
RAG = """{% for d in documents %}Document {{ loop.index0 }}: {{ d.title }}
{{ d['text'] }}

{% endfor %}{{ messages[-1].content }}{{ '<think>' if enable_thinking }}"""
PARTS = """{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}
{%- for part in m.content %}{{ part.text if part.type == 'text' else '<' ~ part.type ~ '>' }}{% endfor %}
{%- endif %}|{% endfor %}"""
KEPT = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
    "{% if add_generation_prompt %}<a>{% endif %}"
)

USER = {"role": "user", "content": " What's <b>new</b> & “naïve” 映画? \n"}
TALK: list[dict[str, Any]] = [
    USER,
    {"role": "assistant", "content": "Nothing at all."},
    {"role": "user", "content": "And now?"},
]
SYSTEM = {"role": "system", "content": "Be brief."}
SCHEMA = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a place <é> 'quoted'",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
    },
}
CALL = {"role": "assistant", "tool_calls": [{"name": "weather", "arguments": {"place": "Zürich"}}]}
MIXED = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "this"}]}
ANSWER = {"role": "assistant", "content": "Well, it is "}

# name: template, messages, options of apply_chat_template
CASES: dict[str, tuple[str, list[dict[str, Any]], dict[str, Any]]] = {
    "turns": (TURNS, TALK, {"add_generation_prompt": True}),
    "turns, closed": (TURNS, TALK, {"add_generation_prompt": False}),
    "tools": (TOOLS, [USER, CALL], {"tools": [SCHEMA, SCHEMA]}),
    "no tools": (TOOLS, TALK, {}),
    "loop controls": (LOOPS, [SYSTEM, *TALK], {}),
    "generation": (GENERATION, TALK, {"add_generation_prompt": True}),
    "dated": (DATED, TALK, {}),
    "documents": (
        RAG,
        TALK,
        {"documents": [{"title": "A", "text": "b"}], "variables": {"enable_thinking": True}},
    ),
    "parts": (PARTS, [MIXED, *TALK], {}),
    "continued": (KEPT, [USER, ANSWER], {"continue_final_message": True}),
    "continued, trimmed": (
        KEPT.replace("m.content }}", "m.content | trim }}"),
        [USER, ANSWER],
        {"continue_final_message": True},
    ),
    "other tokens": (
        "{{ bos_token }}" + KEPT,
        TALK,
        {"add_generation_prompt": False, "variables": {"bos_token": "!"}},
    ),
}


def write_folder(folder: Path, template: Any) -> Path:
    """A tokenizer with that chat template, as Hugging Face writes it."""
    train_tokenizer(["a fine film"], 300).save(folder)
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **TOKENS}
    if template is not None:
        settings["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def main() -> None:
    import transformers
    from transformers.utils import chat_template_utils

    class Fixed(datetime):
        @classmethod
        def now(cls, tz=None):
            return NOW

    chat_template_utils.datetime = Fixed
    golden = {}
    with tempfile.TemporaryDirectory() as place:
        for name, (template, messages, options) in CASES.items():
            folder = write_folder(Path(place) / name, template)
            theirs = transformers.AutoTokenizer.from_pretrained(folder)
            given = {**options, **options.get("variables", {})}
            given.pop("variables", None)
            golden[name] = theirs.apply_chat_template(messages, tokenize=False, **given)
    GOLDEN.write_text(json.dumps(golden, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    sys.exit(main())
