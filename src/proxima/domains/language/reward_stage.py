"""The stage of the reward model: learnt from what people thought of texts, then calibrated."""

import jax

from proxima.core.errors import ProximaError
from proxima.domains.domain import Trainable, Trained, Verdict
from proxima.domains.language.batches import with_eos
from proxima.domains.language.data import imitated, preferred
from proxima.domains.language.generate import Generator
from proxima.domains.language.model import REFERENCE, joined
from proxima.domains.language.part_files import load_part, save_part
from proxima.domains.language.pipeline import CALIBRATION, Trial, reference_of, trainable
from proxima.domains.language.results import LanguageTrial
from proxima.domains.language.reward_model import (
    Pairs,
    RewardModel,
    Source,
    calibrated,
    given_pairs,
    load_reward_model,
    make_pairs,
    rated_pairs,
    reward_stage,
    save_reward_model,
)
from proxima.domains.language.stages import REWARD_MODEL
from proxima.domains.language.tables import Table
from proxima.domains.language.tokenizer import Tokenizer, left_padded, right_padded, unpadded
from proxima.nets.transformer import Decoder
from proxima.run.results import Outcome

FOLDER, PART_FILE = "model", "part.safetensors"


def make(trial: Trial) -> Trainable:
    """A reward model; leaves it calibrated, as a folder from which PPO reads it."""
    scenario, (_, tokenizer, like) = trial.scenario, trial.material
    assert scenario.reward_model is not None
    base = reference_of(trial)
    training = reward_stage(
        scenario.reward_model,
        base,
        scenario.lora,
        *_pairs(trial),
        tokenizer.eos_id,
        trial.seed,
        scenario.model.gradient_checkpointing,
        trial.place,
    )

    def judge(trained: Trained) -> Verdict:
        part, folder = trained.lanes[0].part, trained.folders[0] / FOLDER
        rows = right_padded(_reference_texts(trial, base), tokenizer.pad_id)
        model = calibrated(base, part, rows, trial.place)
        save_reward_model(model, tokenizer, folder, like)
        if scenario.lora is not None:  # so that this run's PPO need not hold the base a second time
            save_part(part, folder / PART_FILE)
        calibration = {"mean": float(model.mean), "std": float(model.std)}
        return Verdict([Outcome(details=LanguageTrial(calibration=calibration))])

    return trainable(trial, REWARD_MODEL, training, judge)


def saved_reward_model(trial: Trial, base: Decoder) -> RewardModel:
    """What the stage left; with LoRA over the base that PPO holds already."""
    folder, config = trial.directory / REWARD_MODEL.name / FOLDER, trial.scenario.model
    model, _ = load_reward_model(folder, config.dtype)
    if trial.scenario.lora is not None:
        model = model._replace(base=base, part=load_part(folder / PART_FILE, base))
    return model


def _pairs(trial: Trial) -> tuple[Source, Pairs]:
    """Given pairs, or pairs of rated texts: those to train on, and held-out ones."""
    config, data = trial.scenario.reward_model, trial.scenario.data
    assert config is not None
    (train, held_out, *_), tokenizer, _ = trial.material
    count, gap = config.held_out_pairs, config.rating_gap
    if train.chosen is not None:
        given = Pairs(*preferred(data, train, tokenizer))
        chosen, rejected = preferred(data, held_out, tokenizer)
        return given_pairs(given, trial.seed), Pairs(chosen[:count], rejected[:count])
    source = rated_pairs(*_rated(train, tokenizer), gap, trial.seed)
    # the same held-out pairs for every trial
    return source, make_pairs(*_rated(held_out, tokenizer), gap, count, trial.scenario.seed)


def _rated(table: Table, tokenizer: Tokenizer) -> tuple[list[list[int]], list[float]]:
    if table.text is None or table.rating is None:
        raise ProximaError(
            "data: the reward model needs columns text and rating, or prompt, chosen and rejected"
        )
    return tokenizer.encode(table.text), table.rating


def _reference_texts(trial: Trial, base: Decoder) -> list[list[int]]:
    """What the reference writes after training prompts; without PPO, what people wrote."""
    scenario, (texts, tokenizer, _) = trial.scenario, trial.material
    assert scenario.reward_model is not None
    count, ppo = scenario.reward_model.calibration_samples, scenario.ppo
    if ppo is None:
        written = imitated(scenario.data, texts.train, tokenizer)[:count]
        return with_eos(written, tokenizer.eos_id, base.config.context)
    prompts, _ = trial.prompts(base, ppo.new_tokens)
    generator = Generator(base, tokenizer, ppo.new_tokens, ppo.temperature)
    made: list[list[int]] = []
    for start in range(0, count, ppo.batch_size):
        asked = [prompts[i % len(prompts)] for i in range(start, start + ppo.batch_size)]
        key = jax.random.fold_in(trial.key(CALIBRATION), start)
        samples = generator.generate(REFERENCE, left_padded(asked, tokenizer.pad_id), key)
        made += unpadded(joined(samples.prompts, samples.completions))
    return made[:count]
