"""One trainer for every policy: a scenario in; trained, evaluated and compared agents out."""

from typing import TYPE_CHECKING, Any

from proxima.domains.trading.registration import register_with_gymnasium

if TYPE_CHECKING:
    from proxima.core.errors import ProximaError
    from proxima.domains.trading.features import register_feature
    from proxima.run.policy import Policy, load_policy
    from proxima.run.resume import resume_experiment
    from proxima.run.start import run_multiple_experiments, run_single_experiment
    from proxima.run.trainer import DDPGTrainer, PPOTrainer, SPOTrainer, Trainer
    from proxima.scenario import Scenario, load

__version__ = "0.1.0"

# Loaded on first use, so that `proxima --help` need not wait for JAX.
_WHERE = {
    "DDPGTrainer": "proxima.run.trainer",
    "PPOTrainer": "proxima.run.trainer",
    "Policy": "proxima.run.policy",
    "ProximaError": "proxima.core.errors",
    "SPOTrainer": "proxima.run.trainer",
    "Scenario": "proxima.scenario",
    "Trainer": "proxima.run.trainer",
    "load": "proxima.scenario",
    "load_policy": "proxima.run.policy",
    "register_feature": "proxima.domains.trading.features",
    "resume_experiment": "proxima.run.resume",
    "run_multiple_experiments": "proxima.run.start",
    "run_single_experiment": "proxima.run.start",
}

__all__ = [
    "DDPGTrainer",
    "PPOTrainer",
    "Policy",
    "ProximaError",
    "SPOTrainer",
    "Scenario",
    "Trainer",
    "load",
    "load_policy",
    "register_feature",
    "resume_experiment",
    "run_multiple_experiments",
    "run_single_experiment",
]


def __getattr__(name: str) -> Any:
    import importlib

    if name not in _WHERE:
        raise AttributeError(f"module 'proxima' has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


register_with_gymnasium()
