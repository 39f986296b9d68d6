"""A trained policy taken out of its run: a copy of its directory, or an ONNX model of it."""

from pathlib import Path
from typing import Any

from proxima.core.paths import usable_path
from proxima.files import replacing
from proxima.run.files import find_policy
from proxima.run.policy import Policy
from proxima.track.registry import describe_exported

MODEL = "policy.onnx"
KEPT = ("scenario", "algorithm", "env", "trial", "checkpoint", "policy", "observation", "action")


def copy_policy(
    reference: str,
    out: Path | None = None,
    output_directory: str = "logs",
    trial: int | None = None,
) -> dict[str, Any]:
    """Copy a policy's directory, and say where it is and what it is."""
    directory = find_policy(reference, output_directory, trial)
    about = describe_exported(directory)
    target = Policy(directory).save(out or f"{about['scenario']}_policy")
    return {"path": str(target), **_kept(about)}


def write_onnx(
    reference: str,
    out: Path | None = None,
    output_directory: str = "logs",
    trial: int | None = None,
) -> dict[str, Any]:
    """Write a policy as `policy.onnx` into a directory; say where and what it is, and how it was checked."""
    from proxima.track.onnx.check import compare_actions, described_ends
    from proxima.track.onnx.convert import onnx_model

    directory = find_policy(reference, output_directory, trial)
    about = describe_exported(directory)
    model = onnx_model(directory)
    agreement = compare_actions(model, directory)
    path = Path(usable_path(str(out or f"{about['scenario']}_onnx"))) / MODEL
    with replacing(path, "model") as fresh:
        fresh.write_bytes(model)
    ends = described_ends(model)
    return {"path": str(path), **ends, "checked": agreement._asdict(), **_kept(about)}


def _kept(about: dict[str, Any]) -> dict[str, Any]:
    raw = about.get("raw")  # what it takes besides observations
    ends = {name: raw.get(name) for name in ("takes", "gives")} if isinstance(raw, dict) else None
    kept = {name: about[name] for name in KEPT if name in about}
    return {**kept, "remembers": "memory" in about, "raw": ends}
