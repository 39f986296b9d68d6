"""SBX's DDPG, TD3, SAC and DQN (Stable-Baselines3 with JAX nets): environment steps per second.

    python benchmarks/peers/sbx_off_policy.py --algorithm sac --updates 1000
    python benchmarks/peers/sbx_off_policy.py --algorithm td3 --updates 1000

Same work as ours: what off_policy_task.py says, with the nets and the gradient step compiled by the same
version of JAX as ours.

What differs: the environment is a Python object and each gradient step is a call from Python. The
steps counted are of a model whose programs are compiled.
"""

from typing import Any

import protocol
import venvs
from off_policy_task import BATCH, HIDDEN, make_model, options_of, seconds_to_learn


def prepare(algorithm: str, steps: int) -> protocol.Run:
    """A run of `steps` steps more of one model, which is past its warm-up."""
    from sbx import DDPG, DQN, SAC, TD3

    algorithms = {"ddpg": DDPG, "td3": TD3, "sac": SAC, "dqn": DQN}
    model = make_model(algorithms, algorithm, policy_kwargs={"net_arch": list(HIDDEN)})
    model.learn(BATCH + 100)

    def run() -> dict[str, Any]:
        return protocol.measurement(steps, seconds_to_learn(model, steps))

    run()
    return run


def main() -> None:
    """Times what the command line asks for."""
    options = options_of("SBX")
    venvs.enter("sbx")
    run = (options.algorithm, options.updates)
    protocol.speak(lambda: prepare(*run), options.repeat, options.serve)


if __name__ == "__main__":
    main()
