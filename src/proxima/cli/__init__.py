"""The command line: a file for each group of commands. Heavy imports wait until a command needs them."""

import atexit
import gc
import os
import sys
from typing import Any


def main() -> Any:
    """Run the command line; a user's mistake is a message and exit 1, Ctrl-C is exit 130."""
    from proxima.cli.app import app

    _open_standard_streams()
    os.environ["MPLBACKEND"] = "agg"  # a command opens no window, whatever a notebook asks for
    # or Python looks at all that JAX has left behind, which takes a second
    atexit.register(gc.freeze)
    try:
        app()  # leaves by itself at the end, after wrong usage (2) and after Ctrl-C (130)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        _explain(error)
        sys.exit(1)


def _open_standard_streams() -> None:
    """Standard streams that were closed become /dev/null, before some file of a run gets their number."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free


def _explain(error: Exception) -> None:
    """Say an error in words."""
    from proxima.core.errors import ProximaError
    from proxima.terminal import Output

    message = str(error)
    if not isinstance(error, ProximaError):
        message = (
            f"{type(error).__name__}: {error}\nThis is not a mistake of yours that we recognise; "
            "run the command again with --debug to see where it comes from."
        )
    Output(sys.stderr, waits=True).write(f"Error: {message}\n")
