"""The trading environment alone: steps per second of many accounts in one compiled scan, on the CPU.

    python benchmarks/trading_env.py --envs 1024 --steps 1000    as peers/gym_trading.py, in turns
    python benchmarks/trading_env.py --matrix                    a fixed policy over 1,000 × 1,000 prices
    python benchmarks/trading_env.py --growth                    cost against rows and environments

Every step trades, values, observes (five features and the weight), and resets where an episode ended; the
observations, rewards and endings of all steps are written to memory, as a rollout needs them.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "peers"))
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import protocol
import trading_task as task
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from proxima.core.trees import select
from proxima.domains.trading.config import TradingEnvConfig
from proxima.domains.trading.env import TradingEnv, trading_env
from proxima.domains.trading.market import Market
from proxima.train.devices import use_compilation_cache

MATRIX = 1_000  # assets, and bars of each
ROWS = (10**4, 10**5, 10**6, 10**7)
ENVS = (1, 8, 64, 512, 1_024, 4_096, 8_192)
GROWTH_STEPS = 128


def key() -> jax.Array:
    """Any key: nothing here is random but where an episode starts."""
    return jax.random.key(0)


def market_of(prices: np.ndarray, features: np.ndarray) -> Market:
    """Bars that open, peak and close at one price each."""
    time_ = np.datetime64("2020-01-01", "us") + np.arange(len(prices)) * np.timedelta64(1, "h")
    return Market(time_, prices, prices, prices, prices, np.ones(len(prices)), features)


def settings(positions: tuple[float, ...]) -> TradingEnvConfig:
    """Filled at the deciding close, as the rival does."""
    return TradingEnvConfig(positions=positions, fee=task.FEE, fill="same_close")


@jax.jit
def rollout(env: TradingEnv, state: Any, actions: jax.Array, reset_keys: jax.Array) -> Any:
    """All steps of actions (T, B) from the states (B,), with a reset wherever an episode ends."""
    resets = jax.vmap(env.reset)(reset_keys)

    def step(state, action):
        state, result = jax.vmap(env.step, (0, 0, None))(state, action, key())
        ended = result.terminated | result.truncated
        state, obs = select(ended, resets, (state, result.obs))
        return state, (obs, result.reward, ended)

    return jax.lax.scan(step, state, actions)


def timed(run: Callable[[], Any]) -> float:
    """Seconds until the result is there."""
    start = time.perf_counter()
    jax.block_until_ready(run())
    return time.perf_counter() - start


def agreement() -> list[float]:
    """Final values over the first one of each path that must agree."""
    values = []
    for prices, targets in task.agreement_paths():
        market = market_of(prices, task.features(len(prices)))
        env = trading_env(market, settings(task.WIDE_POSITIONS), training=False)
        actions = jnp.asarray([task.WIDE_POSITIONS.index(target) for target in targets])
        state, _ = env.reset(key())
        _, steps = jax.lax.scan(lambda state, a, env=env: env.step(state, a, key()), state, actions)
        values.append(float(np.exp(np.asarray(steps.reward, np.float64).sum())))
    return values


def prepare(envs: int, steps: int, updates: int) -> protocol.Run:
    """A run of `updates` episodes of `steps` bars in each environment."""
    market = market_of(task.prices(steps + 1), task.features(steps + 1))
    env = trading_env(market, settings(task.POSITIONS), training=False)
    actions = jnp.asarray(task.action_indices((steps, envs)), jnp.int32)
    keys = jax.random.split(key(), envs)
    state, _ = jax.vmap(env.reset)(keys)
    values = agreement()
    jax.block_until_ready(rollout(env, state, actions, keys))

    def run() -> dict[str, Any]:
        def episodes():
            now = state
            for _ in range(updates):
                now, written = rollout(env, now, actions, keys)
            return now, written

        return protocol.measurement(envs * steps * updates, timed(episodes)) | {"values": values}

    return run


def prepare_matrix() -> protocol.Run:
    """1-bar momentum in each of 1,000 assets over 1,000 bars: weights, fees and values."""
    random = np.random.default_rng(0)
    prices = 100 * np.exp(np.cumsum(random.normal(0, 0.01, (MATRIX, MATRIX + 1)), axis=1))
    moves = np.sign(np.diff(prices, axis=1, prepend=prices[:, :1])).astype(np.float32)[..., None]
    config = settings(task.POSITIONS)
    envs = [
        trading_env(market_of(row, seen), config, training=False)
        for row, seen in zip(prices, moves, strict=True)
    ]
    cores = jax.make_mesh((len(jax.devices()),), ("assets",))
    matrix = [
        jax.device_put(jnp.stack(arrays), NamedSharding(cores, P("assets")))
        for arrays in zip(*map(price_arrays, envs), strict=True)
    ]

    def log_value(*arrays: jax.Array) -> jax.Array:
        env = eqx.tree_at(price_arrays, envs[0], arrays)  # costs are the same for all

        def step(carry, _):
            state, obs, value = carry
            action = jnp.int32(obs[0]) + 1  # rose: long; fell: short
            state, result = env.step(state, action, key())
            return (state, result.obs, value + result.reward), None

        start = (*env.reset(key()), jnp.zeros(()))
        return jax.lax.scan(step, start, length=MATRIX)[0][2]

    log_values = jax.jit(
        jax.shard_map(
            jax.vmap(log_value),
            mesh=cores,
            in_specs=P("assets"),
            out_specs=P("assets"),
            check_vma=False,
        )
    )
    jax.block_until_ready(log_values(*matrix))
    return lambda: protocol.measurement(MATRIX * MATRIX, timed(lambda: log_values(*matrix)))


def price_arrays(env: TradingEnv) -> tuple[jax.Array, ...]:
    """The arrays that differ from asset to asset."""
    return env.features, env.returns, env.marks


def growth(rows: int, envs: int) -> dict[str, Any]:
    """Steps per second and nanoseconds per step of random starts in so many rows."""
    market = market_of(task.prices(rows), task.features(rows))
    env = trading_env(market, settings(task.POSITIONS), training=True)
    actions = jnp.asarray(task.action_indices((GROWTH_STEPS, envs)), jnp.int32)
    keys = jax.random.split(key(), envs)
    state, _ = jax.vmap(env.reset)(keys)
    jax.block_until_ready(rollout(env, state, actions, keys))
    repeats = max(1, 2_000_000 // (envs * GROWTH_STEPS))
    seconds = [
        timed(lambda: [rollout(env, state, actions, keys) for _ in range(repeats)])
        for _ in range(3)
    ]
    speed = envs * GROWTH_STEPS * repeats / sorted(seconds)[1]
    return {"rows": rows, "envs": envs, "steps_per_second": speed, "nanoseconds": 1e9 / speed}


def main() -> None:
    """Times what the command line asks for."""
    parser = protocol.arguments("Proxima's trading environment", envs=1_024, updates=5)
    parser.add_argument("--matrix", action="store_true", help="a fixed policy over a price matrix")
    parser.add_argument("--growth", action="store_true", help="cost against rows and environments")
    options = parser.parse_args()
    use_compilation_cache()
    if options.matrix:  # the assets are spread over the cores, as trials are in training
        jax.config.update("jax_num_cpu_devices", os.cpu_count())
    if options.growth:
        for rows, envs in [(rows, 1_024) for rows in ROWS] + [(10**4, envs) for envs in ENVS]:
            print(json.dumps(growth(rows, envs)), flush=True)
        return
    protocol.speak(
        prepare_matrix
        if options.matrix
        else lambda: prepare(options.envs, options.steps, options.updates),
        options.repeat,
        options.serve,
    )


if __name__ == "__main__":
    main()
