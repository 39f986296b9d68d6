"""Tokenizers: texts survive the round trip, EOS ids come from every file, a pad is never an EOS."""

import json

import numpy as np
import pytest

from proxima.core.errors import ProximaError
from proxima.domains.language.tokenizer import (
    left_padded,
    load_tokenizer,
    right_padded,
    train_tokenizer,
    unpadded,
)

TEXTS = [
    "a fine and funny film",
    "a film so dull that it hurts",
    "funny , fine and worth the time",
]
CHAT = (
    "{{ bos_token }}{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{{ eos_token }}\n"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, 300)


def rewritten(folder, name, **changes):
    path = folder / name
    content = json.loads(path.read_text()) if path.exists() else {}
    content = {key: value for key, value in (content | changes).items() if value is not None}
    path.write_text(json.dumps(content))


def test_any_text_survives_the_round_trip(tokenizer):
    texts = [*TEXTS, "", " leading", "naïve café 映画 🎬", "tab\tand\nline", "<eosx>"]
    for text, ids in zip(texts, tokenizer.encode(texts), strict=True):
        assert ids[0] == tokenizer.bos_id and not set(ids) & set(tokenizer.eos_ids)
        assert tokenizer.decode(ids) == text


def test_special_tokens_are_three_different_ids_that_decoding_leaves_out(tokenizer):
    special = {*tokenizer.eos_ids, tokenizer.pad_id, tokenizer.bos_id}
    assert len(special) == 3 and tokenizer.size <= 300
    ids = tokenizer.encode(["a fine film"])[0]
    assert tokenizer.decode([*ids, tokenizer.eos_id, tokenizer.pad_id]) == "a fine film"


def test_pieces_are_readable_and_spell_the_text(tokenizer):
    ids = [*tokenizer.encode(["a fine film"])[0], tokenizer.eos_id]
    pieces = tokenizer.tokens(ids)
    assert pieces[0] == "<bos>" and pieces[-1] == "<eos>"
    assert "".join(pieces[1:-1]) == "a fine film"
    assert tokenizer.tokens([10_000]) == ["<10000>"]


def test_training_twice_gives_the_same(tokenizer):
    assert train_tokenizer(TEXTS, 300).serialized() == tokenizer.serialized()


def test_saved_and_loaded_it_is_the_same(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "model")
    again = load_tokenizer(tmp_path / "model")
    assert again.serialized() == tokenizer.serialized()
    for name in ("eos_ids", "pad_id", "bos_id", "size"):
        assert getattr(again, name) == getattr(tokenizer, name)


def test_every_file_may_name_eos_ids(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    rewritten(tmp_path, "generation_config.json", eos_token_id=[7, 0])
    rewritten(tmp_path, "config.json", eos_token_id=9)
    assert load_tokenizer(tmp_path).eos_ids == (0, 7, 9)


@pytest.mark.parametrize("pad", ["<eos>", None])
def test_a_pad_that_is_an_eos_or_missing_is_replaced(tokenizer, tmp_path, pad):
    tokenizer.save(tmp_path)
    rewritten(tmp_path, "tokenizer_config.json", pad_token=pad)
    again = load_tokenizer(tmp_path)
    assert again.pad_id not in {*again.eos_ids, again.bos_id}
    assert 0 <= again.pad_id < again.size


def test_chat_template_from_either_file_and_bos_once(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    assert not load_tokenizer(tmp_path).has_chat
    rewritten(tmp_path, "tokenizer_config.json", chat_template=CHAT)
    messages = [{"role": "user", "content": "a film"}]
    first = load_tokenizer(tmp_path)
    assert first.chat(messages) == "<bos><user>a film<eos>\n<assistant>"
    ids = first.encode([first.chat(messages)])[0]
    assert ids.count(first.bos_id) == 1 and ids[0] == first.bos_id
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}!")
    assert load_tokenizer(tmp_path).chat(messages) == "a film!"
    first.save(tmp_path / "again")
    assert load_tokenizer(tmp_path / "again").chat(messages) == first.chat(messages)


def test_errors_say_what_is_missing(tokenizer, tmp_path):
    with pytest.raises(ProximaError, match=r"tokenizer\.json: no such file"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ProximaError, match="is not a tokenizer"):
        load_tokenizer(tmp_path)
    tokenizer.save(tmp_path)
    rewritten(tmp_path, "tokenizer_config.json", eos_token=None)
    rewritten(tmp_path, "generation_config.json", eos_token_id=None)
    with pytest.raises(ProximaError, match="which token ends a text"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("nothing")
    with pytest.raises(ProximaError, match="is not JSON"):
        load_tokenizer(tmp_path)
    with pytest.raises(ProximaError, match="no chat template"):
        tokenizer.chat([])
    with pytest.raises(ProximaError, match="cannot write"):
        (tmp_path / "file").write_text("")
        tokenizer.save(tmp_path / "file")


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("tokenizer_config.json", {"eos_token": 5}, "eos_token: expected a token, got 5"),
        (
            "tokenizer_config.json",
            {"bos_token": {"id": 1}},
            "bos_token: expected a token, got {'id'",
        ),
        ("tokenizer_config.json", {"eos_token": "<gone>"}, "eos_token: '<gone>' is no token of"),
        ("tokenizer_config.json", {"pad_token": "\ud800"}, "pad_token: character 0 is no Unicode"),
        (
            "tokenizer_config.json",
            {"chat_template": 5},
            "chat_template: expected a text, or a list",
        ),
        (
            "tokenizer_config.json",
            {"chat_template": [{"name": "a"}]},
            "chat_template: expected a text",
        ),
        ("special_tokens_map.json", {"unk_token": ["a"]}, "unk_token: expected a token, got"),
        ("generation_config.json", {"eos_token_id": "2"}, "eos_token_id: expected an id, got '2'"),
        (
            "generation_config.json",
            {"eos_token_id": [True]},
            "eos_token_id: expected an id, got True",
        ),
        (
            "generation_config.json",
            {"eos_token_id": 10**30},
            "eos_token_id: 1000.* is none of the 300 ids",
        ),
        ("config.json", {"eos_token_id": [-1], "vocab_size": 9}, "eos_token_id: -1 is none of"),
    ],
)
def test_a_damaged_file_is_named_with_its_field(name, changes, words, tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    rewritten(tmp_path, name, **changes)
    with pytest.raises(ProximaError, match=words) as refused:
        load_tokenizer(tmp_path)
    assert str(tmp_path / name) in str(refused.value)


def test_files_that_are_none(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    settings = tmp_path / "tokenizer_config.json"
    for content, words in (
        (b"\xff", "is not JSON"),
        (b"[" * 100_000, "nested|not JSON"),
        (b"", "not JSON"),
    ):
        settings.write_bytes(content)
        with pytest.raises(ProximaError, match=rf"tokenizer_config\.json: .*({words})"):
            load_tokenizer(tmp_path)
    settings.unlink()
    settings.mkdir()
    with pytest.raises(ProximaError, match=r"tokenizer_config\.json: cannot be read"):
        load_tokenizer(tmp_path)
    settings.rmdir()
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(ProximaError, match=r"chat_template\.jinja: cannot be read"):
        load_tokenizer(tmp_path)


def test_an_id_around_texts_that_is_none_is_refused(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["post_processor"]["special_tokens"]["<bos>"]["ids"] = [7000]
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(ProximaError, match=r"tokenizer\.json: post_processor: 7000 is none"):
        load_tokenizer(tmp_path)


def test_ids_with_gaps_need_an_embedding_up_to_the_last(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    vocabulary = content["model"]["vocab"]
    last = max(vocabulary, key=vocabulary.get)
    vocabulary[last] = 5000
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    assert load_tokenizer(tmp_path).size == 5001
    vocabulary[last] = 2**31
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(ProximaError, match="has a token with the id 2147483648"):
        load_tokenizer(tmp_path)


def test_a_template_that_refuses_is_told_in_words(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    refusing = "{{ raise_exception('roles must alternate') }}"
    rewritten(tmp_path, "tokenizer_config.json", chat_template=refusing)
    with pytest.raises(ProximaError, match="roles must alternate"):
        load_tokenizer(tmp_path).chat([{"role": "user", "content": "a film"}])


def test_padding_left_and_right():
    lists = [[5, 6, 7], [], [8]]
    left, right = left_padded(lists, 1), right_padded(lists, 1, 4)
    np.testing.assert_array_equal(left.ids, [[5, 6, 7], [1, 1, 1], [1, 1, 8]])
    np.testing.assert_array_equal(left.mask, [[1, 1, 1], [0, 0, 0], [0, 0, 1]])
    np.testing.assert_array_equal(right.ids, [[5, 6, 7, 1], [1, 1, 1, 1], [8, 1, 1, 1]])
    np.testing.assert_array_equal(right.mask, [[1, 1, 1, 0], [0, 0, 0, 0], [1, 0, 0, 0]])
    assert left.ids.dtype == np.int32 and left.mask.dtype == bool
    assert unpadded(left) == unpadded(right) == lists
    with pytest.raises(ValueError, match="does not fit"):
        left_padded(lists, 1, 2)


def test_masks_come_from_lengths_not_from_ids():
    rows = right_padded([[1, 1], [1]], pad_id=1)
    np.testing.assert_array_equal(rows.mask, [[1, 1], [1, 0]])
