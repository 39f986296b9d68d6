"""Stable-Baselines3's DQN on Gymnasium's CartPole-v1: environment steps per second.

    python benchmarks/peers/sb3_dqn.py --updates 1000

Same work as ours: one environment, one gradient step per environment step; batches of 256 drawn uniformly
from a buffer; a net of 256-256 ReLU and its target, copied every 250 steps; Adam, Huber's loss, gradients
cut at 10; bootstrapping at truncation; ε-greedy actions; float32; losses recorded.

What differs: the environment is a Python object; losses are means kept in Python, written nowhere.
The steps counted are those with a gradient step: the warm-up is over before the clock starts.

Torch runs with one thread or two, whichever a short trial of both in the warm-up finds quicker;
every answer says which.
"""

import time
from typing import Any

import protocol
import venvs
from sb3_ppo import quickest

BATCH = 256
TRIAL_STEPS = 150


def prepare(steps: int) -> protocol.Run:
    """A run of `steps` steps more of one model, which is past its warm-up."""
    import torch
    from stable_baselines3 import DQN

    model = DQN(
        "MlpPolicy",
        "CartPole-v1",
        learning_rate=6.3e-4,
        buffer_size=100_000,
        learning_starts=BATCH,
        batch_size=BATCH,
        train_freq=1,
        gradient_steps=1,
        target_update_interval=250,
        policy_kwargs={"net_arch": [256, 256], "activation_fn": torch.nn.ReLU},
        device="cpu",
        seed=0,
    )
    model.learn(BATCH)

    def learn(steps: int, threads: int) -> float:
        torch.set_num_threads(threads)
        before = model.num_timesteps
        start = time.perf_counter()
        model.learn(steps, reset_num_timesteps=False)
        seconds = time.perf_counter() - start
        if model.num_timesteps - before != steps:
            raise SystemExit(f"SB3 made {model.num_timesteps - before} steps, not {steps}")
        return seconds

    learn(TRIAL_STEPS, 1)
    threads = quickest(lambda threads: learn(TRIAL_STEPS, threads))

    def run() -> dict[str, Any]:
        return protocol.measurement(steps, learn(steps, threads)) | {"threads": threads}

    return run


def main() -> None:
    """Times what the command line asks for."""
    options = protocol.arguments(
        "Stable-Baselines3 DQN on CartPole-v1", envs=1, updates=1_000
    ).parse_args()
    venvs.enter("sb3")
    protocol.speak(lambda: prepare(options.updates), options.repeat, options.serve)


if __name__ == "__main__":
    main()
