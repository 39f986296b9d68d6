"""What the stages of a language scenario are made of: where its names become the things they name."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax

from proxima.core.errors import ProximaError
from proxima.core.types import PyTree
from proxima.domains.language.data import Texts, imitated, preferred, prompts_of, read_texts
from proxima.domains.language.evaluate import Evaluator
from proxima.domains.language.generate import Generator
from proxima.domains.language.hf import check_vocabulary, load_model, save_model
from proxima.domains.language.hub import locate
from proxima.domains.language.judge import judge
from proxima.domains.language.mesh import lay_out, lay_out_rows
from proxima.domains.language.model import REFERENCE, Part, joined, new_model
from proxima.domains.language.part_files import load_part, save_part
from proxima.domains.language.ppo import experience_from, ppo_stage
from proxima.domains.language.reward_model import (
    Pairs,
    RewardModel,
    calibrated,
    given_pairs,
    load_reward_model,
    make_pairs,
    rated_pairs,
    reward_stage,
    save_reward_model,
)
from proxima.domains.language.rewards import RewardComputer
from proxima.domains.language.samples import Experience, Rows, Samples
from proxima.domains.language.scenario import LanguageScenario
from proxima.domains.language.sft import sft_stage, tuned
from proxima.domains.language.tables import Table
from proxima.domains.language.tokenizer import (
    Tokenizer,
    left_padded,
    load_tokenizer,
    right_padded,
    train_tokenizer,
    unpadded,
)
from proxima.domains.language.training import Training

REFERENCE_FOLDER, REWARD_FOLDER, PART_FILE = "reference", "model", "part.safetensors"
# Roles of the keys that come from a trial's seed here; the stages have their own.
WEIGHTS, CALIBRATION = 101, 102


class Material(NamedTuple):
    """What all trials share."""

    texts: Texts
    tokenizer: Tokenizer
    folder: Path | None  # of the model that the scenario names; None: a new one for each trial


class PPOParts(NamedTuple):
    """PPO's stage, and what looks at its policy."""

    training: Training
    base: Any  # nets.transformer.Decoder
    evaluator: Evaluator
    # a state → what makes experience of samples, for those who look at tokens; None without a critic
    learnt: Callable[[PyTree], Callable[[Samples], Experience] | None]


def prepare_host(scenario: LanguageScenario) -> None:
    """Ask for as many devices as the mesh has, and threads; no effect once JAX has started."""
    mesh = scenario.model.mesh
    os.environ.setdefault("NPROC", str(scenario.model.threads or os.cpu_count() or 1))
    try:
        # See train/devices.py: dispatched to a small pool, a program may wait for itself.
        jax.config.update("jax_cpu_enable_async_dispatch", False)
        jax.config.update("jax_num_cpu_devices", mesh.data * mesh.tensor)
    except RuntimeError:  # already started: the mesh takes what there is
        return


def prepare(scenario: LanguageScenario) -> Material:
    """Texts, tokenizer and the model's folder, all checked; nothing is written."""
    texts = read_texts(scenario.data, scenario.name)
    if scenario.model.path is not None:
        folder = locate(scenario.model.path)
        return Material(texts, load_tokenizer(folder), folder)
    learnt_from = texts.train.text or texts.train.chosen or []
    return Material(texts, train_tokenizer(learnt_from, scenario.model.new.vocabulary), None)


def first_model(scenario: LanguageScenario, material: Material, seed: int) -> Any:
    """The model that a trial starts from: the one named, or a new one."""
    config, tokenizer = scenario.model, material.tokenizer
    if material.folder is None:
        decoder = new_model(_key(seed, WEIGHTS), config.new, tokenizer.size, config.dtype)
    else:
        decoder = load_model(material.folder, config.dtype)
        check_vocabulary(decoder, tokenizer.size, material.folder)
    return lay_out(decoder, config.mesh)


def sft_of(scenario: LanguageScenario, material: Material, base: Any, seed: int) -> Training:
    """Supervised fine-tuning on the training texts."""
    assert scenario.sft is not None
    texts, tokenizer = material.texts, material.tokenizer
    return sft_stage(
        scenario.sft,
        base,
        scenario.lora,
        imitated(scenario.data, texts.train, tokenizer),
        imitated(scenario.data, texts.held_out, tokenizer),
        tokenizer.eos_id,
        seed,
        scenario.model.gradient_checkpointing,
        _placing(scenario),
    )


def save_reference(trial: Path, material: Material, base: Any, state: PyTree) -> None:
    """The fine-tuned model as a folder; the stages after it read it from there."""
    folder = trial / REFERENCE_FOLDER
    save_model(tuned(base, state), folder, material.folder)
    material.tokenizer.save(folder)


def reference_of(scenario: LanguageScenario, material: Material, trial: Path, seed: int) -> Any:
    """The model that reward model and PPO start from: the fine-tuned one, or the scenario's own."""
    if scenario.sft is None:
        return first_model(scenario, material, seed)
    return lay_out(load_model(trial / REFERENCE_FOLDER, scenario.model.dtype), scenario.model.mesh)


def reward_stage_of(
    scenario: LanguageScenario, material: Material, base: Any, seed: int
) -> Training:
    """A reward model on what people thought of the texts: given pairs, or pairs of rated texts."""
    config = scenario.reward_model
    assert config is not None
    texts, tokenizer = material.texts, material.tokenizer
    if texts.train.chosen is not None:
        train = given_pairs(Pairs(*preferred(scenario.data, texts.train, tokenizer)), seed)
        held_out = Pairs(*preferred(scenario.data, texts.held_out, tokenizer))
        held_out = Pairs(*(each[: config.held_out_pairs] for each in held_out))
    else:
        gap, count = config.rating_gap, config.held_out_pairs
        train = rated_pairs(*_rated(texts.train, tokenizer), gap, seed)
        # the same pairs for every trial
        held_out = make_pairs(*_rated(texts.held_out, tokenizer), gap, count, scenario.seed)
    return reward_stage(
        config,
        base,
        scenario.lora,
        train,
        held_out,
        tokenizer.eos_id,
        seed,
        scenario.model.gradient_checkpointing,
        _placing(scenario),
    )


def save_reward(
    place: Path, scenario: LanguageScenario, material: Material, base: Any, part: Part, seed: int
) -> RewardModel:
    """The reward model, calibrated on the reference's samples, as a folder; PPO reads it from there."""
    texts = _reference_texts(scenario, material, base, seed)
    tokenizer = material.tokenizer
    rows = right_padded(texts, tokenizer.pad_id)
    model = calibrated(base, part, rows, _placing(scenario))
    folder = place / REWARD_FOLDER
    save_reward_model(model, tokenizer, folder, material.folder)
    if scenario.lora is not None:  # so that this run's PPO need not hold the base a second time
        save_part(part, folder / PART_FILE)
    return model


def ppo_parts(
    scenario: LanguageScenario, material: Material, base: Any, trial: Path, seed: int
) -> PPOParts:
    """PPO over the reference, with the scenario's reward and judge."""
    config, tokenizer = scenario.ppo, material.tokenizer
    assert config is not None
    reward = reward_of(scenario, material, base, trial)
    train, held_out = _prompts(scenario, material, base)
    generator = Generator(base, tokenizer, config.new_tokens, config.temperature)
    evaluator = Evaluator(
        generator,
        reward,
        judge(scenario.evaluation.judge),
        scenario.evaluation,
        held_out,
        tokenizer,
        scenario.seed,
    )
    training = ppo_stage(
        config,
        reward,
        base,
        scenario.lora,
        train,
        tokenizer,
        seed,
        scenario.model.gradient_checkpointing,
        lambda state: evaluator.evaluate(state.policy),
        scenario.evaluation.frequency,
        _placing(scenario),
    )

    def learnt(state: PyTree) -> Callable[[Samples], Experience] | None:
        return experience_from(config, reward, base, state) if config.advantage == "gae" else None

    return PPOParts(training, base, evaluator, learnt)


def reward_of(
    scenario: LanguageScenario, material: Material, base: Any, trial: Path
) -> RewardComputer:
    """What PPO is rewarded by: a function, the stage's reward model, or one from elsewhere."""
    config, tokenizer = scenario.reward, material.tokenizer
    if config.kind == "function":
        return RewardComputer(config, tokenizer=tokenizer)
    if config.path is None:
        folder = trial / "reward_model" / REWARD_FOLDER
        model, _ = load_reward_model(folder, scenario.model.dtype)
        if scenario.lora is not None:
            model = model._replace(base=base, part=load_part(folder / PART_FILE, base))
        return RewardComputer(config, _laid_out(model, scenario), tokenizer=tokenizer)
    model, theirs = load_reward_model(locate(config.path), scenario.model.dtype)
    model = _laid_out(model, scenario)
    same = theirs.serialized() == tokenizer.serialized()
    return RewardComputer(
        config, model, tokenizer=tokenizer, model_tokenizer=None if same else theirs
    )


def _rated(table: Table, tokenizer: Tokenizer) -> tuple[list[list[int]], list[float]]:
    if table.text is None or table.rating is None:
        raise ProximaError(
            "data: the reward model needs columns text and rating, or prompt, chosen and rejected"
        )
    return tokenizer.encode(table.text), table.rating


def _prompts(
    scenario: LanguageScenario, material: Material, base: Any
) -> tuple[list[list[int]], list[list[int]]]:
    assert scenario.ppo is not None
    return prompts_of(
        scenario.data,
        material.texts,
        material.tokenizer,
        base.config.context,
        scenario.ppo.new_tokens,
    )


def _reference_texts(
    scenario: LanguageScenario, material: Material, base: Any, seed: int
) -> list[list[int]]:
    """What the reference writes after training prompts; without PPO, what people wrote."""
    assert scenario.reward_model is not None
    count, tokenizer = scenario.reward_model.calibration_samples, material.tokenizer
    if scenario.ppo is None:
        written = imitated(scenario.data, material.texts.train, tokenizer)[:count]
        return [[*ids, tokenizer.eos_id][: base.config.context] for ids in written]
    prompts, _ = _prompts(scenario, material, base)
    generator = Generator(base, tokenizer, scenario.ppo.new_tokens, scenario.ppo.temperature)
    size, texts = scenario.ppo.batch_size, []
    for start in range(0, count, size):
        asked = [prompts[place % len(prompts)] for place in range(start, start + size)]
        key = jax.random.fold_in(_key(seed, CALIBRATION), start)
        samples = generator.generate(REFERENCE, left_padded(asked, tokenizer.pad_id), key)
        texts += unpadded(joined(samples.prompts, samples.completions))
    return texts[:count]


def _laid_out(model: RewardModel, scenario: LanguageScenario) -> RewardModel:
    mesh = scenario.model.mesh
    return model._replace(base=lay_out(model.base, mesh), part=lay_out(model.part, mesh))


def _key(seed: int, role: int) -> jax.Array:
    return jax.random.fold_in(jax.random.key(seed), role)


def _placing(scenario: LanguageScenario) -> Callable[[Rows], Rows]:
    mesh = scenario.model.mesh
    if mesh.data * mesh.tensor == 1:
        return lambda rows: rows
    return lambda rows: lay_out_rows(rows, mesh)
