"""SBX's DDPG and TD3 (Stable-Baselines3 with JAX nets) on Gymnasium's Pendulum-v1: steps per second.

    python benchmarks/peers/sbx_ddpg.py --updates 1000
    python benchmarks/peers/sbx_ddpg.py --updates 1000 --td3

Same work as ours: as in sb3_ddpg.py, with the nets and the gradient step compiled by the same version of
JAX as ours.

What differs: the environment is a Python object and each gradient step is a call from Python. The
steps counted are those with a gradient step, of a model whose programs are compiled.
"""

import time
from typing import Any

import protocol
import venvs

BATCH = 256


def prepare(steps: int, td3: bool) -> protocol.Run:
    """A run of `steps` steps more of one model, which is past its warm-up."""
    import numpy as np
    from sbx import DDPG, TD3
    from stable_baselines3.common.noise import NormalActionNoise

    model = (TD3 if td3 else DDPG)(
        "MlpPolicy",
        "Pendulum-v1",
        learning_rate=1e-3,
        buffer_size=100_000,
        learning_starts=BATCH,
        batch_size=BATCH,
        train_freq=1,
        gradient_steps=1,
        action_noise=NormalActionNoise(np.zeros(1), np.full(1, 0.1)),
        policy_kwargs={"net_arch": [256, 256]},
        seed=0,
    )
    model.learn(BATCH + 100)

    def run() -> dict[str, Any]:
        before = model.num_timesteps
        start = time.perf_counter()
        model.learn(steps, reset_num_timesteps=False)
        seconds = time.perf_counter() - start
        if model.num_timesteps - before != steps:
            raise SystemExit(f"SBX made {model.num_timesteps - before} steps, not {steps}")
        return protocol.measurement(steps, seconds)

    run()
    return run


def main() -> None:
    """Times what the command line asks for."""
    parser = protocol.arguments("SBX DDPG on Pendulum-v1", envs=1, updates=1_000)
    parser.add_argument("--td3", action="store_true", help="TD3 instead")
    options = parser.parse_args()
    venvs.enter("sbx")
    protocol.speak(lambda: prepare(options.updates, options.td3), options.repeat, options.serve)


if __name__ == "__main__":
    main()
