"""One trainer for every policy: a scenario in; trained, evaluated and compared agents out."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from proxima.backend import use_available_backend
from proxima.domains.trading.registration import register_with_gymnasium

if TYPE_CHECKING:
    from proxima.core.errors import ProximaError
    from proxima.domains.trading.features import register_feature
    from proxima.run.policy import Policy, load_policy
    from proxima.run.resume import resume_experiment
    from proxima.run.start import run_multiple_experiments, run_single_experiment
    from proxima.run.trainer import (
        DDPGTrainer,
        DQNTrainer,
        PPOTrainer,
        PQNTrainer,
        SACTrainer,
        SPOTrainer,
        Trainer,
    )
    from proxima.scenario import Scenario, load
    from proxima.tune.run import search_settings

__version__ = "0.1.0"

# Loaded on first use, so that `proxima --help` need not wait for JAX.
_NAMES = {
    "proxima.core.errors": ("ProximaError",),
    "proxima.domains.trading.features": ("register_feature",),
    "proxima.run.policy": ("Policy", "load_policy"),
    "proxima.run.resume": ("resume_experiment",),
    "proxima.run.start": ("run_multiple_experiments", "run_single_experiment"),
    "proxima.run.trainer": (
        "DDPGTrainer",
        "DQNTrainer",
        "PPOTrainer",
        "PQNTrainer",
        "SACTrainer",
        "SPOTrainer",
        "Trainer",
    ),
    "proxima.scenario": ("Scenario", "load"),
    "proxima.tune.run": ("search_settings",),
}

__all__ = [
    "DDPGTrainer",
    "DQNTrainer",
    "PPOTrainer",
    "PQNTrainer",
    "Policy",
    "ProximaError",
    "SACTrainer",
    "SPOTrainer",
    "Scenario",
    "Trainer",
    "load",
    "load_policy",
    "register_feature",
    "resume_experiment",
    "run_multiple_experiments",
    "run_single_experiment",
    "search_settings",
]


def __getattr__(name: str) -> Any:
    for module, names in _NAMES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'proxima' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


use_available_backend()
register_with_gymnasium()
