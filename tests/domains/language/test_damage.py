"""Damaged tokenizers and text tables, one damage for each seed: read all the same, or refused in words."""

import json

import polars as pl
import pytest
from chat_templates import KEPT, TALK, write_folder
from damage import damaged_bytes, damaged_json

from proxima.core.errors import ProximaError
from proxima.domains.language.config import TextDataConfig
from proxima.domains.language.data import read_texts
from proxima.domains.language.generate import bucket
from proxima.domains.language.tokenizer import left_padded, load_tokenizer

SEEDS = range(40)
TEMPLATES = [{"name": "default", "template": KEPT}, {"name": "tool_use", "template": "{{ tools }}"}]
SPECIAL = {
    "eos_token": {"content": "<eos>", "special": True},
    "extra_special_tokens": {"a_token": "a"},
}
FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "config.json",
    "special_tokens_map.json",
)
ROWS = [{"text": f"film {i} is fine", "rating": i / 4, "prompt": f"film {i}"} for i in range(12)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = write_folder(tmp_path_factory.mktemp("tokenizer"), TEMPLATES)
    (folder / "config.json").write_text(json.dumps({"vocab_size": 400, "eos_token_id": [0, 5]}))
    (folder / "special_tokens_map.json").write_text(json.dumps(SPECIAL))
    return folder


def put(path, content):
    path.write_bytes(
        content if isinstance(content, bytes) else content.encode(errors="surrogatepass")
    )


def use_tokenizer(folder):
    tokenizer = load_tokenizer(folder)
    assert all(
        0 <= index < max(tokenizer.size, 400) for index in (*tokenizer.eos_ids, tokenizer.pad_id)
    )
    texts = [
        "a fine film",
        "",
        "naïve 映画",
        *([tokenizer.chat(TALK)] if tokenizer.has_chat else []),
    ]
    ids = tokenizer.encode(texts)
    left_padded(ids, tokenizer.pad_id, bucket(max(map(len, ids))))
    for row in ids:
        tokenizer.decode(row)
        tokenizer.tokens(row)
    tokenizer.save(folder / "again")


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_tokenizer_is_read_or_refused_in_words(name, folder, tmp_path):
    whole = (folder / name).read_text()
    for each in FILES:
        (tmp_path / each).write_text((folder / each).read_text())
    for seed in SEEDS:
        for damaged in (damaged_json(whole, seed), damaged_bytes(whole.encode(), seed)):
            put(tmp_path / name, damaged)
            try:
                use_tokenizer(tmp_path)
            except ProximaError as refused:
                assert str(tmp_path) in str(refused) or "chat template" in str(refused), (
                    seed,
                    refused,
                )


def written(path):
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    elif path.suffix == ".csv":
        pl.DataFrame(ROWS).write_csv(path)
    else:
        pl.DataFrame(ROWS).write_parquet(path)
    return path.read_bytes()


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_a_damaged_table_is_read_or_refused_in_words(ending, tmp_path):
    path = tmp_path / f"table.{ending}"
    whole, config = written(path), TextDataConfig(source="file", path=str(path), held_out=0.25)
    for seed in SEEDS:
        damages = [damaged_bytes(whole, seed)]
        if ending == "jsonl":
            first, _, rest = whole.partition(b"\n")
            row = damaged_json(first.decode(), seed).encode(errors="surrogatepass")
            damages.append(row + b"\n" + rest)
        for damaged in damages:
            put(path, damaged)
            try:
                read_texts(config, "mine")
            except ProximaError as refused:
                assert str(path) in str(refused), (seed, refused)
