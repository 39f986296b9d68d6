"""Packages that a plain install leaves out: a missing one is a sentence that names the extra to install."""

from collections.abc import Iterator
from contextlib import contextmanager

from proxima.core.errors import ProximaError


@contextmanager
def needs_extra(extra: str, setting: str) -> Iterator[None]:
    """Import optional packages inside this block; if one is missing, the error says how to install it.

    `setting` is what asked for the package, as a user wrote it: "env.backend: jumanji".
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise missing_extra(extra, setting, error.name or extra) from error
    except ImportError as error:  # it is there, but broken: the reason matters
        raise missing_extra(extra, setting, error.name or extra, f" ({error})") from error


def missing_extra(extra: str, setting: str, module: str, reason: str = "") -> ProximaError:
    """The error for a module that the extra would install."""
    package = module.partition(".")[0]
    return ProximaError(
        f"{setting} needs the package {package}{reason}; "
        f"install it with  pip install 'proxima[{extra}]'"
    )
