"""What the stages of a language scenario are made of: the place where its names become the things they name."""

import os
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from proxima.core.errors import ProximaError
from proxima.core.stage import Stage
from proxima.domains.language.data import Texts, imitated, preferred, prompts_of, read_texts
from proxima.domains.language.evaluate import Evaluator
from proxima.domains.language.generate import Generator
from proxima.domains.language.hf import check_vocabulary, load_model, locate
from proxima.domains.language.judge import judge
from proxima.domains.language.mesh import lay_out
from proxima.domains.language.model import REFERENCE, joined, new_shape
from proxima.domains.language.ppo import ppo_stage
from proxima.domains.language.reward_model import (
    RewardModel,
    calibrated,
    load_reward_model,
    reward_stage,
)
from proxima.domains.language.rewards import RewardComputer
from proxima.domains.language.sft import sft_stage
from proxima.domains.language.tokenizer import (
    Tokenizer,
    left_padded,
    load_tokenizer,
    train_tokenizer,
)
from proxima.scenario import LanguageScenario

# Roles of the keys that are drawn from a trial's seed here; the stages fold in their own.
WEIGHTS, CALIBRATION = range(2)


class Material(NamedTuple):
    """What all trials share."""

    texts: Texts
    tokenizer: Tokenizer
    folder: Path | None  # of the model that the scenario names; None: a new one for each trial


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
    tokenizer = train_tokenizer(learnt_from, scenario.model.new.vocabulary)
    return Material(texts, tokenizer, None)
