"""TorchRL's PPO on gym-trading-env 0.3.5: environment steps per second of collecting and learning.

    python benchmarks/ours_trading.py --write      prices and features for both, once, by our Python
    python benchmarks/peers/torchrl_trading.py --envs 1 --steps 4096 --updates 1
    python benchmarks/peers/torchrl_trading.py --envs 64 --steps 64 --updates 10 --collectors 2

With one environment it is the usual stack: TradingEnv in a GymWrapper with a StepCounter, a Collector
(SyncDataCollector until TorchRL 0.13), GAE, a ReplayBuffer, ClipPPOLoss and Adam.

Same work as ours: the same prices, five features, positions, fee and log returns; episodes of 200 bars
from random starts; 4,096 steps per update, 4 epochs × 4 minibatches; an actor and a critic of 64-64 tanh;
GAE with a bootstrap at truncation; clipped policy loss, squared value error, entropy bonus, advantages
normalised per minibatch; gradient clipped by the global norm; float32; losses kept.

What differs: the environment is a Python object, also observes its last target and keeps a history;
a StepCounter counts; each timed run goes on with the same learner.

What makes it quicker, found on two quiet cores (steps per second; one environment: 1,150): two collector
processes of one environment each, 2,080; Gymnasium's SyncVectorEnv of 64 in one GymWrapper, 14,800; two
processes with 32 in each, 17,700, its best, which the third command above measures. What does not:
ParallelEnv of 2 or of 8 (at most 800), compiling policy and loss (1,030; with 64, 1,700), two threads.
The vector needs the infos dropped, since TorchRL takes their "reward" for the reward.
"""

import atexit
import functools
import os
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import protocol
import trading_task as task
import venvs
from sb3_ppo import quickest

OBSERVED = task.FEATURES + 2  # and the last target and the real weight
ADAM_EPS = 1e-5  # as ours
TRIAL_UPDATES = 1


class Parts(NamedTuple):
    """What a training loop is made of."""

    batches: Iterator[Any]
    advantage: Callable[[Any], Any]
    buffer: Any
    loss: Any
    optimizer: Any
    share_weights: Callable[[], Any]


def make(episode: int | str) -> Any:
    """One environment on the handed-over prices, flat at its start."""
    import numpy as np
    import pandas as pd
    from gym_trading_env.environments import TradingEnv

    warnings.simplefilter("ignore")  # its import made every warning an error, TorchRL's too
    if not task.HANDED_OVER.is_file():
        raise SystemExit(f"{task.HANDED_OVER}: first run benchmarks/ours_trading.py --write")
    handed = np.load(task.HANDED_OVER)
    prices = handed["prices"]
    columns = {f"feature_{k}": column for k, column in enumerate(handed["features"].T)}
    return TradingEnv(
        pd.DataFrame(
            {"close": prices, **columns},
            index=pd.date_range("2020-01-01", periods=len(prices), freq="h"),
        ),
        positions=list(task.POSITIONS),
        trading_fees=task.FEE,
        borrow_interest_rate=0.0,
        initial_position=0.0,
        max_episode_duration=episode,
        verbose=0,
    )


def make_quiet() -> Any:
    """One environment to train on, without infos."""
    import gymnasium

    class Quiet(gymnasium.Wrapper):
        def reset(self, **given):
            return self.env.reset(**given)[0], {}

        def step(self, action):
            *result, _ = self.env.step(action)
            return *result, {}

    return Quiet(make(task.EPISODE + 1))  # it counts the bars at both ends


def make_wrapped(envs: int) -> Any:
    """As many environments as TorchRL sees them."""
    from gymnasium.vector import AutoresetMode, SyncVectorEnv
    from torchrl.envs import GymWrapper, StepCounter, TransformedEnv

    if envs == 1:
        env = make(task.EPISODE + 1)
    else:
        env = SyncVectorEnv([make_quiet] * envs, autoreset_mode=AutoresetMode.SAME_STEP)
    return TransformedEnv(GymWrapper(env, categorical_action_encoding=True), StepCounter())


def make_parts(envs: int, steps: int, collectors: int) -> Parts:
    """A fresh learner, and the endless batches that its policy collects."""
    import torch
    from tensordict.nn import TensorDictModule
    from torchrl.collectors import Collector, MultiSyncCollector
    from torchrl.data import LazyTensorStorage, ReplayBuffer, SamplerWithoutReplacement
    from torchrl.modules import MLP, ProbabilisticActor, ValueOperator
    from torchrl.objectives import ClipPPOLoss
    from torchrl.objectives.value import GAE

    def net(outputs: int) -> Any:
        return MLP(OBSERVED, outputs, num_cells=task.HIDDEN, activation_class=torch.nn.Tanh)

    actor = ProbabilisticActor(
        TensorDictModule(net(len(task.POSITIONS)), ["observation"], ["logits"]),
        in_keys=["logits"],
        distribution_class=torch.distributions.Categorical,
        return_log_prob=True,
    )
    critic = ValueOperator(net(1), in_keys=["observation"])
    loss = ClipPPOLoss(
        actor,
        critic,
        clip_epsilon=task.CLIP,
        entropy_coeff=task.ENTROPY,
        critic_coeff=task.VALUE_COEFFICIENT,
        loss_critic_type="l2",
        normalize_advantage=True,
    )
    batch = envs * steps
    makers = [functools.partial(make_wrapped, envs // collectors)] * collectors
    if collectors == 1:
        collector = Collector(makers[0], actor, frames_per_batch=batch)
    else:
        collector = MultiSyncCollector(makers, actor, frames_per_batch=batch, cat_results=0)
    atexit.register(collector.shutdown)  # left alone, its processes keep this one from ending
    return Parts(
        batches=iter(collector),
        advantage=GAE(gamma=task.GAMMA, lmbda=task.LAMBDA, value_network=critic),
        buffer=ReplayBuffer(
            storage=LazyTensorStorage(batch),
            sampler=SamplerWithoutReplacement(),
            batch_size=batch // task.MINIBATCHES,
        ),
        loss=loss,
        optimizer=torch.optim.Adam(loss.parameters(), lr=task.LEARNING_RATE, eps=ADAM_EPS),
        share_weights=collector.update_policy_weights_ if collectors > 1 else lambda: None,
    )


def update(parts: Parts) -> list[float]:
    """Collects one batch and learns from it; the losses of every gradient step."""
    import torch

    data = next(parts.batches)
    with torch.no_grad():
        parts.advantage(data)
    parts.buffer.empty()
    parts.buffer.extend(data.reshape(-1))
    losses = []
    for _ in range(task.EPOCHS):
        for sample in parts.buffer:
            parts.optimizer.zero_grad()
            found = parts.loss(sample)
            total = found["loss_objective"] + found["loss_critic"] + found["loss_entropy"]
            total.backward()
            torch.nn.utils.clip_grad_norm_(parts.loss.parameters(), task.MAX_GRADIENT_NORM)
            parts.optimizer.step()
            losses.append(total.detach())
    parts.share_weights()
    return torch.stack(losses).tolist()


def fixed_path() -> list[float]:
    """What a fixed path is worth at its end, and the sums of what it shows, as in ours."""
    env = make("max")
    env.reset(seed=0)
    sums = 0.0
    for action in task.action_indices((task.FIXED_PATH,)).tolist():
        obs, _, _, _, info = env.step(action)
        sums = sums + abs(obs.astype(float))
    features, weight = sums[: task.FEATURES], sums[-1]
    return [float(info["portfolio_valuation"]) / 1000, *features.tolist(), float(weight)]


def prepare(envs: int, steps: int, updates: int, collectors: int) -> protocol.Run:
    """A run of `updates` updates more of one learner."""
    import torch

    if envs % collectors:
        raise SystemExit(f"--envs {envs} cannot be divided over --collectors {collectors}")
    values = fixed_path()
    parts = make_parts(envs, steps, collectors)

    def learn(updates: int, threads: int) -> float:
        torch.set_num_threads(threads)
        start = time.perf_counter()
        losses = [loss for _ in range(updates) for loss in update(parts)]
        seconds = time.perf_counter() - start
        wanted = updates * task.EPOCHS * task.MINIBATCHES
        if len(losses) != wanted or not all(abs(loss) < float("inf") for loss in losses):
            raise SystemExit(f"TorchRL's losses are not {wanted} finite numbers: {losses}")
        return seconds

    learn(1, 1)
    threads = quickest(lambda threads: learn(TRIAL_UPDATES, threads))

    def run() -> dict[str, Any]:
        seconds = learn(updates, threads)
        answer = protocol.measurement(envs * steps * updates, seconds)
        return answer | {"threads": threads, "values": values}

    return run


def main() -> None:
    """Times what the command line asks for."""
    parser = protocol.arguments("TorchRL PPO on gym-trading-env", envs=1, updates=1)
    parser.set_defaults(steps=4_096)
    parser.add_argument("--collectors", type=protocol.positive, default=1, help="processes")
    options = parser.parse_args()
    venvs.enter("torchrl")
    os.environ["RL_LOGGING_LEVEL"] = "ERROR"  # its processes log to the answers' standard output
    sizes = (options.envs, options.steps, options.updates, options.collectors)
    protocol.speak(lambda: prepare(*sizes), options.repeat, options.serve)


if __name__ == "__main__":
    main()
