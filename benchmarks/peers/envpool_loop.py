"""EnvPool's CartPole-v1 in a plain loop with a policy: environment steps per second, nothing kept.

    python benchmarks/peers/envpool_loop.py --envs 1024 --updates 20

The loop of EnvPool's own examples: act, `env.step`, act again. The policy is a 64-64 tanh net with a
sampled action and its log-probability, one compiled JAX call per step, as it is in Proxima. EnvPool has as
many threads as it likes.
"""

import itertools
import time
import warnings
from collections.abc import Callable

import protocol
import venvs

SIZES = (4, 64, 64, 2)


def policy() -> Callable:
    """The compiled function (obs, key) → actions, log-probabilities, key to go on with."""
    import jax
    import jax.numpy as jnp

    keys = jax.random.split(jax.random.key(0), len(SIZES) - 1)
    weights = [
        jax.random.normal(key, shape) / shape[0] ** 0.5
        for key, shape in zip(keys, itertools.pairwise(SIZES), strict=True)
    ]

    @jax.jit
    def act(weights, obs, key):
        key, use = jax.random.split(key)
        for weight in weights[:-1]:
            obs = jnp.tanh(obs @ weight)
        log_prob = jax.nn.log_softmax(obs @ weights[-1])
        action = jnp.argmax(log_prob + jax.random.gumbel(use, log_prob.shape), axis=-1)
        return action.astype(jnp.int32), jnp.take_along_axis(log_prob, action[:, None], 1), key

    return lambda obs, key: act(weights, obs, key)


def prepare(envs: int, steps: int, updates: int) -> protocol.Run:
    """A run of that many steps, each time of a new pool."""
    import envpool
    import jax
    import numpy as np

    warnings.simplefilter("ignore")  # Gymnasium's, on bounds that EnvPool gives as doubles
    act = policy()
    runs = 0

    def run() -> dict[str, float]:
        nonlocal runs
        runs += 1
        env = envpool.make("CartPole-v1", env_type="gymnasium", num_envs=envs, seed=runs)
        obs, _ = env.reset()
        key = jax.random.key(runs)
        start = time.perf_counter()
        for _ in range(steps * updates):
            action, _, key = act(obs, key)
            obs, *_ = env.step(np.asarray(action))
        return protocol.measurement(envs * steps * updates, time.perf_counter() - start)

    run()
    return run


def main() -> None:
    """Times what the command line asks for."""
    options = protocol.arguments("EnvPool CartPole-v1", envs=1024, updates=20).parse_args()
    venvs.enter("envpool")
    sizes = (options.envs, options.steps, options.updates)
    protocol.speak(lambda: prepare(*sizes), options.repeat, options.serve)


if __name__ == "__main__":
    main()
