"""The command that takes a policy out of its run: export."""

from pathlib import Path
from typing import Annotated, Any

import typer

from proxima.cli.console import print_json, say
from proxima.cli.options import Debug, Json, Output, Trial, argument, path_option


def add_commands(app: typer.Typer) -> None:
    """The command to the command line."""
    app.command()(export)


def export(
    run: Annotated[str, argument("RUN", "An experiment, a run, a trial or a policy's directory.")],
    onnx: Annotated[bool, typer.Option("--onnx", help="As an ONNX model, policy.onnx.")] = False,
    trial: Trial = None,
    out: Annotated[
        Path | None, path_option("Directory to write; default: named after the scenario.")
    ] = None,
    output: Output = "logs",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Take a trained policy out of its run: a copy of it, or an ONNX model."""
    from proxima.run.export import copy_policy, write_onnx

    written = (write_onnx if onnx else copy_policy)(run, out, output, trial)
    if json:
        print_json(written)
        return
    taken = written["checkpoint"]
    say(
        f"{'ONNX model' if onnx else 'Policy'}: {written['path']}  ({written['algorithm']} on "
        f"{written['env']}, {taken['kind']} checkpoint, step {taken['step']:,})"
    )
    if "policy" in written:
        say(f"It gives {written['policy']}.")
    for line in _use_of_onnx(written) if onnx else _use_of_copy(written):
        say(line)


def _use_of_copy(written: dict[str, Any]) -> list[str]:
    return [
        "Use it:  policy = proxima.load_policy(" + repr(written["path"]) + ")",
        "         action = policy.predict(observation)",
    ]


def _use_of_onnx(written: dict[str, Any]) -> list[str]:
    checked = written["checked"]
    inputs = ", ".join(f"{each['name']!r}: {_variable(each['name'])}" for each in written["inputs"])
    outputs = [each["name"] for each in written["outputs"]]
    results = ", ".join(_variable(name) for name in outputs)
    return [
        f"Checked: the same action at {checked['same']} of {checked['observations']} random observations.",
        *(f"  {end} {_shown(each)}" for end in ("inputs", "outputs") for each in written[end]),
        "Use it:  import onnxruntime",
        f"         session = onnxruntime.InferenceSession({written['path']!r})",
        f"         {results}{',' if len(outputs) == 1 else ''} = session.run({outputs!r}, {{{inputs}}})",
    ]


def _variable(name: str) -> str:
    return name.replace(".", "_")


def _shown(end: dict[str, Any]) -> str:
    return f"{end['name']}: {end['dtype']} ({', '.join(map(str, end['shape']))})"
