"""MLflow's own pages on the same store, for this machine only."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
import webbrowser
from contextlib import suppress

from proxima.core.errors import ProximaError
from proxima.core.extras import needs_extra
from proxima.track.store import ENVIRONMENT, resolve_uri

LOOPBACK = "127.0.0.1"  # the pages can delete runs: never offered to the network
# MLflow's front page is of language-model traces.
RUNS = "#/experiments?workflowType=machine_learning"
GOODBYE_SECONDS = 5  # for the server to close its store before it is killed


def command(port: int) -> list[str]:
    """The command line that serves a store; which one is in the environment, where no password shows."""
    return [
        *(sys.executable, "-m", "mlflow", "ui"),
        *("--host", LOOPBACK, "--port", str(port), "--workers", "1"),
    ]


def environment(uri: str | None) -> dict[str, str]:
    """What tells MLflow the store."""
    return ENVIRONMENT | os.environ | {"MLFLOW_BACKEND_STORE_URI": resolve_uri(uri)}


def serve(uri: str | None, port: int, browse: bool) -> None:
    """Serve until Ctrl-C; with `browse` a browser is opened on the runs as soon as they are there."""
    with needs_extra("dashboard", "proxima dashboard"):
        import flask  # noqa: F401  the server's: MLflow without it keeps the store but serves no pages

    address = f"http://{LOOPBACK}:{port}/"
    print(f"MLflow at {address}{RUNS}  (Ctrl-C ends it)", flush=True)
    # A group of its own: the server starts workers, and all of them end with us.
    server = subprocess.Popen(command(port), env=environment(uri), start_new_session=True)
    try:
        if browse and _answers(address, server):
            webbrowser.open(address + RUNS)
        code = server.wait()
    except KeyboardInterrupt:
        return
    finally:
        _end_group(server)
    if code != 0:
        raise ProximaError(
            f"MLflow's server ended with code {code}; is port {port} taken? try --port"
        )


def _answers(address: str, server: subprocess.Popen[bytes]) -> bool:
    """Whether the server serves pages; waits until it does or has ended."""
    while server.poll() is None:
        with suppress(OSError), urllib.request.urlopen(address, timeout=1):
            return True
        time.sleep(0.2)
    return False


def _end_group(server: subprocess.Popen[bytes]) -> None:
    """The server and every worker of it are gone."""
    with suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(GOODBYE_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()
