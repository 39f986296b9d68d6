"""Stable-Baselines3's DDPG, TD3, SAC and DQN on Gymnasium's environments: environment steps per second.

    python benchmarks/peers/sb3_off_policy.py --algorithm sac --updates 1000
    python benchmarks/peers/sb3_off_policy.py --algorithm td3 --updates 1000

Same work as ours: what off_policy_task.py says.

What differs: the environment is a Python object; losses are means kept in Python, written nowhere.

Torch runs with one thread or two, whichever a short trial of both in the warm-up finds quicker;
every answer says which.
"""

from typing import Any

import protocol
import venvs
from off_policy_task import BATCH, HIDDEN, make_model, options_of, seconds_to_learn
from sb3_ppo import quickest

TRIAL_STEPS = 150


def prepare(algorithm: str, steps: int) -> protocol.Run:
    """A run of `steps` steps more of one model, which is past its warm-up."""
    import torch
    from stable_baselines3 import DDPG, DQN, SAC, TD3

    model = make_model(
        {"ddpg": DDPG, "td3": TD3, "sac": SAC, "dqn": DQN},
        algorithm,
        policy_kwargs={"net_arch": list(HIDDEN), "activation_fn": torch.nn.ReLU},
        device="cpu",
    )
    model.learn(BATCH)

    def learn(steps: int, threads: int) -> float:
        torch.set_num_threads(threads)
        return seconds_to_learn(model, steps)

    learn(TRIAL_STEPS, 1)
    threads = quickest(lambda threads: learn(TRIAL_STEPS, threads))

    def run() -> dict[str, Any]:
        return protocol.measurement(steps, learn(steps, threads)) | {"threads": threads}

    return run


def main() -> None:
    """Times what the command line asks for."""
    options = options_of("Stable-Baselines3")
    venvs.enter("sb3")
    run = (options.algorithm, options.updates)
    protocol.speak(lambda: prepare(*run), options.repeat, options.serve)


if __name__ == "__main__":
    main()
