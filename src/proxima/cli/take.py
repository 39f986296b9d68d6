"""The command that takes a policy out of its run: export."""

from pathlib import Path
from textwrap import wrap
from typing import Annotated, Any

import typer

from proxima.cli.console import print_json, say
from proxima.cli.options import Debug, Json, Output, Trial, argument, path_option

WIDTH = 80


def add_commands(app: typer.Typer) -> None:
    """The command to the command line."""
    app.command()(export)


def export(
    run: Annotated[str, argument("RUN", "An experiment, a run, a trial or a policy's directory.")],
    onnx: Annotated[
        bool, typer.Option("--onnx", help="An ONNX model, policy.onnx, instead of a copy.")
    ] = False,
    trial: Trial = None,
    out: Annotated[
        Path | None, path_option("Directory to write; default: SCENARIO_policy, or _onnx.")
    ] = None,
    output: Output = "logs",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Take a trained policy out of its run: a copy, or ONNX.

    A copy is used by proxima.load_policy(DIRECTORY).predict(observation).
    """
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
    lines = [
        "Use it:  policy = proxima.load_policy(" + repr(written["path"]) + ")",
        "         action = policy.predict(observation)",
    ]
    if written["remembers"]:
        lines += [
            "         policy.reset()  # before a new episode, because predict remembers",
            "         action, state = policy.step(observation, None)  # or keep it yourself",
        ]
    if written["raw"] is not None:
        lines += [
            "Raw:     policy.predict(raw)",
            *(
                line
                for end in ("takes", "gives")
                for line in wrap(f"  {end} {written['raw'][end]}", WIDTH, subsequent_indent="    ")
            ),
        ]
    return lines


def _use_of_onnx(written: dict[str, Any]) -> list[str]:
    checked = written["checked"]
    inputs = ", ".join(f"{each['name']!r}: {_variable(each['name'])}" for each in written["inputs"])
    outputs = [each["name"] for each in written["outputs"]]
    memory = "Memory:  zeros at the start of an episode, then what came out as next_memory…"
    results = ", ".join(_variable(name) for name in outputs)
    return [
        f"Checked: the same action at {checked['same']} of {checked['observations']} random observations.",
        *(f"  {end} {_shown(each)}" for end in ("inputs", "outputs") for each in written[end]),
        *([memory] if written["remembers"] else []),
        "Use it:  import onnxruntime",
        f"         session = onnxruntime.InferenceSession({written['path']!r})",
        f"         {results}{',' if len(outputs) == 1 else ''} = session.run({outputs!r}, {{{inputs}}})",
    ]


def _variable(name: str) -> str:
    return name.replace(".", "_")


def _shown(end: dict[str, Any]) -> str:
    return f"{end['name']}: {end['dtype']} ({', '.join(map(str, end['shape']))})"
