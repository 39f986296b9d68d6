"""The trading environment for other people's agents: one account on the host, in NumPy float64.

    env = gymnasium.make("proxima/Trading-v0", path="prices.parquet", fee=0.0005, window=10)
    env = gymnasium.make("proxima/Trading-v0", market=market, actions="continuous")

Settings are the fields of TradingEnvConfig. Step by step it agrees with the compiled environment of
env.py to float32's precision; an agent of ours trains on that one, thousands of accounts at a time.
"""

import dataclasses
import json
import math
from typing import Any, Literal

import gymnasium
import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, TypeAdapter, ValidationError

from proxima.core.errors import ProximaError
from proxima.domains.environments import suggestion
from proxima.domains.trading import env, timing
from proxima.domains.trading.accounting import RUIN_GROWTH, RUIN_REWARD, hold, trade_factor
from proxima.domains.trading.config import DataConfig, TradingEnvConfig
from proxima.domains.trading.market import Market

Split = Literal["train", "validation", "test"]
NOT_OF_ONE_ENV = ("backend", "name", "num_envs")
LARGEST = float(np.finfo(np.float32).max)  # check_env warns of infinite bounds


class TradingGymEnv(gymnasium.Env[NDArray[np.float32], Any]):
    """An account over a market, or over one split of a file of prices."""

    metadata = {"render_modes": []}  # noqa: RUF012  as Gymnasium declares it

    def __init__(
        self,
        market: Market | None = None,
        path: str | None = None,
        data: DataConfig | None = None,
        split: Split = "train",
        training: bool = True,
        render_mode: None = None,
        **settings: Any,
    ):
        """`training` False starts at the first bar and runs to the last, as evaluations do."""
        self.render_mode = render_mode
        self._config = config = config_of(settings)
        self._market = market = _market(market, path, data, split)
        self._training = training
        env.check(market, config)
        self._returns = timing.fill_returns(market, config.fill)
        self._marks = timing.mark_returns(market, config.fill)
        size = config.window * market.features.shape[1] + 1
        self.observation_space = gymnasium.spaces.Box(-LARGEST, LARGEST, (size,), np.float32)
        low, high = min(config.positions), max(config.positions)
        self.action_space = gymnasium.spaces.Box(low, high, (1,), np.float32)
        if config.actions == "discrete":
            self.action_space = gymnasium.spaces.Discrete(len(config.positions))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """A new episode, flat, at a random bar where the settings say so."""
        super().reset(seed=seed)
        config, steps = self._config, len(self._returns)
        first, last = config.window - 1, timing.last_start(steps, config, self._training)
        self._time = int(self.np_random.integers(first, last + 1))
        length = config.max_steps_per_episode if self._training else None
        self._end = min(steps, self._time + (length or steps))
        self._weight = self._target = self._log_value = self._highest = 0.0
        self._moments = env.Moments(*np.zeros(3))
        return self._observe(0.0), self._info()

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Trade to the target where it is a new one, and hold for a bar."""
        config = self._config
        target = float(env.targets_of(np.asarray(action).reshape(1), config)[0])
        weight = self._weight if target == self._target else target
        traded = weight - self._weight
        left = 1.0
        if traded:
            left = float(trade_factor(self._weight, weight, config.fee, config.slippage))
        growth, drifted = hold(weight, float(self._returns[self._time]), config.borrow_rate)
        self._time += 1
        self._target = target
        if left * growth <= RUIN_GROWTH:
            self._weight, self._log_value = 0.0, self._log_value + RUIN_REWARD
            return self._observe(0.0), RUIN_REWARD, True, False, self._info()
        reward = log_return = math.log(left) + math.log(growth)
        if config.reward == "differential_sharpe":
            ratio, self._moments = env.differential_sharpe(
                log_return, self._moments, config.sharpe_rate, np
            )
            reward = float(ratio)
        reward -= config.turnover_penalty * abs(traded)
        reward -= config.drawdown_penalty * self._book(log_return)
        self._weight = drifted
        seen = hold(weight, float(self._marks[self._time]), config.borrow_rate)[1]
        truncated = self._time >= self._end
        return self._observe(seen), reward, False, truncated, self._info()

    def _book(self, log_return: float) -> float:
        """Add the return to the value, and say by how much the drawdown deepened."""
        before = math.exp(self._log_value - self._highest)
        self._log_value += log_return
        self._highest = max(self._highest, self._log_value)
        return max(0.0, before - math.exp(self._log_value - self._highest))

    def _observe(self, weight: float) -> NDArray[np.float32]:
        seen = self._market.features[self._time - self._config.window + 1 : self._time + 1]
        weight = min(max(weight, -env.WEIGHT_CLIP), env.WEIGHT_CLIP)
        return np.append(seen.ravel(), np.float32(weight)).astype(np.float32)

    def _info(self) -> dict[str, Any]:
        held = {"weight": self._weight, "target": self._target}
        return {"bar": self._time, **held, "log_value": self._log_value}


def _market(
    market: Market | None, path: str | None, data: DataConfig | None, split: Split
) -> Market:
    if (market is None) == (path is None and data is None):
        raise ProximaError(
            "proxima/Trading-v0: give either market=, or path= of an OHLCV parquet or CSV "
            "(with data=DataConfig(...) for its features and splits)"
        )
    if market is not None:
        return market
    from proxima.domains.trading.data import prepare_data

    data = data or DataConfig()
    if path is not None:
        data = dataclasses.replace(data, path=str(path))
    return prepare_data(data, "proxima/Trading-v0").split(split)


def config_of(settings: dict[str, Any]) -> TradingEnvConfig:
    """The settings as a config, or in words which of them is wrong."""
    names = [field.name for field in dataclasses.fields(TradingEnvConfig)]
    known = [name for name in names if name not in NOT_OF_ONE_ENV]
    for name in settings:
        if name not in known:
            hint = suggestion(name.lower(), known, 1, 0.6)
            raise ProximaError(f"proxima/Trading-v0: no setting {name!r}; {hint}")
    # As JSON, where strict types still let a list be a tuple; in a list, to which rules can be given.
    rules = ConfigDict(strict=True, allow_inf_nan=False)
    try:
        written = json.dumps([settings])
        return TypeAdapter(list[TradingEnvConfig], config=rules).validate_json(written)[0]
    except TypeError as error:
        raise ProximaError(f"proxima/Trading-v0: {error}; settings are plain values") from error
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        name = ".".join(map(str, wrong["loc"][1:]))
        raise ProximaError(
            f"proxima/Trading-v0: {name}: {wrong['input']!r} is not allowed: {wrong['msg']}"
        ) from error
