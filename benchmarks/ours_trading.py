"""Proxima's PPO on a trading environment: steps per second of the whole training loop, metrics on.

    python benchmarks/ours_trading.py --envs 64 --steps 64 --updates 50
    python benchmarks/ours_trading.py --write      prices and features for peers/torchrl_trading.py

The shipped random walk with its five features, filled at the deciding close as the rival does, through
the loop that ours.py runs. Each answer also has what the environment gave on a fixed path, which
must agree with the rival's before speeds are compared.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "peers"))
import jax
import jax.numpy as jnp
import numpy as np
import protocol
import trading_task as task
from ours import training_run

import proxima
from proxima.domains.trading.config import TradingEnvConfig
from proxima.domains.trading.data import prepare_data, write_synthetic
from proxima.domains.trading.env import trading_env
from proxima.domains.trading.market import Market
from proxima.scenario import Scenario

NAME = "random_walk"


def scenario_of(envs: int, steps: int, updates: int, prices: Path) -> Scenario:
    """The settings that both sides train with."""
    batch = envs * steps
    return proxima.load(
        NAME,
        {
            "trials": 1,
            "data.pattern": None,
            "data.path": str(prices),
            "env.num_envs": envs,
            "env.max_steps_per_episode": task.EPISODE,
            "env.positions": list(task.POSITIONS),
            "env.fee": task.FEE,
            "env.fill": "same_close",
            "algorithm.batch_size": batch,
            "algorithm.minibatch_size": batch // task.MINIBATCHES,
            "algorithm.epochs_per_update": task.EPOCHS,
            "algorithm.learning_rate": task.LEARNING_RATE,
            "algorithm.final_learning_rate": None,
            "algorithm.gamma": task.GAMMA,
            "algorithm.gae_lambda": task.LAMBDA,
            "algorithm.clip_epsilon": task.CLIP,
            "algorithm.entropy_coef": task.ENTROPY,
            "algorithm.value_coef": task.VALUE_COEFFICIENT,
            "algorithm.max_grad_norm": task.MAX_GRADIENT_NORM,
            "algorithm.normalize_rewards": False,
            "network.hidden": list(task.HIDDEN),
            "training.max_steps": batch * updates,
            "training.updates_per_chunk": max(1, updates // 5),
            "evaluation.eval_frequency": 10**9,
            "evaluation.checkpoint": "last",
            "checkpoint.frequency": 10**9,
        },
    )


def market_in(directory: str) -> tuple[Path, Market]:
    """The shipped prices, written to the directory, and the part of them that is trained on."""
    data = proxima.load(NAME).data
    assert data is not None
    return write_synthetic(data, NAME, directory), prepare_data(data, NAME, directory).train


def hand_over() -> None:
    """Writes the prices and features that both are trained on, for the rival to read."""
    with tempfile.TemporaryDirectory() as directory:
        _, market = market_in(directory)
    task.HANDED_OVER.parent.mkdir(exist_ok=True)
    np.savez(task.HANDED_OVER, prices=market.close, features=market.features)


def fixed_path(market: Market, config: TradingEnvConfig) -> list[float]:
    """What a fixed path is worth at its end, and the sums of what it shows."""
    env = trading_env(market, config, training=False)
    actions = jnp.asarray(task.action_indices((task.FIXED_PATH,)), jnp.int32)
    key = jax.random.key(0)
    state, _ = env.reset(key)
    _, steps = jax.lax.scan(lambda state, action: env.step(state, action, key), state, actions)
    obs, rewards = np.asarray(steps.obs, np.float64), np.asarray(steps.reward, np.float64)
    return [float(np.exp(rewards.sum())), *np.abs(obs).sum(axis=0).tolist()]


def prepare(envs: int, steps: int, updates: int) -> protocol.Run:
    """A compiled training run."""
    with tempfile.TemporaryDirectory() as directory:
        prices, market = market_in(directory)
        scenario = scenario_of(envs, steps, updates, prices)
        train = training_run(scenario)
    assert isinstance(scenario.env, TradingEnvConfig)
    values = fixed_path(market, scenario.env)

    def run() -> dict[str, Any]:
        return train() | {"values": values}

    return run


def main() -> None:
    """Times what the command line asks for."""
    parser = protocol.arguments("Proxima PPO on a trading environment", envs=64, updates=50)
    parser.set_defaults(steps=64)
    parser.add_argument("--write", action="store_true", help="write what the rival reads, and end")
    options = parser.parse_args()
    if options.write:
        hand_over()
        return
    protocol.speak(
        lambda: prepare(options.envs, options.steps, options.updates), options.repeat, options.serve
    )


if __name__ == "__main__":
    main()
