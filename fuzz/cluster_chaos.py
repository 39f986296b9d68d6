"""A cluster of two machines, one of them killed at a random moment: the run ends as if nothing had happened.

    sudo python fuzz/cluster_chaos.py                  10 kills of a node, 5 of the head, a node cut off
    sudo python fuzz/cluster_chaos.py --nodes 2 --heads 1 --trials 16 --steps 8192

Each machine is a network namespace with a Ray node of its own, joined by a virtual cable. The driver runs
beside the head. A node is killed with everything that runs on it. Of a killed head nothing is left: the
driver ends in words, a new cluster is started and the run resumed on it. Weights, checkpoints and metrics are
compared, bit for bit, with those of a run that nobody disturbed. It needs root, for namespaces, and iproute2.
"""

import argparse
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "tests" / "support")]
BIN = Path(sys.executable).parent
PORT = 6379
CUT_SECONDS = 60.0


class Machine(NamedTuple):
    """A namespace, and the Ray node in it."""

    space: str
    address: str
    node: subprocess.Popen[bytes]


def namespaces(tag: str) -> list[tuple[str, str]]:
    """Two namespaces with an address each, joined."""
    spaces = [(f"px{tag}a", "10.77.0.1"), (f"px{tag}b", "10.77.0.2")]
    for space, _ in spaces:
        run("ip", "netns", "add", space)
    (a, _), (b, _) = spaces
    run("ip", "link", "add", f"v{tag}a", "netns", a, "type", "veth", "peer", f"v{tag}b", "netns", b)
    for (space, address), cable in zip(spaces, (f"v{tag}a", f"v{tag}b"), strict=True):
        inside = ("ip", "netns", "exec", space, "ip")
        run(*inside, "addr", "add", f"{address}/24", "dev", cable)
        run(*inside, "link", "set", cable, "up")
        run(*inside, "link", "set", "lo", "up")
    return spaces


def run(*command: str) -> None:
    subprocess.run(command, check=True)


def started(space: str, address: str, token: str, head: str | None) -> Machine:
    """A Ray node in a namespace; without `head` it is one."""
    where = ["--head", f"--port={PORT}"] if head is None else [f"--address={head}:{PORT}"]
    options = [
        f"--node-ip-address={address}",
        "--num-cpus=1",
        "--include-dashboard=false",
        "--block",
    ]
    if head is not None:
        options.remove("--include-dashboard=false")
    command = ["ip", "netns", "exec", space, str(BIN / "ray"), "start", *where, *options]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    environment = os.environ | secret(token)
    node = subprocess.Popen(command, env=environment, start_new_session=True, **quiet)
    return Machine(space, address, node)


def secret(token: str) -> dict[str, str]:
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token, "RAY_USAGE_STATS_ENABLED": "0"}


def kill(machine: Machine, but: int = 0) -> None:
    """Everything that runs in the machine's namespace, at once; `but` is a process that stays."""
    listed = subprocess.run(
        ["ip", "netns", "pids", machine.space], capture_output=True, text=True, check=True
    )
    for pid in map(int, listed.stdout.split()):
        if pid != but:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
    machine.node.wait()


def pull_cable(machine: Machine, seconds: float) -> None:
    """The machine hears nobody for a while."""
    inside = ("ip", "netns", "exec", machine.space, "ip", "link", "set")
    cable = machine.space.replace("px", "v")
    run(*inside, cable, "down")
    time.sleep(seconds)
    run(*inside, cable, "up")


def driver(space: str, token: str, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = ["ip", "netns", "exec", space, str(BIN / "proxima"), *arguments]
    return subprocess.Popen(
        [*command, "--cluster", f"10.77.0.1:{PORT}"],
        cwd=folder,
        env=os.environ | secret(token),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def cluster(spaces: list[tuple[str, str]], token: str) -> list[Machine]:
    """Two nodes, both joined."""
    head = started(*spaces[0], token, None)
    wait_for(spaces[0][0], token, 1)
    node = started(*spaces[1], token, spaces[0][1])
    wait_for(spaces[0][0], token, 2)
    return [head, node]


def wait_for(space: str, token: str, nodes: int) -> None:
    """Until so many nodes are there."""
    command = ["ip", "netns", "exec", space, str(BIN / "proxima"), "cluster", "status"]
    for _ in range(60):
        shown = subprocess.run(
            [*command, f"10.77.0.1:{PORT}"],
            env=os.environ | secret(token),
            capture_output=True,
            text=True,
        )
        if shown.stdout.count(" there ") >= nodes:
            return
        time.sleep(0.5)
    raise SystemExit(f"the cluster did not start:\n{shown.stdout}{shown.stderr}")


def experiment(options: argparse.Namespace) -> list[str]:
    settings = ("convergence.target_reward=null", f"training.trials_per_block={options.block}")
    return [
        *("experiment", "cartpole", "--trials", str(options.trials)),
        *("--max-steps", str(options.steps), "--no-mlflow"),
        *(word for setting in settings for word in ("--set", setting)),
    ]


def ended(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=900)
    return output


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=10, help="kills of a node")
    parser.add_argument("--heads", type=int, default=5, help="kills of the head")
    parser.add_argument("--cuts", type=int, default=1, help="times that a node is cut off")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--block", type=int, default=8)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    from clusters import bits

    tag, moments = secrets.token_hex(2), random.Random(options.seed)
    spaces, wrong = namespaces(tag), 0
    try:
        with tempfile.TemporaryDirectory() as work:
            whole = Path(work) / "whole"
            whole.mkdir()
            token = secrets.token_hex(32)
            machines = cluster(spaces, token)
            begun = time.monotonic()
            said = ended(driver(spaces[0][0], token, whole, *experiment(options)))
            seconds = time.monotonic() - begun
            kill_all(machines)
            expected = bits(whole / "logs")
            print(f"never killed: {seconds:.0f} s, {len(expected)} digests", flush=True)
            if not expected:
                raise SystemExit(said)
            kinds = ["node"] * options.nodes + ["head"] * options.heads
            kinds += ["cut"] * options.cuts
            for number, kind in enumerate(kinds):
                folder = Path(work) / f"{kind}-{number}"
                folder.mkdir()
                after = moments.uniform(0.15, 0.85) * seconds
                said = story(kind, spaces, options, folder, after)
                same = bits(folder / "logs") == expected
                wrong += not same
                lost = sum(line.startswith("Lost worker") for line in said.splitlines())
                print(
                    f"{kind} after {after:.1f} s: {'same bits' if same else 'OTHER BITS'}, "
                    f"{lost} workers lost",
                    flush=True,
                )
                if not same:
                    print(said)
    finally:
        for space, _ in spaces:
            run("ip", "netns", "delete", space)
    raise SystemExit(1 if wrong else 0)


def story(
    kind: str,
    spaces: list[tuple[str, str]],
    options: argparse.Namespace,
    folder: Path,
    after: float,
) -> str:
    """A run whose node or head is killed, or whose node is cut off; what its driver said."""
    token = secrets.token_hex(32)
    machines = cluster(spaces, token)
    try:
        process = driver(spaces[0][0], token, folder, *experiment(options))
        time.sleep(after)
        if kind == "node":
            kill(machines[1])
            return ended(process)
        if kind == "cut":
            pull_cable(machines[1], CUT_SECONDS)
            return ended(process)
        kill(machines[0], but=process.pid)
        said = ended(process)
        kill_all(machines)
        machines = cluster(spaces, token)
        return said + ended(driver(spaces[0][0], token, folder, "resume", "cartpole"))
    finally:
        kill_all(machines)


def kill_all(machines: list[Machine]) -> None:
    for machine in machines:
        kill(machine)


if __name__ == "__main__":
    main()
