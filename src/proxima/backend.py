"""Matplotlib's backend: Agg where the environment names one that is not there."""

import os
from importlib.util import find_spec

MODULE = "module://"  # how MPLBACKEND names a package of its own


def use_available_backend() -> None:
    """MPLBACKEND names a backend that can be imported.

    A notebook sets it to a package of its own for every process that it starts. Where a command or a script
    runs in another environment, which lacks that package, importing matplotlib is an error; so is importing
    gymnax or jumanji, which import it. Our own pictures are always drawn by Agg.
    """
    name = os.environ.get("MPLBACKEND", "")
    package = name.removeprefix(MODULE).partition(".")[0]
    if name.startswith(MODULE) and (not package or find_spec(package) is None):
        os.environ["MPLBACKEND"] = "agg"
