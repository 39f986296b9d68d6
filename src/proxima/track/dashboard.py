"""MLflow's own pages on the same store, for this machine only."""

import os
import subprocess
import sys

from proxima.core.errors import ProximaError
from proxima.core.extras import needs_extra
from proxima.track.store import ENVIRONMENT, resolve_uri

LOOPBACK = "127.0.0.1"  # the pages can delete runs: never offered to the network


def command(port: int) -> list[str]:
    """The command line that serves a store; which one is in the environment, where no password shows."""
    return [
        *(sys.executable, "-m", "mlflow", "ui"),
        *("--host", LOOPBACK, "--port", str(port), "--workers", "1"),
    ]


def environment(uri: str | None) -> dict[str, str]:
    """What tells MLflow the store."""
    return ENVIRONMENT | os.environ | {"MLFLOW_BACKEND_STORE_URI": resolve_uri(uri)}


def serve(uri: str | None, port: int) -> None:
    """Serve until Ctrl-C."""
    with needs_extra("dashboard", "proxima dashboard"):
        import flask  # noqa: F401  the server's: MLflow without it keeps the store but serves no pages

    print(f"MLflow at http://{LOOPBACK}:{port}  (Ctrl-C ends it)", flush=True)
    try:
        done = subprocess.run(command(port), env=environment(uri), check=False)
    except KeyboardInterrupt:
        return
    if done.returncode not in (0, -2, 130):
        raise ProximaError(
            f"MLflow's server ended with code {done.returncode}; is port {port} taken? try --port"
        )
