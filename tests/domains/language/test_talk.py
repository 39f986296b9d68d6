"""Talking to what runs made: which model is meant, how it is asked, the commands, and what they refuse."""

import io
import json
import re
import sys

import jax
import numpy as np
import pytest
from tiny import run_main

from proxima.core.errors import ProximaError
from proxima.domains.language import talk
from proxima.domains.language.commands import printable
from proxima.domains.language.generate import Generator
from proxima.domains.language.hf import load_model, save_model
from proxima.domains.language.model import REFERENCE
from proxima.domains.language.tokenizer import (
    Tokenizer,
    left_padded,
    load_tokenizer,
    train_tokenizer,
)
from proxima.nets.transformer import DecoderConfig, new_decoder

TEXTS = ["the film is good", "the film is bad", "a very good film", "not a very bad film"] * 5
SIZES = dict(width=16, layers=1, heads=2, kv_heads=2, head_width=8, inner=24, context=32)
TEMPLATE = "{% for m in messages %}[{{ m.role[0] }}]{{ m.content }}{% endfor %}[a]"
LANGUAGE = """
domain: language
sft: {}
reward_model: {}
ppo: {new_tokens: 6, temperature: 0.5}
"""
RUN = "20260101-000000-critic"
THREE = ["the film", "a very good", "not"]


def write_model(folder, seed, template=None):
    learnt = train_tokenizer(TEXTS, 290)
    config = DecoderConfig(vocabulary=learnt.size, **SIZES)
    save_model(new_decoder(jax.random.key(seed), config, "float32"), folder)
    learnt.save(folder)
    if template is not None:
        (folder / "chat_template.jinja").write_text(template)


def write_run(root, name="critic", scenario=LANGUAGE, models=("model", "reference"), trials=1):
    run = root / "logs" / name / "runs" / f"20260101-000000-{name}"
    for trial in range(trials):
        home = run / f"trial_{trial}"
        home.mkdir(parents=True)
        for place, folder in enumerate(models):
            write_model(home / folder, 10 * trial + place)
    (run / "run.json").write_text("{}")
    (run / "scenario.yaml").write_text(f"name: {name}\n{scenario}")
    (run.parent.parent / "latest").symlink_to(run)
    return run


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    root = tmp_path_factory.mktemp("talk")
    write_run(root, trials=2)
    write_run(root, "unfinished", models=("reference",))
    write_run(root, "imitation", "domain: language\nsft: {}\n", models=("reference",))
    judging = f"domain: language\nmodel: {{path: {root / 'plain'}}}\nreward_model: {{}}\n"
    write_run(root, "judge", judging, models=())
    control = "env: {name: CartPole-v1}\nalgorithm: {name: ppo}\ntraining: {max_steps: 1000}\n"
    write_run(root, "balance", control, models=())
    (root / "gap.txt").write_text("the film\n\na very\n")
    (root / "broken.txt").write_bytes(b"the film\n\xff\n")
    (root / "texts.jsonl").write_text('{"text": "the film"}\n')
    (root / "odd.pdf").write_text("the film")
    (root / "long.txt").write_text(f"the film\n{'film ' * 40}\n")
    (root / "three.txt").write_text("the film\na very good\r\nnot\n")
    (root / "three.jsonl").write_text("".join(f'{{"prompt": "{text}"}}\n' for text in THREE))
    write_model(root / "plain", 3)
    write_model(root / "chatty", 4, TEMPLATE)
    return root


@pytest.fixture
def main(home, capsys, monkeypatch):
    monkeypatch.chdir(home)
    return lambda *arguments: run_main(arguments, capsys, monkeypatch)


@pytest.fixture
def lines(monkeypatch):
    """What is typed."""
    return lambda text: monkeypatch.setattr(sys, "stdin", io.StringIO(text))


def test_the_model_that_is_meant(home, monkeypatch):
    monkeypatch.chdir(home)
    run = home / "logs" / "critic" / "runs" / RUN
    for reference in ("critic", RUN, str(run), "logs/critic"):
        assert talk.find_model(reference).folder == run / "trial_0" / "model"
    assert talk.find_model(str(run / "trial_1")).folder == run / "trial_1" / "model"
    assert talk.find_model("critic", trial=1).folder == run / "trial_1" / "model"
    assert talk.find_model("critic", before=True).folder == run / "trial_0" / "reference"
    assert talk.find_model("imitation").folder.name == "reference"
    assert talk.find_model("plain").folder.name == "plain"
    settings = talk.find_model("critic").settings
    assert (settings.usual, settings.temperature, settings.chat) == (6, 0.5, False)


def test_before_without_fine_tuning_is_the_model_it_started_from(home, monkeypatch, tmp_path):
    scenario = (
        f"domain: language\nmodel: {{path: {home / 'plain'}}}\nreward_model: {{}}\nppo: {{}}\n"
    )
    write_run(tmp_path, "positive", scenario, models=("model",))
    monkeypatch.chdir(tmp_path)
    assert talk.find_model("positive", before=True).folder == home / "plain"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("generate", "balance", "--prompt", "x"), "not about language"),
        (("generate", "unfinished", "--prompt", "x"), "its stage ppo has not finished.*resume"),
        (("generate", "judge", "--prompt", "x"), "no stage that trains a model"),
        (("generate", "nothing", "--prompt", "x"), "no experiment, run"),
        (("generate", "critic", "--trial", "7", "--prompt", "x"), "no trial 7; there are 0, 1"),
        (("generate", "critic", "--prompt", "  "), "--prompt: is empty"),
        (
            ("generate", "critic", "--prompt", "film is " * 20),
            "longer than the model's context of 32",
        ),
        (("generate", "critic", "--prompt", "x", "--temperature", "0"), "--greedy"),
        (("generate", "critic", "--prompt", "x", "--temperature", "nan"), "must be above 0"),
        (("generate", "critic", "--prompt", "x", "--top-k", "0"), "--top-k: 0, and at least 1"),
        (("generate", "critic", "--prompt", "x", "--top-p", "1.5"), "--top-p: 1.5 must be above 0"),
        (("chat", "critic", "--top-p", "0"), "--top-p: 0 must be above 0 and at most 1"),
        (("generate", "critic", "--prompt", "x", "--greedy", "--top-k", "3"), "--greedy: takes"),
        (("generate", "critic"), "--prompt, --prompts: neither is given"),
        (("generate", "critic", "--prompt", "x", "--prompts", "a.txt"), "both are given"),
        (("generate", "critic", "--prompts", "no.txt"), r"no\.txt: cannot be read"),
        (("generate", "critic", "--prompts", "no.jsonl"), r"no\.jsonl: no such file"),
        (("generate", "critic", "--prompts", "gap.txt"), r"gap\.txt: line 2 is empty"),
        (("generate", "critic", "--prompts", "broken.txt"), r"broken\.txt: line 2 is not UTF-8"),
        (("generate", "critic", "--prompts", "plain"), "is a folder"),
        (("generate", "critic", "--prompts", "texts.jsonl"), "has no column prompt"),
        (("generate", "critic", "--prompts", "odd.pdf"), r"ending in \.txt, \.parquet"),
        (("generate", "critic", "--prompts", "long.txt"), "prompt 2: the prompt: has .* tokens"),
        (("generate", "plain", "--prompt", "x", "--before"), "is a model, not a run"),
        (("generate", "plain", "--prompt", "x", "--turns"), "no chat template"),
        (("chat", "balance"), "not about language"),
        (("model", "export", "critic", "--to", "plain"), "is there already"),
        (("model", "export", "critic", "--to", "new", "--adapter"), "has no adapter"),
        (("model", "import", "nothing.gguf", "--to", "new"), "no such file"),
        (("model", "import", "plain/config.json", "--to", "plain"), "is there already"),
    ],
)
def test_what_is_refused_is_said_in_words(main, arguments, words):
    said = main(*arguments)
    assert said.code == 1 and said.err.startswith("Error: ") and re.search(words, said.err)
    assert "not a mistake of yours" not in said.err


def test_a_prompt_that_just_fits(main):
    tokenizer = load_tokenizer(talk.find_model("critic").folder)
    room = 32 - len(tokenizer.encode(["the film"])[0])
    more = main("generate", "critic", "--prompt", "the film", "--new-tokens", room + 1)
    assert more.code == 1 and f"--new-tokens {room}" in more.err
    assert main("generate", "critic", "--prompt", "the film", "--new-tokens", room).code == 0


def test_without_a_number_as_many_tokens_follow_as_fit(main):
    """A folder's usual number, 100, is more than its context of 32."""
    room = 32 - len(load_tokenizer(talk.find_model("plain").folder).encode(["the film"])[0])
    said = main("generate", "plain", "--prompt", "the film", "--json")
    assert said.code == 0 and f"At most {room} new tokens" in said.err
    assert 1 <= json.loads(said.out)["completions"][0]["tokens"] <= room
    explicit = main("generate", "plain", "--prompt", "the film", "--new-tokens", "100")
    assert explicit.code == 1 and "with 100 new ones it is longer" in explicit.err
    assert main("generate", "critic", "--prompt", "the film").err == ""
    full = main("generate", "plain", "--prompt", "film " * 40)
    assert full.code == 1 and "with 1 new one it is longer" in full.err


def test_python_is_refused_with_the_words_of_the_commands(main, home):
    speaker = talk.load(talk.find_model(str(home / "plain")))
    asked = speaker._replace(settings=speaker.settings._replace(new_tokens=40))
    told = main("generate", "plain", "--prompt", "the film", "--new-tokens", "40").err
    generator = Generator(speaker.decoder, speaker.tokenizer, 40)
    ids = speaker.tokenizer.encode(["the film"])
    rows = left_padded(ids, 0)
    calls = {
        "the prompt": lambda: talk.say(asked, "the film"),
        "prompts[0]": lambda: generator.generate(REFERENCE, ["the film"], jax.random.key(0)),
        "prompts[0] ": lambda: generator.generate(REFERENCE, rows, jax.random.key(0)),
    }
    for what, call in calls.items():
        with pytest.raises(ProximaError) as refused:
            call()
        assert f"Error: {refused.value}".strip() == told.strip().replace("the prompt", what.strip())


def test_a_chat_keeps_half_of_a_small_context_for_replies(home):
    speaker = talk.load(talk.find_model(str(home / "chatty")))
    turns = [{"role": "user", "content": "a" * 9}, {"role": "assistant", "content": "b" * 9}]
    said, forgotten = talk.reply(speaker, [*turns, {"role": "user", "content": "c"}])
    assert forgotten == 2 and said.tokens <= 16


def test_a_prompt_with_half_a_character_is_refused(main):
    said = main("generate", "plain", "--prompt", "the \udcff film")
    assert said.code == 1 and "character 4 is no Unicode" in said.err


def test_generate(main):
    said = main("generate", "critic", "--prompt", "the film", "--count", "2")
    assert said.code == 0 and said.out.count("the film") == 2
    assert said.out == main("generate", "critic", "--prompt", "the film", "--count", "2").out
    assert (
        said.out
        != main("generate", "critic", "--prompt", "the film", "--count", "2", "--seed", "1").out
    )


def test_generate_json(main):
    said = main("generate", "critic", "--prompt", "the film", "--count", "2", "--json", "--before")
    found = json.loads(said.out)
    assert found["prompt"] == "the film" and "trial 0" in found["model"]
    assert len(found["completions"]) == len(found["before"]) == 2
    for each in found["completions"]:
        assert set(each) == {"text", "tokens", "ended"} and 1 <= each["tokens"] <= 6
    assert found["completions"] != found["before"]  # two models


def test_a_file_of_prompts_is_completed_line_by_line(main, home):
    said = main("generate", "critic", "--prompts", "three.txt", "--count", "2", "--json")
    found = json.loads(said.out)
    assert said.code == 0 and found["seed"] == 0
    assert [row["prompt"] for row in found["prompts"]] == THREE
    assert all(len(row["completions"]) == 2 for row in found["prompts"])
    assert all(1 <= each["tokens"] <= 6 for row in found["prompts"] for each in row["completions"])
    table = main("generate", "critic", "--prompts", "three.jsonl", "--count", "2", "--json")
    assert json.loads(table.out)["prompts"] == found["prompts"]
    plain = main("generate", "critic", "--prompts", "three.txt", "--count", "2").out
    for row in found["prompts"]:
        assert plain.count(row["prompt"]) >= 2
    told = main("generate", "critic", "--prompts", "three.txt", "--count", "2", "--to", "out.jsonl")
    assert "out.jsonl" in told.out
    rows = [json.loads(line) for line in (home / "out.jsonl").read_text().splitlines()]
    assert rows == found["prompts"]


def test_many_prompts_are_drawn_several_at_a_time(home, monkeypatch):
    monkeypatch.setattr(talk, "AT_ONCE", 2)
    speaker = talk.load(talk.find_model(str(home / "plain")))
    speaker = speaker._replace(settings=speaker.settings._replace(new_tokens=4, greedy=True))
    texts = [*THREE, "the film is a very good film"]
    found = talk.say_all(speaker, texts, count=1)
    assert found == [talk.say(speaker, text) for text in texts], "greedy: whoever stands beside it"


def test_top_k_and_top_p_change_what_is_drawn_and_one_token_is_greedy(main):
    def said(*flags):
        return main("generate", "critic", "--prompt", "a", "--temperature", "2.0", *flags).out

    assert said("--top-k", "1") == said("--top-p", "1e-6") == said("--greedy")
    assert said("--top-p", "1.0") == said("--top-k", "100000") == said() != said("--greedy")


def test_generate_shows_before_and_after(main):
    said = main("generate", "critic", "--prompt", "the film", "--before").out
    assert said.index("Before") < said.index("After") and said.count("the film") == 2


def test_greedy_is_the_same_with_any_seed(main):
    one, other = (
        main("generate", "critic", "--prompt", "a", "--greedy", "--seed", seed).out
        for seed in (0, 5)
    )
    assert one == other


def test_chat_goes_on_with_each_line(main, lines):
    lines("the film\n\n/help\na very\n")
    said = main("chat", "critic")
    assert said.code == 0
    answers = said.out.splitlines()
    assert "It goes on with what you write" in said.out and "/exit" in answers[0]
    assert "the film" in said.out and "a very" in said.out
    assert answers[-1].startswith("Goodbye")


def test_chat_leaves_at_a_word(main, lines):
    lines("/exit\nthe film\n")
    said = main("chat", "critic")
    assert said.code == 0 and "the film" not in said.out and "Goodbye" in said.out


def test_a_line_that_is_too_long_ends_no_chat(main, lines):
    lines("film " * 40 + "\nthe film\n")
    said = main("chat", "critic")
    assert said.code == 0 and "longer than the model's context" in said.out
    assert "Goodbye" in said.out


def test_a_conversation_is_remembered_until_it_no_longer_fits(home):
    speaker = talk.load(talk.find_model(str(home / "chatty")))
    speaker = speaker._replace(settings=speaker.settings._replace(new_tokens=6))
    assert speaker.chats
    asked = []

    def record(self, texts):
        asked.append(texts[0])
        return encode(self, texts)

    encode = Tokenizer.encode
    turns = [{"role": "user", "content": "a"}]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tokenizer, "encode", record)
        said, forgotten = talk.reply(speaker, turns)
        assert asked[-1] == "[u]a[a]" and forgotten == 0 and said.tokens <= 6
        turns += [{"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
        assert talk.reply(speaker, turns)[1] == 0 and asked[-1] == "[u]a[a]b[u]c[a]"
        turns[0]["content"] = "z" * 30
        assert talk.reply(speaker, turns)[1] == 2 and asked[-1] == "[u]c[a]"
    with pytest.raises(ProximaError, match="longer than the model's context"):
        talk.reply(speaker, [{"role": "user", "content": "z" * 40}])


def test_chat_takes_turns_where_the_model_does(main, lines):
    lines("a\n/new\nb\n")
    said = main("chat", "chatty", "--new-tokens", "6")
    assert said.code == 0 and "It answers you" in said.out


def test_a_run_is_asked_in_its_template(home, tmp_path, monkeypatch):
    write_run(tmp_path, "template", LANGUAGE + 'data: {prompt_template: "Say {text}!"}\n')
    monkeypatch.chdir(tmp_path)
    speaker = talk.load(talk.find_model("template"))
    assert talk.written(speaker, "it {all}") == "Say it {all}!"


def test_an_exported_model_is_the_model(main, home):
    said = main("model", "export", "critic", "--to", "out", "--trial", "1")
    assert said.code == 0 and "out" in said.out
    ours = load_model(home / "logs/critic/runs" / RUN / "trial_1/model")
    np.testing.assert_array_equal(load_model(home / "out").embedding, ours.embedding)
    assert main("generate", "out", "--prompt", "the film", "--new-tokens", "6").code == 0


def test_an_adapter_is_exported(main, home):
    adapter = home / "logs/critic/runs" / RUN / "trial_0/adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text("{}")
    assert main("model", "export", "critic", "--to", "small", "--adapter").code == 0
    assert (home / "small" / "adapter_config.json").is_file()


def test_what_a_model_writes_cannot_drive_the_terminal():
    assert printable("a\x1b[31mb\x07\nc\td\x9b") == "a[31mb\nc\td"
