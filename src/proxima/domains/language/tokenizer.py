"""Texts to token ids and back: a Hugging Face tokenizer.json, or a byte-pair encoding learnt from texts.

Ids are what the components work with; text is made for people, for judges and for reward functions.
The ids that end a text (several are common) and the pad are said by a model's files; a pad is never an
EOS, and any other id will do as one, because masks come from lengths. Left out on purpose: tokenizers
without a tokenizer.json (plain SentencePiece), and cutting texts: who cuts, says where.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any, cast, final

import numpy as np
from jax import Array

from proxima.core.errors import ProximaError
from proxima.core.extras import needs_extra
from proxima.domains.language.chat_template import ChatTemplate, Message, chat_text, continued_text
from proxima.domains.language.hf_config import read_object
from proxima.domains.language.samples import Rows
from proxima.domains.language.tables import check_unicode, short
from proxima.files import explaining

with needs_extra("language", "domain: language"):
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, processors, trainers

EOS, PAD, BOS = "<eos>", "<pad>", "<bos>"
TOKENIZER, SETTINGS = "tokenizer.json", "tokenizer_config.json"
GENERATION, SPECIAL = "generation_config.json", "special_tokens_map.json"
TEMPLATE, TEMPLATES = "chat_template.jinja", "additional_chat_templates"
NAMED = ("name", "template")  # what a template of several is in the settings
DEFAULT, WITH_TOOLS = "default", "tool_use"  # names of templates, as transformers has them
MOST_IDS = 2**31 - 1  # that an array of ids can hold
Ids = Sequence[int]


@final
class Tokenizer:
    """A vocabulary with the ids that have a meaning: what ends a text, what starts one, what fills up."""

    def __init__(
        self,
        core: tokenizers.Tokenizer,
        eos_ids: Iterable[int],
        pad_id: int | None = None,
        bos_id: int | None = None,
        template: str | Mapping[str, ChatTemplate] | None = None,
        tokens: Mapping[str, str] | None = None,
        source: str = "the tokenizer",
    ):
        """`core` decides whether texts are given a BOS; without a pad, another id than EOS is taken.

        `tokens` are what chat templates know by name; without them that is bos_token and eos_token.
        """
        core.no_padding()
        core.no_truncation()
        self._core, self._source, self.bos_id = core, source, bos_id
        self.size = _size(core, source)
        self.eos_ids = tuple(dict.fromkeys(eos_ids))  # the first is the one put after texts
        if pad_id is None or pad_id in self.eos_ids:
            pad_id = self._other_pad()
        self.pad_id = pad_id
        if isinstance(template, str):
            template = {DEFAULT: ChatTemplate(template, f"{source}: chat_template")}
        self._templates: Mapping[str, ChatTemplate] = template or {}
        if tokens is None:
            ids = {"bos_token": bos_id, "eos_token": self.eos_id}
            tokens = {name: self._named(index) for name, index in ids.items() if index is not None}
        self._tokens = tokens

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, after a BOS where the tokenizer puts one; no EOS is added."""
        for row, text in enumerate(texts):
            check_unicode(text, f"text {row}")
        with _explained(self._source):
            encoded = [encoding.ids for encoding in self._core.encode_batch(list(texts))]
        # a chat template may have written the BOS already
        twice = [self.bos_id, self.bos_id]
        return [ids[1:] if ids[:2] == twice else ids for ids in encoded]

    def ids(self, prompts: Sequence[str] | Sequence[Ids]) -> list[Ids]:
        """Prompts as ids, which they may be already."""
        if len(prompts) > 0 and isinstance(prompts[0], str):
            return list(self.encode(cast(Sequence[str], prompts)))
        return list(cast(Sequence[Ids], prompts))

    def decode(self, ids: Ids) -> str:
        """The text of ids, without special tokens."""
        with _explained(self._source):
            return self._core.decode([int(index) for index in ids], skip_special_tokens=True)

    def tokens(self, ids: Ids) -> list[str]:
        """What each id stands for, readable; special tokens by their names."""
        return [self._piece(int(index)) for index in ids]

    def chat(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        template: str | None = None,
        variables: Mapping[str, Any] | None = None,
        now: datetime | None = None,
    ) -> str:
        """The conversation in the model's template, up to where its next turn begins.

        Words are those of transformers' apply_chat_template: `tools` are JSON schemas, `template` is a name,
        `variables` are what else the template asks for. `now` is the moment that it is told.
        """
        chosen = self._template(template, tools is not None)
        if not messages:
            raise ProximaError("messages: there are none; give at least one")
        write = continued_text if continue_final_message else chat_text
        given = {
            "tools": tools,
            "documents": documents,
            "add_generation_prompt": add_generation_prompt and not continue_final_message,
        }
        return write(chosen, messages, {**given, **self._tokens, **(variables or {})}, now)

    @property
    def eos_id(self) -> int:
        """The EOS that is put after texts."""
        return self.eos_ids[0]

    @property
    def has_chat(self) -> bool:
        """Whether there is a chat template."""
        return bool(self._templates)

    def save(self, folder: Path) -> None:
        """Writes the files from which `load_tokenizer` and Hugging Face's libraries read it again."""
        templates = {name: template.text for name, template in self._templates.items()}
        several = [{"name": name, "template": text} for name, text in templates.items()]
        settings = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **self._tokens,
            "eos_token": self._named(self.eos_id),
            "pad_token": self._named(self.pad_id),
            "bos_token": None if self.bos_id is None else self._named(self.bos_id),
            "chat_template": templates.get(DEFAULT) if len(templates) < 2 else several,
            "clean_up_tokenization_spaces": False,
        }
        generation = {
            "eos_token_id": list(self.eos_ids),
            "pad_token_id": self.pad_id,
            "bos_token_id": self.bos_id,
        }
        with explaining(folder, "tokenizer"):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / TOKENIZER).write_text(self.serialized(), encoding="utf-8")
            for name, content in ((SETTINGS, settings), (GENERATION, generation)):
                known = {key: value for key, value in content.items() if value is not None}
                text = json.dumps(known, indent=2, ensure_ascii=False) + "\n"
                (folder / name).write_text(text, encoding="utf-8")

    def serialized(self) -> str:
        """The content of its tokenizer.json; two tokenizers with the same are the same."""
        return self._core.to_str()

    def _template(self, name: str | None, with_tools: bool) -> ChatTemplate:
        """The template of that name; without one the usual, or the one for tools where there are some."""
        templates = self._templates
        if not templates:
            raise ProximaError(
                "the model's tokenizer has no chat template; set data.chat: false, or write the turns "
                "yourself with data.prompt_template"
            )
        if name is None:
            name = WITH_TOOLS if with_tools and WITH_TOOLS in templates else DEFAULT
        if name not in templates:
            known = ", ".join(sorted(templates))
            raise ProximaError(
                f"{self._source}: there is no chat template named {name}; there are {known}"
            )
        return templates[name]

    def _other_pad(self) -> int:
        """A special token if there is one besides EOS and BOS, else any."""
        added = self._core.get_added_tokens_decoder().items()
        candidates = chain((index for index, token in added if token.special), range(self.size))
        ends = {*self.eos_ids, self.bos_id}
        for index in candidates:
            if index not in ends:
                return index
        raise ProximaError(f"{self._source}: has no tokens besides those that start and end texts")

    def _named(self, index: int | None) -> str:
        return "" if index is None else self._core.id_to_token(index) or ""

    def _piece(self, index: int) -> str:
        token = self._core.id_to_token(index)
        if token is None:
            return f"<{index}>"  # an embedding may have more rows than the tokenizer has tokens
        if self._core.get_added_tokens_decoder().get(index) is not None:
            return token
        text = self._core.decode([index], skip_special_tokens=False)
        # SentencePiece's decoder takes the space off a text's first piece
        return f" {text}" if token.startswith("▁") and not text.startswith(" ") else text


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> Tokenizer:
    """A byte-level byte-pair encoding of `vocabulary` tokens, fewer where the texts hold fewer.

    Any text can be written in it. Texts start with a BOS, so that their first token is learnt too.
    """
    core = tokenizers.Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[EOS, PAD, BOS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    eos, pad, bos = 0, 1, 2  # special tokens come first, in their order
    core.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A $B", special_tokens=[(BOS, bos)]
    )
    return Tokenizer(core, (eos,), pad, bos)


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a Hugging Face folder, with the EOS ids that any of its files names."""
    path = folder / TOKENIZER
    if not path.is_file():
        raise ProximaError(
            f"{path}: no such file, so there is no tokenizer; copy the model's tokenizer.json there"
        )
    with _explained(str(path)):
        core = tokenizers.Tokenizer.from_file(str(path))
    tokens = _special_tokens(folder)

    def marked(key: str) -> int | None:
        return core.token_to_id(tokens[key]) if key in tokens else None

    for key in ("eos_token", "bos_token"):
        if key in tokens and marked(key) is None:
            raise ProximaError(
                f"{folder / SETTINGS}: {key}: {tokens[key]!r} is no token of {TOKENIZER}; copy both again"
            )
    config = _content(folder / "config.json")
    rows = config.get("vocab_size")  # an embedding may have more rows than there are tokens
    known = max(_size(core, path), rows if type(rows) is int else 0)
    eos_ids = [index for index in (marked("eos_token"),) if index is not None]
    eos_ids += _end_ids(folder / GENERATION, _content(folder / GENERATION), known)
    eos_ids += _end_ids(folder / "config.json", config, known)
    if not eos_ids:
        raise ProximaError(
            f"{folder}: no file says which token ends a text; put eos_token into {SETTINGS}"
        )
    marks = (marked("pad_token"), marked("bos_token"), _templates_in(folder), tokens)
    made = Tokenizer(core, eos_ids, *marks, str(path))
    for index in made.encode([""])[0]:  # what it puts around texts
        if index >= known:
            raise ProximaError(
                f"{path}: post_processor: {index} is none of the {known:,} ids; copy it again"
            )
    return made


def left_padded(lists: Sequence[Ids], pad_id: int, width: int | None = None) -> Rows:
    """The lists side by side, each at the right end of its row; the longest gives the width."""
    return _padded(lists, pad_id, width, left=True)


def right_padded(lists: Sequence[Ids], pad_id: int, width: int | None = None) -> Rows:
    """The lists side by side, each at the left end of its row; the longest gives the width."""
    return _padded(lists, pad_id, width, left=False)


def unpadded(rows: Rows) -> list[list[int]]:
    """The valid ids of each row."""
    ids, mask = np.asarray(rows.ids), np.asarray(rows.mask)
    return [row[valid].tolist() for row, valid in zip(ids, mask, strict=True)]


def _padded(lists: Sequence[Ids], pad_id: int, width: int | None, left: bool) -> Rows:
    lengths = np.array([len(ids) for ids in lists], np.int32)
    longest = int(lengths.max(initial=0))
    width = longest if width is None else width
    if longest > width:
        raise ValueError(f"a list of {longest} ids does not fit a row of {width}")
    steps = np.arange(width)[None]
    mask = steps >= width - lengths[:, None] if left else steps < lengths[:, None]
    ids = np.full(mask.shape, pad_id, np.int32)
    if longest:
        ids[mask] = np.concatenate([np.asarray(row, np.int32) for row in lists])
    return Rows(cast(Array, ids), cast(Array, mask))


def _size(core: tokenizers.Tokenizer, path: Path | str) -> int:
    """How many rows an embedding needs: ids may have gaps, so the last one decides."""
    size = 1 + max(core.get_vocab(with_added_tokens=True).values(), default=-1)
    if size > MOST_IDS:
        raise ProximaError(f"{path}: vocab: has a token with the id {size - 1}; copy it again")
    return size


def _content(path: Path) -> dict[str, Any]:
    """What a JSON file of the folder says; nothing where it is not there."""
    if not path.exists():
        return {}
    try:
        return read_object(path)
    except OSError as failure:
        raise ProximaError(
            f"{path}: cannot be read ({failure.strerror}); copy it again"
        ) from failure
    except RecursionError as failure:
        raise ProximaError(f"{path}: is nested too deeply; copy it again") from failure


def _special_tokens(folder: Path) -> dict[str, str]:
    """Special tokens by what they are for, as the folder's files name them; the settings count more."""
    tokens: dict[str, str] = {}
    for path in (folder / SPECIAL, folder / SETTINGS):
        content = _content(path)
        extra = content.get("extra_special_tokens")
        named = {**content, **(extra if isinstance(extra, dict) else {})}
        for key, token in named.items():
            if not key.endswith("_token") or token is None or isinstance(token, bool):
                continue  # add_bos_token and the like say yes or no
            text = token.get("content") if isinstance(token, dict) else token
            if not isinstance(text, str):
                raise ProximaError(f"{path}: {key}: expected a token, got {short(repr(token))}")
            check_unicode(text, f"{path}: {key}")
            tokens[key] = text
    return tokens


def _end_ids(path: Path, content: Mapping[str, Any], known: int) -> list[int]:
    """The ids that a file names as those that end texts, all of the `known` first ones."""
    given = content.get("eos_token_id")
    ids = given if isinstance(given, list) else [] if given is None else [given]
    for index in ids:
        if type(index) is not int:
            raise ProximaError(f"{path}: eos_token_id: expected an id, got {short(repr(index))}")
        if not 0 <= index < known:
            raise ProximaError(
                f"{path}: eos_token_id: {index} is none of the {known:,} ids there are"
            )
    return ids


def _templates_in(folder: Path) -> dict[str, ChatTemplate]:
    """Chat templates by name; files of their own count more than the settings."""
    files = {DEFAULT: folder / TEMPLATE} if (folder / TEMPLATE).exists() else {}
    files |= {path.stem: path for path in sorted((folder / TEMPLATES).glob("*.jinja"))}
    if files:
        return {name: ChatTemplate(_text(path), str(path)) for name, path in files.items()}
    path = folder / SETTINGS
    given = _content(path).get("chat_template")
    if given is None:
        return {}
    named = given if isinstance(given, list) else [{"name": DEFAULT, "template": given}]
    templates = {}
    for entry in named:
        name, text = (entry.get(key) if isinstance(entry, dict) else None for key in NAMED)
        if not isinstance(name, str) or not isinstance(text, str):
            raise ProximaError(
                f"{path}: chat_template: expected a text, or a list of {' and '.join(NAMED)}, got "
                f"{short(repr(entry))}"
            )
        check_unicode(name + text, f"{path}: chat_template")
        templates[name] = ChatTemplate(text, f"{path}: chat_template")
    return templates


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as failure:
        raise ProximaError(f"{path}: cannot be read ({failure}); copy it again") from failure


@contextmanager
def _explained(source: str) -> Iterator[None]:
    """Puts it into words if the library of tokenizers cannot do what it is asked."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError):
        raise
    except (
        BaseException
    ) as failure:  # its Rust part raises bare Exceptions, and panics that are none
        raise ProximaError(f"{source}: is not a tokenizer ({failure}); copy it again") from failure
