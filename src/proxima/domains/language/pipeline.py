"""What the stages of a trial share: texts, tokenizer, the model that they start from, how they are driven.

What a stage made is read from disk also by the run that made it, so that one which is resumed goes on
from the same bits.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from proxima.core.functions import object_at
from proxima.core.types import PyTree
from proxima.domains.domain import Planned, Trainable, Trained, Verdict
from proxima.domains.language import plots
from proxima.domains.language.config import LanguageScenario, MeshConfig
from proxima.domains.language.data import Texts, prompts_of, read_texts
from proxima.domains.language.hf import check_vocabulary, load_model, save_model
from proxima.domains.language.hf_config import decoder_config
from proxima.domains.language.hub import locate
from proxima.domains.language.mesh import lay_out, lay_out_rows
from proxima.domains.language.model import Part, merged_decoder, new_model
from proxima.domains.language.samples import Rows
from proxima.domains.language.stages import SFT, LanguageStage, policy_of, stages_of
from proxima.domains.language.tokenizer import Tokenizer, load_tokenizer, train_tokenizer
from proxima.nets.transformer import Decoder
from proxima.run.results import Outcome
from proxima.train.devices import process_count
from proxima.train.memory import Need, check_memory, tree_bytes
from proxima.train.stage import Preview, Row, Schedule, Score, Stage

# Roles of the keys that come from a trial's seed here; the stages' trainings have their own.
WEIGHTS, CALIBRATION = 101, 102


class Material(NamedTuple):
    """What all trials share."""

    texts: Texts
    tokenizer: Tokenizer
    folder: Path | None  # of the model that the scenario names; None: a new one for each trial


class Training(NamedTuple):
    """One training of a model: a state, and what an update makes of it.

    A state is a tree of arrays and typed PRNG keys; saved whole, it is all that training needs to go on.
    """

    updates: int  # in its budget
    init: Callable[[], PyTree]
    # state, number of the update (0 is the first) → new state, metrics; the old state is given up
    update: Callable[[PyTree, int], tuple[PyTree, dict[str, float]]]
    # held-out figures by name, area first (eval/…); changes nothing. Called before the first update too.
    evaluate: Callable[[PyTree], dict[str, float]]
    evaluate_every: int  # updates between two evaluations; one is made at the end in any case
    preview: Callable[[], Preview | None] = lambda: None  # of the newest evaluation


class Trial(NamedTuple):
    """A trial of a scenario, as its stages are made for it."""

    scenario: LanguageScenario
    material: Material
    number: int
    directory: Path

    @property
    def seed(self) -> int:
        """Where all its random numbers come from."""
        return self.scenario.seed + self.number

    def key(self, role: int) -> jax.Array:
        """A key of the trial's seed, for one role."""
        return jax.random.fold_in(jax.random.key(self.seed), role)

    def layout(self, rows: Rows) -> Rows:
        """Rows as they lie over the mesh's devices."""
        return lay_out_rows(rows, self.scenario.model.mesh)

    @property
    def context(self) -> int:
        """Tokens that its models can look at."""
        folder = self.material.folder
        return self.scenario.model.new.context if folder is None else decoder_config(folder).context

    def prompts(self, new_tokens: int) -> tuple[list[list[int]], list[list[int]]]:
        """Training and held-out prompts as ids, each short enough for so many tokens to follow it."""
        texts, tokenizer, _ = self.material
        stage = policy_of(self.scenario)
        assert stage is not None  # whoever asks prompts has a policy, or is about to
        given = (self.scenario.data, texts, tokenizer, self.context, new_tokens)
        return prompts_of(*given, stage.name)


def read_material(scenario: LanguageScenario) -> Material:
    """Texts, tokenizer and the model's folder, all checked; nothing is written."""
    texts = read_texts(scenario.data, scenario.name)
    if scenario.model.path is not None:
        folder = locate(scenario.model.path)
        return Material(texts, load_tokenizer(folder), folder)
    learnt_from = texts.train.text or texts.train.chosen or []
    tokenizer = train_tokenizer(learnt_from, scenario.model.new.vocabulary)
    _check_memory(scenario, tokenizer.size)
    return Material(texts, tokenizer, None)


def _check_memory(scenario: LanguageScenario, vocabulary: int) -> None:
    """An error where a new model, and what training all of it takes, is more than the machine can hold."""
    model = scenario.model
    make = partial(new_model, config=model.new, vocabulary=vocabulary, dtype=model.dtype)
    weights = tree_bytes(jax.eval_shape(make, jax.random.key(0)))
    needs = [Need("weights", "model.new", weights)]
    if scenario.lora is None:
        needs.append(Need("their gradients and Adam's two moments", "model.new", 3 * weights))
    check_memory(needs)


def check_ahead(scenario: LanguageScenario, material: Material) -> None:
    """Refuses what a later stage would stumble over, before the first trains: what each reads, it names."""
    trial = Trial(scenario, material, 0, Path())
    for stage in stages_of(scenario):
        if stage.ahead:
            object_at(stage.ahead, stage.name)(trial)


def planned_stages(scenario: LanguageScenario, material: Material) -> list[Planned]:
    """Every trial's stages one after the other."""

    def make(stage: LanguageStage, number: int, directory: Callable[[int], Path]) -> Trainable:
        trial = Trial(scenario, material, number, directory(number))
        made: Trainable = object_at(stage.make, stage.name)(trial)
        return made if process_count() == 1 else _judged_alone(made, stage, trial)

    return [
        Planned(stage.name, (number,), partial(make, stage, number), kept=True)
        for number in range(scenario.trials)
        for stage in stages_of(scenario)
    ]


def _judged_alone(together: Trainable, stage: LanguageStage, trial: Trial) -> Trainable:
    """The stage of a gang; process 0 judges it alone, with models that are made again on its own device."""

    @cache
    def alone() -> Trainable:
        model = replace(trial.scenario.model, mesh=MeshConfig())
        here = trial._replace(scenario=replace(trial.scenario, model=model))
        made: Trainable = object_at(stage.make, stage.name)(here)
        return made

    return together._replace(
        judge=lambda trained: alone().judge(trained),
        export=lambda trained: alone().export(trained),
    )


def first_model(trial: Trial) -> Decoder:
    """The model that a trial starts from: the one named, or a new one."""
    config, (_, tokenizer, folder) = trial.scenario.model, trial.material
    if folder is None:
        decoder = new_model(trial.key(WEIGHTS), config.new, tokenizer.size, config.dtype)
    else:
        decoder = load_model(folder, config.dtype)
        check_vocabulary(decoder, tokenizer.size, folder)
    return lay_out(decoder, config.mesh)


def reference_of(trial: Trial) -> Decoder:
    """The model that the stages after fine-tuning start from: the fine-tuned one, or the scenario's own."""
    config = trial.scenario.model
    if trial.scenario.sft is None:
        return first_model(trial)
    return lay_out(load_model(trial.directory / SFT.model, config.dtype), config.mesh)


def save_policy(trial: Trial, base: Decoder, part: Part, folder: Path) -> None:
    """What a part makes of a model, as a Hugging Face folder with the tokenizer."""
    save_model(merged_decoder(base, part), folder, trial.material.folder)
    trial.material.tokenizer.save(folder)


def trainable(
    trial: Trial, stage: LanguageStage, training: Training, judge: Callable[[Trained], Verdict]
) -> Trainable:
    """A training as a stage of its trial, judged and drawn when it has ended: a single lane.

    An update of a language model takes long enough for the host to look at each, so a chunk is one update.
    """
    scenario, measure = trial.scenario, stage.measure

    def advance(
        state: PyTree, active: np.ndarray, updates: int, done: int
    ) -> tuple[PyTree, list[Row]]:
        state, metrics = training.update(state, done)
        return state, [metrics]

    def evaluate(state: PyTree) -> list[Score]:
        figures = training.evaluate(state)
        return [Score(measure.sign * figures[measure.figure], 1, figures, training.preview())]

    def draw(trained: Trained, lane: int, outcome: Outcome) -> None:
        picture = trained.folders[lane] / "plots" / f"{stage.name}.png"
        title = f"{scenario.name}, {stage.name.replace('_', ' ')}"
        trained.paint(plots.stage, picture, trained.rows(lane), title)

    driven = Stage(
        trials=(trial.number,),
        unit="updates",
        steps_per_update=1,
        schedule=Schedule(
            updates_per_chunk=1,
            max_steps=training.updates,
            evaluate_every=training.evaluate_every,
            evaluate_first=True,
            save_every=scenario.checkpoint.frequency,
            stop_when_converged=scenario.evaluation.stop_when_converged,
            stop_on_alarm=scenario.evaluation.stop_on_alarm,
            closing=scenario.evaluation.checkpoint,
        ),
        init=training.init,
        split=lambda state: [state],
        join=lambda lanes: on_devices(lanes[0]),
        advance=advance,
        evaluate=evaluate,
        best_by=(measure.figure, measure.sign),
        figures=measure.shown,
    )
    return Trainable(driven, judge, draw=draw)


def on_devices(state: PyTree) -> PyTree:
    """A restored state as JAX holds it; keys are theirs already."""
    return jax.tree.map(
        lambda leaf: leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf), state
    )
