"""Texts to token ids and back: a Hugging Face tokenizer.json, or a byte-pair encoding learnt from texts.

Ids are what the components work with; text is made for people, for judges and for reward functions.
The ids that end a text (several are common) and the pad are said by a model's files; a pad is never an
EOS, and any other id will do as one, because masks come from lengths. Left out on purpose: tokenizers
without a tokenizer.json (plain SentencePiece), and cutting texts: who cuts, says where.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast, final

import numpy as np
from jax import Array

from proxima.core.errors import ProximaError
from proxima.core.extras import needs_extra
from proxima.domains.language.hf_config import read_object
from proxima.domains.language.samples import Rows
from proxima.files import explaining

with needs_extra("language", "domain: language"):
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, processors, trainers

EOS, PAD, BOS = "<eos>", "<pad>", "<bos>"
TOKENIZER, SETTINGS = "tokenizer.json", "tokenizer_config.json"
GENERATION, TEMPLATE = "generation_config.json", "chat_template.jinja"
Ids = Sequence[int]
Message = dict[str, str]  # role and content


@final
class Tokenizer:
    """A vocabulary with the ids that have a meaning: what ends a text, what starts one, what fills up."""

    def __init__(
        self,
        core: tokenizers.Tokenizer,
        eos_ids: Iterable[int],
        pad_id: int | None = None,
        bos_id: int | None = None,
        template: str | None = None,
    ):
        """`core` decides whether texts are given a BOS; without a pad, another id than EOS is taken."""
        core.no_padding()
        core.no_truncation()
        self._core, self._template, self.bos_id = core, template, bos_id
        self.size = core.get_vocab_size(with_added_tokens=True)
        self.eos_ids = tuple(dict.fromkeys(eos_ids))  # the first is the one put after texts
        if pad_id is None or pad_id in self.eos_ids:
            # a special token if there is one besides EOS, else any
            added = core.get_added_tokens_decoder().items()
            candidates = [*(index for index, token in added if token.special), *range(self.size)]
            pad_id = next(index for index in candidates if index not in {*self.eos_ids, bos_id})
        self.pad_id = pad_id

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, after a BOS where the tokenizer puts one; no EOS is added."""
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
        return self._core.decode([int(index) for index in ids], skip_special_tokens=True)

    def tokens(self, ids: Ids) -> list[str]:
        """What each id stands for, readable; special tokens by their names."""
        return [self._piece(int(index)) for index in ids]

    def chat(self, messages: Sequence[Message]) -> str:
        """The conversation in the model's template, up to where its next turn begins."""
        if self._template is None:
            raise ProximaError(
                "the model's tokenizer has no chat template; set data.chat: false, or write the turns "
                "yourself with data.prompt_template"
            )
        return _filled(self._template, messages, self._named(self.bos_id), self._named(self.eos_id))

    @property
    def eos_id(self) -> int:
        """The EOS that is put after texts."""
        return self.eos_ids[0]

    @property
    def has_chat(self) -> bool:
        """Whether there is a chat template."""
        return self._template is not None

    def save(self, folder: Path) -> None:
        """Writes the files from which `load_tokenizer` and Hugging Face's libraries read it again."""
        settings = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": self._named(self.eos_id),
            "pad_token": self._named(self.pad_id),
            "bos_token": None if self.bos_id is None else self._named(self.bos_id),
            "chat_template": self._template,
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
    try:
        core = tokenizers.Tokenizer.from_file(str(path))
    except Exception as failure:  # the library raises nothing narrower
        raise ProximaError(f"{path}: is not a tokenizer ({failure}); copy it again") from failure
    settings, generation = _content(folder / SETTINGS), _content(folder / GENERATION)
    config, names = _content(folder / "config.json"), _content(folder / "special_tokens_map.json")

    def marked(key: str) -> int | None:
        token = settings.get(key) or names.get(key)
        token = token["content"] if isinstance(token, dict) else token
        return None if token is None else core.token_to_id(token)

    ends = [marked("eos_token")]
    for content in (generation, config):
        end = content.get("eos_token_id")
        ends += end if isinstance(end, list) else [end]
    eos_ids = [end for end in ends if end is not None]
    if not eos_ids:
        raise ProximaError(
            f"{folder}: no file says which token ends a text; put eos_token into {SETTINGS}"
        )
    return Tokenizer(core, eos_ids, marked("pad_token"), marked("bos_token"), _template_in(folder))


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


def _content(path: Path) -> dict[str, Any]:
    """What a JSON file of the folder says; nothing where it is not there."""
    return read_object(path) if path.is_file() else {}


def _template_in(folder: Path) -> str | None:
    if (folder / TEMPLATE).is_file():
        return (folder / TEMPLATE).read_text(encoding="utf-8")
    template = _content(folder / SETTINGS).get("chat_template")
    if isinstance(template, list):  # several by name, of which one is the usual
        template = {entry["name"]: entry["template"] for entry in template}.get("default")
    return template


def _filled(template: str, messages: Sequence[Message], bos: str, eos: str) -> str:
    with needs_extra("language", "the model's chat template"):
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise TemplateError(message)

    # the settings that Hugging Face's templates are written for
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = refuse
    try:
        return environment.from_string(template).render(
            messages=list(messages), add_generation_prompt=True, bos_token=bos, eos_token=eos
        )
    except TemplateError as failure:
        raise ProximaError(f"the model's chat template: {failure}") from failure
