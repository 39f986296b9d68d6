"""Which machines: what `--cluster` says, read and refused in words."""

import re
from typing import Literal, NamedTuple

from proxima.core.errors import ProximaError

FORMS = "auto, HOST:PORT, ray://HOST:PORT, or local:N for N workers on this machine"
MOST_WORKERS = 1_024


class Address(NamedTuple):
    """Where workers are to be found."""

    kind: Literal["local", "found", "remote"]
    value: str  # what Ray calls the address; "" where we start the cluster
    workers: int | None = None  # of one that we start


def parse_address(text: str) -> Address:
    """What `--cluster` names; an error where it names nothing."""
    if text == "auto":
        return Address("found", "auto")
    if local := re.fullmatch(r"local:(\d+)", text):
        workers = int(local[1])
        if not 1 <= workers <= MOST_WORKERS:
            raise ProximaError(f"--cluster: {text}: between 1 and {MOST_WORKERS:,} workers, please")
        return Address("local", "", workers)
    host = r"[\w.-]+|\[[0-9a-fA-F:]+\]"
    if remote := re.fullmatch(rf"(ray://)?({host}):(\d+)", text):
        if not 1 <= int(remote[3]) <= 65_535:
            raise ProximaError(f"--cluster: {text}: a port is a number from 1 to 65535")
        return Address("remote" if remote[1] else "found", text)
    raise ProximaError(f"--cluster: {text!r} is no address; write {FORMS}")
