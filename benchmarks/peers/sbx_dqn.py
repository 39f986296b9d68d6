"""SBX's DQN (Stable-Baselines3 with JAX nets) on Gymnasium's CartPole-v1: environment steps per second.

    python benchmarks/peers/sbx_dqn.py --updates 1000

Same work as ours: as in sb3_dqn.py, with the net and the gradient step compiled by the same version of JAX
as ours.

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
    from sbx import DQN

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
    options = protocol.arguments("SBX DQN on CartPole-v1", envs=1, updates=1_000).parse_args()
    venvs.enter("sbx")
    protocol.speak(lambda: prepare(options.updates), options.repeat, options.serve)


if __name__ == "__main__":
    main()
