"""Ray for the time of a run: started here for this run alone, or found where the user started it.

A cluster that we start listens on this machine only and asks for a token that nobody else knows; it ends
with us. One that the user started is left as it was.
"""

import os
import secrets
import socket
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from proxima.cluster.address import Address
from proxima.core.errors import ProximaError
from proxima.core.extras import needs_extra

# "0": Ray takes the loopback address for this machine's.
LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
# Read by Ray when it is imported.
OF_OUR_OWN = {"RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0", LOOPBACK: "0"}
QUIET = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # it warns otherwise that this will change
    "RAY_DEDUP_LOGS": "0",
}
SILENT = {"log_to_driver": False, "logging_level": "ERROR"}
OBJECT_STORE = 256 * 1024**2  # bytes, of a cluster of our own: states in flight


class Session(NamedTuple):
    """Ray, connected."""

    ray: Any
    address: Address
    head: tuple[str, int] | None  # where its head listens; None where it ends with us
    dashboard: str | None


class Node(NamedTuple):
    """A machine of the cluster."""

    name: str
    is_alive: bool
    resources: Mapping[str, float]


@contextmanager
def open_session(address: Address) -> Iterator[Session]:
    """Ray while this is open."""
    ray = imported_ray(f"--cluster {address.value or 'local'}", address.kind == "local")
    if address.kind != "local" and address.value != "auto" and not answers(_listener(address)):
        raise ProximaError(_refusal(address, ConnectionError("nobody answers there")))
    if ray.is_initialized():
        raise ProximaError(
            "--cluster: Ray is already in use by this process; call ray.shutdown() first"
        )
    try:
        info = _connected(ray, address)
        yield Session(ray, address, _head(address, info), _dashboard(info))
    finally:
        ray.shutdown()


def imported_ray(setting: str, of_our_own: bool) -> Any:
    """Ray; imported now, it knows that a cluster of our own is for this machine and this process alone."""
    if "ray" not in sys.modules:  # it reads these when it is imported
        for name, value in QUIET.items():
            os.environ.setdefault(name, value)
        if of_our_own:
            os.environ.update(OF_OUR_OWN | {"RAY_AUTH_TOKEN": secrets.token_hex(32)})
    with needs_extra("cluster", setting):
        import ray
    return ray


def start_ray(ray: Any, processes: int) -> Any:
    """Ray started on this machine, with room for so many processes."""
    with warnings.catch_warnings():
        # Ray forks to start its processes, each of which is another program at once: JAX's threads, which it
        # warns of, are not in them.
        warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
        # What the variable above says, where Ray was imported before we could set it.
        ray._private.ray_constants.ENABLE_RAY_CLUSTER = False
        os.environ[LOOPBACK] = "0"
        return ray.init(
            address="local",  # a new one, also where another is running
            num_cpus=processes,
            num_gpus=0,
            include_dashboard=False,
            object_store_memory=OBJECT_STORE,
            **SILENT,
        )


def nodes(session: Session) -> list[Node]:
    """Every machine that is or was there, the living first."""
    machines = [
        Node(entry["NodeManagerAddress"], bool(entry["Alive"]), dict(entry["Resources"]))
        for entry in session.ray.nodes()
    ]
    return sorted(machines, key=lambda node: (not node.is_alive, node.name))


def _connected(ray: Any, address: Address) -> Any:
    if address.workers is not None:
        return start_ray(ray, address.workers)
    try:
        return ray.init(address=address.value, **SILENT)
    except Exception as failure:  # Ray raises what its layers raise: connection, version, token
        raise ProximaError(_refusal(address, failure)) from failure


def _refusal(address: Address, failure: Exception) -> str:
    """Why a cluster could not be joined, and what to do."""
    reason = (str(failure).strip() or type(failure).__name__).splitlines()[0]
    if "ersion" in reason:
        remedy = "install the same Python and Ray on every machine"
    elif "token" in reason.lower() or "auth" in reason.lower():
        remedy = "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN to the cluster's token"
    else:
        remedy = "start one with `ray start --head`, or use --cluster local:2 on this machine"
    return f"--cluster {address.value}: no cluster could be joined: {reason}; {remedy}"


def _listener(address: Address) -> tuple[str, int]:
    """Host and port of an address that has them."""
    host, _, port = address.value.removeprefix("ray://").rpartition(":")
    return host.strip("[]"), int(port)


def _head(address: Address, info: Any) -> tuple[str, int] | None:
    if address.kind != "found":
        return None
    host, _, port = str(info.address_info["gcs_address"]).rpartition(":")
    return host.strip("[]"), int(port)


def _dashboard(info: Any) -> str | None:
    url = getattr(info, "dashboard_url", None)
    return f"http://{url}" if url else None


def answers(head: tuple[str, int]) -> bool:
    """Whether the cluster's head takes connections."""
    try:
        socket.create_connection(head, timeout=2.0).close()
    except OSError:
        return False
    return True
