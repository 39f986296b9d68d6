"""gym-trading-env 0.3.5 on the prices and targets of trading_task.py: environment steps per second.

    python benchmarks/peers/gym_trading.py --steps 1000 --updates 20

Same work as ours: a bar of the same prices, a trade to one of three positions at a fee where it changes,
the log return as the reward, an observation of five features and the position, a reset at the end.

What differs: one Python object, stepped in a plain loop, which is its fastest (`--envs 64` steps as many
objects in turn and is no quicker); it observes the last target besides the real weight, and keeps a
history of every step. What it prints at an episode's end is turned off. Each answer also has the
values it ends with on the paths that must agree, at no interest: its interest is wrong (it is
never added up, and refunded when a position crosses).
"""

import time
from typing import Any

import protocol
import trading_task as task
import venvs


def make(prices: Any, features: Any, positions: tuple[float, ...]) -> Any:
    """One environment, flat at its start."""
    import pandas as pd
    from gym_trading_env.environments import TradingEnv

    columns = {f"feature_{k}": column for k, column in enumerate(features.T)}
    frame = pd.DataFrame(
        {"open": prices, "high": prices, "low": prices, "close": prices, **columns},
        index=pd.date_range("2020-01-01", periods=len(prices), freq="h"),
    )
    return TradingEnv(
        frame,
        positions=list(positions),
        trading_fees=task.FEE,
        borrow_interest_rate=0.0,
        initial_position=0.0,
        verbose=0,
    )


def agreement() -> list[float]:
    """Final values over the first one of each path that must agree."""
    values = []
    for prices, targets in task.agreement_paths():
        env = make(prices, task.features(len(prices)), task.WIDE_POSITIONS)
        env.reset(seed=0)
        for target in targets:
            _, _, _, _, info = env.step(task.WIDE_POSITIONS.index(target))
        values.append(float(info["portfolio_valuation"]) / 1000)
    return values


def prepare(envs: int, steps: int, updates: int) -> protocol.Run:
    """A run of `updates` episodes of `steps` bars in each environment."""
    prices, features = task.prices(steps + 1), task.features(steps + 1)
    pool = [make(prices, features, task.POSITIONS) for _ in range(envs)]
    actions = task.action_indices((steps, envs)).tolist()
    values = agreement()

    def run() -> dict[str, Any]:
        start = time.perf_counter()
        for _ in range(updates):
            for env in pool:
                env.reset()
            for row in actions:
                for env, action in zip(pool, row, strict=True):
                    env.step(action)
        seconds = time.perf_counter() - start
        return protocol.measurement(envs * steps * updates, seconds) | {"values": values}

    run()
    return run


def main() -> None:
    """Times what the command line asks for."""
    parser = protocol.arguments("gym-trading-env 0.3.5", envs=1, updates=20)
    options = parser.parse_args()
    venvs.enter("gym-trading-env")
    protocol.speak(
        lambda: prepare(options.envs, options.steps, options.updates), options.repeat, options.serve
    )


if __name__ == "__main__":
    main()
