"""Stable-Baselines3's SAC on Gymnasium's Pendulum-v1: environment steps per second.

    python benchmarks/peers/sb3_sac.py --updates 1000

Same work as ours: one environment, one gradient step per environment step; batches of 256 drawn
uniformly from a buffer; an actor and two critics of 256-256 ReLU, targets of the critics, soft updates;
an Adam each and one for the temperature; bootstrapping at truncation; float32; losses recorded.

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
    from stable_baselines3 import SAC

    model = SAC(
        "MlpPolicy",
        "Pendulum-v1",
        learning_rate=1e-3,
        buffer_size=100_000,
        learning_starts=BATCH,
        batch_size=BATCH,
        train_freq=1,
        gradient_steps=1,
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
    parser = protocol.arguments("Stable-Baselines3 SAC on Pendulum-v1", envs=1, updates=1_000)
    options = parser.parse_args()
    venvs.enter("sb3")
    protocol.speak(lambda: prepare(options.updates), options.repeat, options.serve)


if __name__ == "__main__":
    main()
