"""Requests per second of `proxima serve` beside `mlflow models serve`, the same policy, in turns.

    python benchmarks/serve.py RUN [--model MLFLOW_MODEL] [--seconds 5] [--rounds 3] [--clients 16]

Both servers stay up; each round asks one and then the other from `clients` connections that are kept
open, each sending its next request when it has its answer. Figures are medians over rounds. The clients
share the machine with the server.
"""

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

OBSERVATION = [0.0, 0.1, 0.0, -0.1]
PORTS = {"proxima": 8311, "mlflow": 8312}
PATHS = {"proxima": "/predict", "mlflow": "/invocations"}
BODIES = {"proxima": {"observation": OBSERVATION}, "mlflow": {"inputs": [OBSERVATION]}}


def command(name: str, run: str, model: str) -> list[str]:
    port = str(PORTS[name])
    if name == "proxima":
        return [
            sys.executable,
            "-c",
            "from proxima.cli import main; main()",
            "serve",
            run,
            "--port",
            port,
        ]
    served = ("models", "serve", "-m", model, "--env-manager", "local", "--port", port)
    return [sys.executable, "-m", "mlflow", *served]


def wait_until_up(port: int) -> None:
    for _ in range(240):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1):
                return
        except OSError:
            time.sleep(0.25)
    raise SystemExit(f"nothing answers at port {port}")


async def client(name: str, until: float, waits: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", PORTS[name])
    body = json.dumps(BODIES[name]).encode()
    head = f"POST {PATHS[name]} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    while (started := time.perf_counter()) < until:
        writer.write(request)
        answer = (await reader.readuntil(b"\r\n\r\n")).lower()
        assert b" 200 " in answer.partition(b"\r\n")[0], answer
        await reader.readexactly(int(answer.partition(b"content-length:")[2].split(b"\r")[0]))
        waits.append(time.perf_counter() - started)
    writer.close()


async def ask(name: str, seconds: float, clients: int) -> tuple[float, float, float]:
    """Requests per second, and the 50th and 99th percentile of milliseconds."""
    waits: list[float] = []
    until = time.perf_counter() + seconds
    await asyncio.gather(*(client(name, until, waits) for _ in range(clients)))
    cuts = statistics.quantiles(waits, n=100)
    return len(waits) / seconds, 1e3 * cuts[49], 1e3 * cuts[98]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run")
    parser.add_argument("--model", default="models:/cartpole@champion")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=16)
    given = parser.parse_args()
    # MLflow looks for models where the run registered its own, and for uvicorn among the programs.
    where = {"MLFLOW_TRACKING_URI": "sqlite:///mlflow.db"} | dict(os.environ)
    where["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), where["PATH"]])
    servers = [
        subprocess.Popen(command(name, given.run, given.model), env=where, start_new_session=True)
        for name in PORTS
    ]
    try:
        for name, port in PORTS.items():
            wait_until_up(port)
            asyncio.run(ask(name, 1, given.clients))  # warm
        rounds = [
            {name: asyncio.run(ask(name, given.seconds, given.clients)) for name in PORTS}
            for _ in range(given.rounds)
        ]
    finally:
        for server in servers:
            os.killpg(server.pid, signal.SIGTERM)  # MLflow's server is a child of its own command
            server.wait()
    for name in PORTS:
        rate, middle, high = (
            statistics.median(column) for column in zip(*(r[name] for r in rounds), strict=True)
        )
        print(f"{name:8} {rate:8.0f} requests/s   p50 {middle:6.2f} ms   p99 {high:6.2f} ms")
    ratio = statistics.median(each["proxima"][0] / each["mlflow"][0] for each in rounds)
    print(f"ratio {ratio:.1f}")


if __name__ == "__main__":
    main()
