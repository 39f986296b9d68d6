"""What is fuzzed: for every reader a valid input, how a seed damages it, how it is read and checked.

    TARGETS[name].make(folder)                 a valid input, once a process
    TARGETS[name].play(valid, folder, chance)  damages it by chance, reads it, checks what was read

`play` returns if something was read that is plausible; a ProximaError is a refusal in words. Anything else
that it raises is a finding. Nothing here compiles more than once, so that thousands take minutes.
"""

import contextlib
import json
import math
import random
import shutil
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from damage import STRANGE, damaged_bytes, damaged_json

from proxima import scenario
from proxima.core.errors import ProximaError

READ, REFUSED = "read", "refused"
UNDAMAGED = 0.05  # share of the cases that must be read
Play = Callable[[Any, Path, random.Random], object]


class Absurd(Exception):
    """Something was accepted that nobody can have meant."""


class Target(NamedTuple):
    """A reader, and what it is given."""

    make: Callable[[Path], Any]
    play: Play


def check(is_plausible: Any, what: str) -> None:
    """A finding where what was read is not plausible."""
    if not is_plausible:
        raise Absurd(what)


def play(name: str, seed: int, valid: Any, folder: Path) -> str:
    """READ or REFUSED; what else happens is raised."""
    try:
        TARGETS[name].play(valid, folder, random.Random(f"{name} {seed}"))
    except ProximaError as refusal:
        check(str(refusal).strip(), "a refusal without words")
        return REFUSED
    return READ


# Scenarios: any path of any of them, set to anything.

NUMBERS = (0, 1, -1, 2, 3, 7, 64, 2**16, 2**31 - 1, 2**31, 2**63, 2**64, 10**30, 10**4400)
FLOATS = (0.0, -0.0, 0.5, 1e-5, 1.5, 1e30, 1e39, 1e-300, 1e300, math.inf, -math.inf, math.nan)
WORDS = (
    *(
        "",
        " ",
        "x",
        "true",
        "null",
        "~",
        "../x",
        "/",
        "a/b",
        "a\\b",
        ".",
        "..",
        "\0",
        "\n",
        "é" * 40,
    ),
    *(
        "x" * 300,
        "x" * 5000,
        "\u202e",
        "\ud800",
        "😀",
        "{",
        "[",
        "%",
        "a:b",
        "os:system",
        "os.path:join",
    ),
    *(
        "python:x-1a2b3c4d",
        "sqlite:///",
        "http://",
        "http://u:p@h:99999999/",
        "ppo",
        "ddpg",
        "sac",
        "spo",
    ),
    *("gymnax", "gymnasium", "jumanji", "trading", "language", "best", "all", "tanh", "none"),
)
TEXTS = (
    *(
        "0x" + "f" * 5000,
        "9" * 5000,
        "1e400",
        "-1e400",
        ".nan",
        "-.inf",
        "1_000",
        "0o17",
        "0b1",
        "017",
    ),
    *(
        "[" * 3000,
        "{a: " * 400,
        "&a [*a]",
        "&a [1, 1]",
        "*a",
        "!!python/object:os.system {}",
        "!!binary aa",
    ),
    *(
        "{a: 1, a: 2}",
        "? [x]\n: 1",
        "<<: {a: 1}",
        "2020-01-01",
        "a: b",
        "- a",
        "'",
        '"',
        "|\n a",
        "\t",
        "#",
    ),
    *(
        "=",
        "a=b",
        "!!int x",
        "%YAML 1.1",
        "---",
        "...",
        "\x01",
        "\x85",
        "{a: {b: {c: {d: 1}}}}",
        "1" * 90,
    ),
)


def any_value(chance: random.Random, depth: int = 0) -> Any:
    kinds = [NUMBERS, NUMBERS, FLOATS, WORDS, (None, True, False), STRANGE]
    kind = chance.randrange(len(kinds) + (2 if depth < 3 else 0))
    if kind < len(kinds):
        return chance.choice(kinds[kind])
    inner = [any_value(chance, depth + 1) for _ in range(chance.choice((0, 1, 2, 3, 70)))]
    if kind == len(kinds):
        return inner
    return {chance.choice((*WORDS, "a", "b", "gamma")): value for value in inner}


@cache
def shipped() -> dict[str, Any]:
    return {name: scenario.to_mapping(scenario.load(name)) for name in scenario.shipped()}


def paths_in(tree: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in tree.items():
        yield (*above, key)
        if isinstance(value, dict):
            yield from paths_in(value, (*above, key))


def any_path(tree: Any, chance: random.Random) -> tuple[str, ...]:
    path = chance.choice(list(paths_in(tree)))
    if chance.random() < 0.1:
        path = (*path[: chance.randrange(len(path) + 1)], chance.choice(WORDS))
    return path


def check_scenario(made: Any) -> None:
    """A scenario that was accepted reads back from what it is written as, and has sizes that can be meant."""
    mapping = scenario.to_mapping(made)
    check(all(_is_sane(leaf) for leaf in leaves_in(mapping)), "a number that nobody can mean")
    read = scenario.from_mapping(scenario.parse(scenario.dump(made), "dump"), "dump")
    check(scenario.to_stored(read) == scenario.to_stored(made), "it reads back as something else")
    check(len(made.name.encode()) < 250 and "/" not in made.name, "a name that no directory has")
    json.dumps(mapping, allow_nan=False)


def leaves_in(tree: Any) -> Iterator[Any]:
    if isinstance(tree, dict | list):
        for item in tree.values() if isinstance(tree, dict) else tree:
            yield from leaves_in(item)
    else:
        yield tree


def _is_sane(leaf: Any) -> bool:
    if isinstance(leaf, str):
        return len(leaf) <= 4096
    return leaf is None or (math.isfinite(leaf) and abs(leaf) < 1e39)


def play_set(valid: Any, folder: Path, chance: random.Random) -> None:
    name = chance.choice(list(shipped()))
    settings = []
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        value = any_value(chance)
        with contextlib.suppress(ValueError):  # too long a number to be written
            text = chance.choice((json.dumps(value), str(value), chance.choice(TEXTS)))
            settings.append(f"{'.'.join(any_path(shipped()[name], chance))}={text}")
    check_scenario(scenario.load(name, settings))


def play_python(valid: Any, folder: Path, chance: random.Random) -> None:
    name = chance.choice(list(shipped()))
    objects = (
        object(),
        b"x",
        {1: 2},
        {None: 1},
        np.float64(1),
        np.int64(1),
        1j,
        range(3),
        (),
        set(),
    )
    value = chance.choice(objects) if chance.random() < 0.2 else any_value(chance)
    path = any_path(shipped()[name], chance)
    made = scenario.load(name, {".".join(path): value})
    check_scenario(made)
    if isinstance(value, bool | int) and len(path) > 1:
        found: Any = scenario.to_mapping(made)
        for key in path:
            found = found.get(key) if isinstance(found, dict) else None
        check(found == value, f"{path} is {found!r}")


def play_mapping(valid: Any, folder: Path, chance: random.Random) -> None:
    mapping = json.loads(json.dumps(shipped()[chance.choice(list(shipped()))]))
    *above, last = any_path(mapping, chance)
    section = mapping
    for key in above:
        section = section[key] if isinstance(section.get(key), dict) else section
    section[last] = any_value(chance)
    if chance.random() < 0.2:
        section.pop(chance.choice(list(section)))
    check_scenario(scenario.from_mapping(mapping, "mapping"))


def play_yaml(valid: Any, folder: Path, chance: random.Random) -> None:
    text = chance.choice(list(scenario.shipped().values())).read_bytes()
    if chance.random() < 0.5:
        lines = text.decode().split("\n")
        where = chance.randrange(len(lines))
        key = lines[where].partition(":")[0]
        lines[where] = f"{key}: {chance.choice(TEXTS)}"
        text = "\n".join(lines).encode(errors="replace")
    for _ in range(chance.choice((0, 1, 1, 3))):
        text = damaged_bytes(text, chance.getrandbits(32))
    file = folder / "mine.yaml"
    file.write_bytes(text)
    check_scenario(scenario.load(file))


# References: whatever somebody may type for a run, a trial, a scenario, a policy, a model, a file.


def any_reference(known: str, chance: random.Random) -> str:
    if chance.random() < UNDAMAGED:
        return known
    word = chance.choice((*WORDS, *TEXTS, known.upper(), known[:-1], f"{known}/", f"./{known}"))
    if chance.random() < 0.3:
        word = f"{known}/{word}"
    if chance.random() < 0.3:
        word = chance.choice(("~", "~nobody/", "/", "//", "../", "./", "logs/", "-", "@")) + word
    return word


def play_run_reference(valid: Any, folder: Path, chance: random.Random) -> None:
    from proxima.run.files import find_run

    found = find_run(any_reference(str(valid), chance), str(valid.parents[2]))
    check(found.root.is_dir(), "a run that is not there")


def play_scenario_reference(valid: Any, folder: Path, chance: random.Random) -> None:
    check_scenario(scenario.load(any_reference("cartpole", chance)))


def play_policy_reference(valid: Any, folder: Path, chance: random.Random) -> None:
    from proxima.run.policy import load_policy

    load_policy(any_reference(str(valid / "policy"), chance), str(valid))


def play_checkpoint_reference(valid: Any, folder: Path, chance: random.Random) -> None:
    from proxima.core.paths import usable_path
    from proxima.train import checkpoint

    found = checkpoint.resolve(Path(usable_path(any_reference(str(valid), chance))))
    check(found.is_dir(), "a checkpoint that is not there")


def play_data_reference(valid: Any, folder: Path, chance: random.Random) -> None:
    from proxima.domains.trading.ohlcv import load_trading_data

    check_prices(load_trading_data(any_reference(str(valid / "prices.csv"), chance)))


def play_object_reference(valid: Any, folder: Path, chance: random.Random) -> None:
    from proxima.core.functions import object_at

    object_at(any_reference("json:loads", chance), "env.backend")


# Files: a valid one, one damage, the reader.


def damaged_file(file: Path, target: Path, chance: random.Random) -> None:
    """One file damaged as its kind is: JSON by its values, everything else by its bytes."""
    content, seed = file.read_bytes(), chance.getrandbits(32)
    if file.suffix == ".json":
        text = damaged_json(content.decode(), seed)
        target.write_bytes(text.encode(errors="replace"))
    elif file.suffix == ".jsonl" and chance.random() < 0.5:
        lines = content.decode().splitlines()
        where = chance.randrange(len(lines))
        lines[where] = damaged_json(lines[where], seed)
        target.write_bytes("\n".join(lines).encode(errors="replace"))
    else:
        target.write_bytes(damaged_bytes(content, seed))


def play_file(
    read: Callable[[Path], object], names: str, valid: Path, folder: Path, chance: random.Random
) -> object:
    """The reader on a copy of a folder in which one of the named files is damaged."""
    copy = folder / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(valid, copy, symlinks=True)
    file = chance.choice(sorted(valid.glob(names)))
    target = copy / file.relative_to(valid)
    if chance.random() < UNDAMAGED:
        return read(copy)
    if chance.random() < 0.03:
        target.unlink()
        if chance.random() < 0.5:
            target.mkdir()
    else:
        damaged_file(file, target, chance)
    return read(copy)


def make_prices(folder: Path) -> Path:
    from proxima.domains.trading.synthetic import generate

    frame = generate("random_walk", 60, 0, {})
    frame.write_csv(folder / "prices.csv")
    frame.write_parquet(folder / "prices.parquet")
    return folder


def check_prices(frame: Any) -> None:
    prices = frame.select("open", "high", "low", "close").to_numpy()
    check(np.isfinite(prices).all() and (prices > 0).all(), "prices that are none")
    check((np.diff(frame["time"].to_numpy().astype(np.int64)) > 0).all(), "times out of order")
    check((frame["high"] >= frame["low"]).all(), "a high below its low")


def read_prices(suffix: str, folder: Path) -> None:
    from proxima.domains.trading.ohlcv import load_trading_data

    check_prices(load_trading_data(folder / f"prices{suffix}"))


def make_tables(folder: Path) -> Path:
    import polars as pl

    rows = 20
    columns = {
        "text": [f"a film, number {k}" for k in range(rows)],
        "rating": [k / 3 for k in range(rows)],
    }
    frame = pl.DataFrame(columns)
    frame.write_csv(folder / "texts.csv")
    frame.write_parquet(folder / "texts.parquet")
    frame.write_ndjson(folder / "texts.jsonl")
    return folder


def read_tables(suffix: str, folder: Path) -> None:
    from proxima.domains.language.tables import read_table

    table = read_table(folder / f"texts{suffix}")
    check(
        table.text is None or all(isinstance(text, str) for text in table.text),
        "texts that are none",
    )
    check(table.rating is None or np.isfinite(table.rating).all(), "ratings that are no numbers")


def make_model(folder: Path) -> Path:
    import hf_folders
    import language_tiny

    hf_folders.make_folder("llama", folder)
    language_tiny.tokenizer().save(folder)
    return folder


def read_model(folder: Path) -> None:
    import jax

    from proxima.domains.language.hf import load_model

    decoder = load_model(folder, "float32")
    check(
        all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(decoder)),
        "weights that are no numbers",
    )


def read_tokenizer(folder: Path) -> None:
    from proxima.domains.language.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(folder)
    ids = tokenizer.encode(["a good film"])[0]
    check(all(0 <= index < tokenizer.size for index in ids), "ids that no vocabulary has")
    check(isinstance(tokenizer.decode(ids), str), "no text")


TEMPLATE = (
    "{% for message in messages %}{% if loop.first and message.role == 'system' %}{{ message.content }}"
    "{% else %}{{ '<|' + message['role'] + '|>' + message.content }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ eos_token }}{% endif %}"
)
PIECES = (
    *(
        "{% for a in range(10**9) %}x{% endfor %}",
        "{{ 'x' * 10**10 }}",
        "{{ messages.x.y }}",
        "{{ 1 / 0 }}",
    ),
    *(
        "{{ ''.__class__.__mro__ }}",
        "{% include 'x' %}",
        "{{ raise_exception('no') }}",
        "{% macro m() %}",
    ),
    *(
        "{{ m() }}",
        "{{ messages | tojson }}",
        "{% set messages = 3 %}",
        "{{ 10**10**10 }}",
        "{{",
        "%}",
        "\0",
    ),
)


def play_template(valid: Path, folder: Path, chance: random.Random) -> None:
    from proxima.domains.language.tokenizer import load_tokenizer

    text = TEMPLATE
    for _ in range(chance.choice((0, 1, 1, 2))):
        if chance.random() < 0.5:
            where = chance.randrange(max(1, len(text)))
            text = text[:where] + chance.choice(PIECES) + text[where:]
        else:
            text = damaged_bytes(text.encode(), chance.getrandbits(32)).decode(errors="replace")
    settings = json.loads((valid / "tokenizer_config.json").read_text()) | {"chat_template": text}
    copy = folder / "copy"
    shutil.copytree(valid, copy, dirs_exist_ok=True)
    (copy / "tokenizer_config.json").write_text(json.dumps(settings))
    said = load_tokenizer(copy).chat([{"role": "user", "content": "hello"}])
    check(isinstance(said, str) and len(said) < 10**7, "a conversation without end")


def make_adapters(folder: Path) -> Path:
    import jax

    from proxima.domains.language.hf import load_model
    from proxima.domains.language.model import fresh_part
    from proxima.domains.language.part_files import save_adapters, save_part
    from proxima.nets.lora import LoraConfig

    make_model(folder / "base")
    lora = LoraConfig(rank=2, alpha=4.0)
    part = fresh_part(jax.random.key(0), load_model(folder / "base", "float32"), lora)
    (folder / "adapters").mkdir()
    save_adapters(part.adapters, lora, folder / "adapters", folder / "base")
    save_part(part, folder / "adapters" / "part.safetensors")
    return folder


@cache
def _base(folder: Path) -> Any:
    from proxima.domains.language.hf import load_model

    return load_model(folder, "float32")


def play_adapters(names: str, valid: Path, folder: Path, chance: random.Random) -> None:
    import jax

    from proxima.domains.language.part_files import load_adapters, load_part

    def read(copy: Path) -> None:
        base = _base(valid / "base")
        is_part = names == "part.safetensors"
        made = load_part(copy / names, base) if is_part else load_adapters(copy, base)
        check(
            all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(made)),
            "weights that are no numbers",
        )

    play_file(read, names, valid / "adapters", folder, chance)


def make_gguf(folder: Path) -> Path:
    """A file of llama's parts as llama.cpp has them, without regard to what the weights say."""
    import gguf
    import language_tiny

    tokenizer = language_tiny.tokenizer()
    decoder = language_tiny.decoder(tokenizer.size)
    config, layers = decoder.config, decoder.layers
    writer = gguf.GGUFWriter(folder / "model.gguf", "llama")
    writer.add_block_count(config.layers)
    writer.add_context_length(config.context)
    writer.add_embedding_length(config.width)
    writer.add_feed_forward_length(config.inner)
    writer.add_head_count(config.heads)
    writer.add_head_count_kv(config.kv_heads)
    writer.add_rope_dimension_count(config.head_width)
    writer.add_layer_norm_rms_eps(config.norm_eps)
    described = json.loads(tokenizer.serialized())
    tokens = [
        token for token, _ in sorted(described["model"]["vocab"].items(), key=lambda pair: pair[1])
    ]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, 3] + [1] * (len(tokens) - 3))
    writer.add_token_merges([" ".join(merge) for merge in described["model"]["merges"]])
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(0)
    writer.add_chat_template("{{ messages[0].content }}!")
    arrays = {"token_embd": decoder.embedding, "output_norm": decoder.norm.scale}
    named = {"q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_output"}
    named |= {"gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down"}
    for layer in range(config.layers):
        arrays[f"blk.{layer}.attn_norm"] = layers.attention_norm.scale[layer]
        arrays[f"blk.{layer}.ffn_norm"] = layers.mlp_norm.scale[layer]
        for ours, theirs in named.items():
            arrays[f"blk.{layer}.{theirs}"] = getattr(layers, ours).weight[layer].T
    if decoder.head is not None:
        arrays["output"] = decoder.head.T
    for name, array in arrays.items():
        writer.add_tensor(f"{name}.weight", np.ascontiguousarray(np.asarray(array, np.float32)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return folder


def read_gguf(folder: Path) -> None:
    from proxima.domains.language.gguf import import_gguf

    made = folder / "made"
    import_gguf(folder / "model.gguf", made)
    read_model(made)
    read_tokenizer(made)


# What runs write: checkpoints, results, exported policies.


def make_checkpoints(folder: Path) -> Path:
    import checkpoints

    for step in (100, 200):
        checkpoints.save(folder, step)
    return folder


def read_checkpoints(folder: Path) -> None:
    import checkpoints

    from proxima.train import checkpoint

    step = checkpoints.common_step([folder])
    check(step in (100, 200, None), f"step {step}")
    state, manifest = checkpoint.load(folder, checkpoints.small_state())
    check(manifest["step"] in (100, 200), "a step that nobody saved")
    check(
        state.learner["weight"].tolist() == [manifest["step"]] * 3, "other weights than were saved"
    )


def make_run(folder: Path) -> Path:
    import run_directories

    files = run_directories.write_run(folder, trading=False)
    from proxima.run import results

    for trial in range(run_directories.TRIALS):
        made = run_directories.trial_result(trial, run_id=files.run_id)
        results.write(files.trial(trial) / "results.json", made)
        results.write(files.trial(trial) / "stage.json", run_directories.stage_result(trial))
    return files.root


def read_run(folder: Path) -> None:
    from proxima.run import read, results
    from proxima.run.files import RunFiles, read_rows

    files = RunFiles(folder)
    info = read.read_info(files)
    check(info.status in ("running", "finishing", "finished", "interrupted", "failed"), "no status")
    check_scenario(read.load_scenario(files))
    summary = read.read_summary(files)
    repr(summary)
    for trial in range(3):
        for row in read_rows(files.trial(trial) / "metrics.jsonl"):
            check(all(value is None or math.isfinite(value) for value in row.values()), "no number")
        made = results.read(files.trial(trial) / "results.json", results.TrialResult)
        stage = results.read(files.trial(trial) / "stage.json", results.StageResult)
        for numbers in (results.to_json(made), results.to_json(stage)):
            json.dumps(numbers, allow_nan=False)


def make_policy(folder: Path) -> Path:
    from proxima.track.registry import export_program, write_policy

    weights = {"w": np.arange(8, dtype=np.float32).reshape(4, 2)}
    observation = {"shape": [4], "dtype": "float32"}
    action = {"shape": [], "dtype": "int64", "n": 2, "start": 0}

    def greedy(weights: dict[str, Any], inputs: dict[str, Any]) -> dict[str, Any]:
        return {"action": (inputs["observation"] @ weights["w"]).argmax(-1)}

    export = export_program(greedy, weights, {"observation": observation})
    about = {
        "algorithm": "ppo",
        "env": "CartPole-v1",
        "observation": observation,
        "action": action,
        "checkpoint": {"kind": "last", "step": 100},
    }
    write_policy(export, weights, about, folder / "policy")
    return folder


def read_policy(folder: Path) -> None:
    from proxima.run.policy import load_policy

    policy = load_policy(folder / "policy")
    repr(policy)
    actions = policy.predict(np.ones((3, 4), np.float32))
    check(actions.shape == (3,) and np.isin(actions, (0, 1)).all(), "actions that there are not")


def files(make: Callable[[Path], Path], read: Callable[[Path], object], names: str) -> Target:
    return Target(make, partial(play_file, read, names))


def nothing(folder: Path) -> Path:
    return folder


def make_scenarios(folder: Path) -> Path:
    shipped()  # takes seconds the first time
    return folder


TARGETS = {
    "scenario: --set": Target(make_scenarios, play_set),
    "scenario: python": Target(make_scenarios, play_python),
    "scenario: mapping": Target(make_scenarios, play_mapping),
    "scenario: YAML": Target(make_scenarios, play_yaml),
    "reference: scenario": Target(make_scenarios, play_scenario_reference),
    "reference: run": Target(make_run, play_run_reference),
    "reference: policy": Target(make_policy, play_policy_reference),
    "reference: checkpoint": Target(make_checkpoints, play_checkpoint_reference),
    "reference: prices": Target(make_prices, play_data_reference),
    "reference: object": Target(nothing, play_object_reference),
    "prices: CSV": files(make_prices, partial(read_prices, ".csv"), "*.csv"),
    "prices: parquet": files(make_prices, partial(read_prices, ".parquet"), "*.parquet"),
    "texts: CSV": files(make_tables, partial(read_tables, ".csv"), "*.csv"),
    "texts: JSON lines": files(make_tables, partial(read_tables, ".jsonl"), "*.jsonl"),
    "texts: parquet": files(make_tables, partial(read_tables, ".parquet"), "*.parquet"),
    "model: config": files(make_model, read_model, "config.json"),
    "model: weights": files(make_model, read_model, "*.safetensors"),
    "model: tokenizer": files(make_model, read_tokenizer, "tokenizer*.json"),
    "model: chat template": Target(make_model, play_template),
    "model: adapters": Target(make_adapters, partial(play_adapters, "adapter*")),
    "model: part": Target(make_adapters, partial(play_adapters, "part.safetensors")),
    "model: GGUF": files(make_gguf, read_gguf, "*.gguf"),
    "checkpoint": files(make_checkpoints, read_checkpoints, "checkpoints/step_*/*"),
    "run directory": files(make_run, read_run, "**/*.[jy]*"),
    "policy": files(make_policy, read_policy, "policy/*"),
}
