"""SBX's SAC (Stable-Baselines3 with JAX nets) on Gymnasium's Pendulum-v1: steps per second.

    python benchmarks/peers/sbx_sac.py --updates 1000

Same work as ours: as in sb3_sac.py, with the nets and the gradient step compiled by the same version of
JAX as ours.

What differs: the environment is a Python object and each gradient step is a call from Python. The
steps counted are those with a gradient step, of a model whose programs are compiled.
"""

import time
from typing import Any

import protocol
import venvs

BATCH = 256


def prepare(steps: int) -> protocol.Run:
    """A run of `steps` steps more of one model, which is past its warm-up."""
    from sbx import SAC

    model = SAC(
        "MlpPolicy",
        "Pendulum-v1",
        learning_rate=1e-3,
        buffer_size=100_000,
        learning_starts=BATCH,
        batch_size=BATCH,
        train_freq=1,
        gradient_steps=1,
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
    parser = protocol.arguments("SBX SAC on Pendulum-v1", envs=1, updates=1_000)
    options = parser.parse_args()
    venvs.enter("sbx")
    protocol.speak(lambda: prepare(options.updates), options.repeat, options.serve)


if __name__ == "__main__":
    main()
