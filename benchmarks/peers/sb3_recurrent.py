"""Stable-Baselines3's recurrent PPO (sb3-contrib) on Gymnasium's CartPole-v1: steps per second.

    python benchmarks/peers/sb3_recurrent.py --envs 64 --steps 128 --updates 2 --memory 128

Same work as ours: rollouts of envs × steps; a recurrent layer before a policy and a value net of 64-64 tanh;
GAE; 4 epochs × 4 minibatches; clipped policy loss, advantages normalised per minibatch; Adam; float32.

What differs: its only cell is an LSTM (a third more products than a GRU of the same size), shared by policy
and value here as ours is (its default, one for each, is more work); sequences are padded to the longest of a
minibatch; the envs are Python objects. Torch has one thread or two, whichever is quicker (`sb3_ppo.py`).
"""

import time
from typing import Any

import protocol
import venvs
from sb3_ppo import TRIAL_UPDATES, quickest


def prepare(envs: int, steps: int, updates: int, memory: int) -> protocol.Run:
    """A run of `updates` rollouts, each time with a new model and seed."""
    import torch
    from sb3_contrib import RecurrentPPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import DummyVecEnv

    def learn(updates: int, threads: int, seed: int) -> float:
        torch.set_num_threads(threads)
        model = RecurrentPPO(
            "MlpLstmPolicy",
            make_vec_env("CartPole-v1", n_envs=envs, seed=seed, vec_env_cls=DummyVecEnv),
            n_steps=steps,
            batch_size=envs * steps // 4,
            n_epochs=4,
            learning_rate=2.5e-4,
            policy_kwargs={
                "net_arch": [64, 64],
                "activation_fn": torch.nn.Tanh,
                "lstm_hidden_size": memory,
                "shared_lstm": True,
                "enable_critic_lstm": False,
            },
            device="cpu",
            seed=seed,
        )
        start = time.perf_counter()
        model.learn(envs * steps * updates)
        return time.perf_counter() - start

    learn(1, 1, seed=0)
    threads = quickest(lambda threads: learn(min(updates, TRIAL_UPDATES), threads, seed=0))
    runs = 0

    def run() -> dict[str, Any]:
        nonlocal runs
        runs += 1
        seconds = learn(updates, threads, seed=runs)
        return protocol.measurement(envs * steps * updates, seconds) | {"threads": threads}

    return run


def main() -> None:
    """Times what the command line asks for."""
    parser = protocol.arguments("sb3-contrib's recurrent PPO on CartPole-v1", envs=64, updates=2)
    parser.add_argument("--memory", type=protocol.positive, default=128, help="size of the LSTM")
    options = parser.parse_args()
    venvs.enter("sb3")
    sizes = (options.envs, options.steps, options.updates, options.memory)
    protocol.speak(lambda: prepare(*sizes), options.repeat, options.serve)


if __name__ == "__main__":
    main()
