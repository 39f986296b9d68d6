"""What a cluster's driver keeps up with: orders that workers give back at once, and the memory they take.

    python benchmarks/cluster_driver.py [--workers 2] [--orders 100 1000 10000] [--kilobytes 100]

All orders of a row are handed to the pool together, as the blocks of one chunk of a search are, each with
states of its own. Nothing is trained, so the time is the driver's, Ray's and the serialization's. A line that
is flat per block means that a chunk of 10,000 blocks costs the driver 100 times what one of 100 costs.
"""

import argparse
import gc
import os
import time
from typing import NamedTuple

from proxima.cluster.address import parse_address
from proxima.cluster.luggage import packed
from proxima.cluster.messages import Message
from proxima.cluster.pool import Pool
from proxima.cluster.session import Session, open_session
from proxima.scenario import dump, load, to_mapping

SCENARIO = "cartpole"  # workers read it and build nothing of it


class Measured(NamedTuple):
    """What some orders cost the driver; kilobytes of resident memory are per order."""

    orders: int
    seconds: float
    kilobytes_waiting: float  # more than before while all wait; their states are in it
    kilobytes_kept: float  # more than before when all are answered and their answers dropped
    kilobytes_store: (
        float  # more of Ray's object store, whose size is fixed, that this process has touched
    )


def resident_kilobytes(kind: str) -> float:
    """The driver's resident memory: RssAnon is its own, RssShmem what it touched of Ray's object store."""
    with open("/proc/self/status") as file:
        return next(float(line.split()[1]) for line in file if line.startswith(kind))


def measure(pool: Pool, orders: int, kilobytes: int) -> Measured:
    """All orders given together, and heard of until the last."""
    gc.collect()
    before, store = resident_kilobytes("RssAnon"), resident_kilobytes("RssShmem")
    began = time.perf_counter()
    for number in range(orders):
        pool.submit(number, Message("{}", {"lanes": os.urandom(kilobytes * 1024)}, "echo"))
    waiting = resident_kilobytes("RssAnon") - before
    heard = set()
    for _ in range(orders):
        heard.add(pool.next().key)
    seconds = time.perf_counter() - began
    assert len(heard) == orders
    gc.collect()
    kept = resident_kilobytes("RssAnon") - before
    store = resident_kilobytes("RssShmem") - store
    return Measured(orders, seconds, waiting / orders, kept / orders, store / orders)


def open_pool(session: Session) -> Pool:
    """Workers that have answered once, so that their start is not measured."""
    scenario = load(SCENARIO)
    pool = Pool(session, dump(scenario), packed(to_mapping(scenario), []), print)
    for number in range(20 * pool.width):
        pool.submit(number, Message("{}", {}, "echo"))
    for _ in range(20 * pool.width):
        pool.next()
    return pool


def row(measured: Measured) -> str:
    """A line of the table."""
    orders, seconds, waiting, kept, store = measured
    return (
        f"{orders:>8,} {seconds:>9.2f} {1e3 * seconds / orders:>10.2f} {orders / seconds:>9.0f} "
        f"{waiting:>17.1f} {kept:>14.2f} {store:>15.1f}"
    )


def main() -> None:
    """The table, a line per number of orders."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--orders", type=int, nargs="+", default=[100, 1_000, 10_000])
    parser.add_argument("--kilobytes", type=int, default=100)
    options = parser.parse_args()
    print(f"{options.workers} workers, states of {options.kilobytes} kB, load {os.getloadavg()}")
    print(
        "  orders   seconds   ms/block  blocks/s  kB/block waiting  kB/block kept  kB/block store"
    )
    with open_session(parse_address(f"local:{options.workers}")) as session:
        pool = open_pool(session)
        for orders in options.orders:
            print(row(measure(pool, orders, options.kilobytes)), flush=True)
        pool.close()


if __name__ == "__main__":
    main()
