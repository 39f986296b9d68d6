"""An exported policy as a function, and as the model MLflow serves.

MLflow copies this one file beside the policy and runs it wherever the model is loaded, so it
imports nothing of Proxima: a directory with `policy.json`, `policy.safetensors` and
`policy.stablehlo` is all that is needed to act.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def load_policy(directory: str | Path) -> Callable[[Any], np.ndarray]:
    """The policy's greedy actions (n, ...) as a function of n observations, or of a single one."""
    import jax
    import jax.export
    from safetensors.numpy import load_file

    directory = Path(directory)
    observation = json.loads((directory / "policy.json").read_text())["observation"]
    weights = jax.device_put(load_file(directory / "policy.safetensors"))
    program = (directory / "policy.stablehlo").read_bytes()
    greedy = jax.jit(jax.export.deserialize(bytearray(program)).call)

    def act(observations: Any) -> np.ndarray:
        return np.asarray(greedy(weights, as_rows(observations, observation)))

    return act


def as_rows(observations: Any, kind: dict[str, Any]) -> Any:
    """Observations as the program takes them: an array, or one for each of its named fields."""
    if "fields" not in kind:
        return as_batch(observations, tuple(kind["shape"]), kind["dtype"])
    missing = sorted(set(kind["fields"]) - set(observations))
    if missing:
        raise ValueError(f"the observations lack {', '.join(missing)}; this policy needs them")
    return {
        name: as_batch(observations[name], tuple(field["shape"]), field["dtype"])
        for name, field in kind["fields"].items()
    }


def as_batch(observations: Any, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Observations (n, *shape) from an array, rows, a data frame, or a single observation."""
    values = np.asarray(observations)
    if values.shape == shape:
        return values[None].astype(dtype)
    if values.ndim == 1 and shape == ():
        return values.astype(dtype)
    if values.ndim == 0 or values.size != len(values) * math.prod(shape):
        raise ValueError(
            f"observations have shape {values.shape}; this policy takes (n, *{shape}) or {shape}"
        )
    return values.reshape(len(values), *shape).astype(dtype)


def _serve() -> None:
    from mlflow.models import set_model
    from mlflow.pyfunc import PythonModel

    class ServedPolicy(PythonModel):
        """What `mlflow.pyfunc.load_model` gives back; the parent class is MLflow's condition."""

        def load_context(self, context: Any) -> None:
            self.act = load_policy(context.artifacts["policy"])

        # Rows and data frames are welcome too; the hint keeps MLflow from guessing a schema.
        def predict(self, context: Any, model_input: np.ndarray, params: Any = None) -> np.ndarray:
            return self.act(model_input)

    set_model(ServedPolicy())


if __name__ != "proxima.track.served_policy":  # run by MLflow, not imported by us
    _serve()
