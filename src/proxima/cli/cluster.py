"""Commands about clusters: cluster status."""

import json as json_module

import typer

from proxima.cli.options import Debug, Json


def add_commands(app: typer.Typer) -> None:
    """These commands to the command line."""
    cluster = typer.Typer(
        name="cluster",
        help="Machines of a Ray cluster, on which blocks of trials train.",
        no_args_is_help=True,
    )
    cluster.command("status")(status)
    app.add_typer(cluster)


def status(
    address: str = typer.Argument("auto", metavar="ADDRESS"),
    json: Json = False,
    debug: Debug = False,
) -> None:
    """The machines of a cluster, and what each has."""
    from proxima.cluster.address import parse_address
    from proxima.cluster.session import nodes, open_session
    from proxima.terminal import run_console

    with open_session(parse_address(address)) as session:
        machines = nodes(session)
        free = dict(session.ray.available_resources())
        dashboard = session.dashboard
    if json:
        content = {
            "nodes": [node._asdict() for node in machines],
            "free": free,
            "dashboard": dashboard,
        }
        run_console().file.write(json_module.dumps(content, indent=2) + "\n")
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("machine", "state", "cores", "GPUs", "memory"):
        table.add_column(column, justify="left" if column in ("machine", "state") else "right")
    for node in machines:
        has = node.resources
        memory = f"{has['memory'] / 1024**3:.1f} GB" if "memory" in has else ""
        state = "there" if node.is_alive else "lost"
        table.add_row(
            node.name, state, f"{has.get('CPU', 0):.0f}", f"{has.get('GPU', 0):.0f}", memory
        )
    console = run_console()
    console.print(table)
    console.print(f"{free.get('CPU', 0):.0f} cores are free.")
    if dashboard:
        console.print(f"Ray's dashboard: {dashboard}")
