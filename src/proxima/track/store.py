"""Where MLflow's store is and what may be said of it; to import it loads nothing of MLflow."""

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from proxima.core.addresses import is_masked, masked, without_secrets
from proxima.core.errors import ProximaError
from proxima.core.paths import expand_home

DEFAULT_URI = "sqlite:///mlflow.db"
CREDENTIALS = ("MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN")  # MLflow's own
LOCKED_SECONDS = 10  # how long another process may hold the sqlite file when we open it
ENVIRONMENT = {  # read by MLflow; what the user has set stays
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_UV_AUTO_DETECT": "false",  # or a model would carry the working directory's uv.lock
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}


def resolve_uri(configured: str | None) -> str:
    """The store's address, a relative sqlite file made absolute as MLflow does.

    A resumed run's settings were stored without passwords: the environment has to give them again.
    """
    given = os.environ.get("MLFLOW_TRACKING_URI")
    if configured is not None and is_masked(configured):
        configured = given or _without_user(configured)
    uri = expand_home(configured or given or DEFAULT_URI)
    path = uri.removeprefix("sqlite:///")
    if path == uri or path == ":memory:":
        return uri
    return f"sqlite:///{Path(path).absolute()}"


def _without_user(stored: str) -> str:
    """A masked address that MLflow can use, if it finds user and password in its environment."""
    address = re.sub(r"(?<=://)[^/?#]*@", "", stored)
    if is_masked(address) or not any(map(os.environ.get, CREDENTIALS)):
        raise ProximaError(
            f"tracking.uri was stored without its password ({stored}); set MLFLOW_TRACKING_URI"
        )
    return address


def explain_failure(uri: str, reason: str) -> str:
    """What a user is told when nothing more can be written to the store."""
    first_line = without_secrets(reason, uri).splitlines()[0][:400]
    return (
        f"MLflow tracking at {masked(uri)} stopped: {first_line}. The run goes on and the local files "
        "hold everything; check tracking.uri, or set tracking.enabled to false."
    )


@contextmanager
def expecting(code: str) -> Iterator[None]:
    """Leave the block at an error of MLflow's that has this code, and go on."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        if error.error_code != code:
            raise


@contextmanager
def opening_sqlite(uri: str) -> Iterator[None]:
    """One process at a time makes the tables of a sqlite store, and a bad file is told at once.

    Left to itself MLflow tries a file that cannot be opened for 100 seconds, and two processes
    that start together on a new file both make its tables.
    """
    path = Path(uri.removeprefix("sqlite:///"))
    if not uri.startswith("sqlite:///") or path.name == ":memory:":
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        with suppress(ImportError, OSError):  # not on Windows, not on every network disk
            import fcntl

            fcntl.flock(directory, fcntl.LOCK_EX)
        with closing(sqlite3.connect(path, timeout=LOCKED_SECONDS)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.rollback()
        yield
    finally:
        os.close(directory)
