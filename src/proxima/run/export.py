"""A trained policy taken out of its run: a copy of its directory, or an ONNX model of it."""

from pathlib import Path
from typing import Any

from proxima.core.errors import ProximaError
from proxima.core.paths import usable_path
from proxima.files import replacing
from proxima.run.files import RunFiles, find_trial
from proxima.run.policy import Policy, is_policy
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


def find_policy(reference: str, output_directory: str = "logs", trial: int | None = None) -> Path:
    """The exported policy meant by its directory, a trial or a run; where there is none, in words why."""
    path = Path(usable_path(reference))
    if is_policy(path):
        if trial is not None:
            raise ProximaError(f"--trial {trial}: {reference} is a policy already; name its run")
        return path
    home = find_trial(reference, output_directory, trial)
    if is_policy(home / "policy"):
        return home / "policy"
    files = RunFiles(home.resolve().parent)
    if any(home.glob("**/model/config.json")):
        why = "it trained a model that writes text, no such policy; copy that one with  proxima model export"
    elif not files.summary.is_file() and files.info.is_file():
        why = f"policies are exported at the end of a run; finish it with  proxima resume {files.run_id}"
    else:
        why = "run its scenario again"
    raise ProximaError(f"{home}: has no exported policy: {why}")


def _kept(about: dict[str, Any]) -> dict[str, Any]:
    return {name: about[name] for name in KEPT if name in about}
