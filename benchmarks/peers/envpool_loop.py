"""EnvPool's CartPole-v1 in a plain loop with a policy: environment steps per second, nothing kept.

    python benchmarks/peers/envpool_loop.py --envs 1024 --updates 20

The loop of EnvPool's own examples: act, `env.step`, act again. The policy is a 64-64 tanh net with a
sampled action, one compiled JAX call per step, as it is in Proxima. EnvPool has as many threads as it likes.
"""

import time
import warnings

import envpool
import jax
import jax.numpy as jnp
import numpy as np
import protocol

HIDDEN = (64, 64)


def net(key: jax.Array, sizes: tuple[int, ...]) -> list[tuple[jax.Array, jax.Array]]:
    """Weights and biases."""
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        (jax.random.normal(k, (inputs, outputs)) / np.sqrt(inputs), jnp.zeros(outputs))
        for k, inputs, outputs in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]


@jax.jit
def act(layers: list[tuple[jax.Array, jax.Array]], obs: jax.Array, key: jax.Array):
    """Sampled actions, their log-probabilities, and the key to go on with."""
    key, use = jax.random.split(key)
    for weight, bias in layers[:-1]:
        obs = jnp.tanh(obs @ weight + bias)
    weight, bias = layers[-1]
    log_prob = jax.nn.log_softmax(obs @ weight + bias)
    action = jnp.argmax(log_prob + jax.random.gumbel(use, log_prob.shape), axis=-1)
    return action.astype(jnp.int32), jnp.take_along_axis(log_prob, action[:, None], 1), key


def prepare(envs: int, steps: int, updates: int) -> protocol.Run:
    """A run of that many steps, each time of a new pool."""
    layers = net(jax.random.key(0), (4, *HIDDEN, 2))
    runs = 0

    def run() -> dict[str, float]:
        nonlocal runs
        runs += 1
        warnings.simplefilter("ignore")  # Gymnasium's, on bounds that EnvPool gives as doubles
        env = envpool.make("CartPole-v1", env_type="gymnasium", num_envs=envs, seed=runs)
        obs, _ = env.reset()
        key = jax.random.key(runs)
        start = time.perf_counter()
        for _ in range(steps * updates):
            action, _, key = act(layers, obs, key)
            obs, *_ = env.step(np.asarray(action))
        return protocol.measurement(envs * steps * updates, time.perf_counter() - start)

    run()
    return run


def main() -> None:
    """Times what the command line asks for."""
    options = protocol.arguments("EnvPool CartPole-v1", envs=1024, updates=20).parse_args()
    sizes = (options.envs, options.steps, options.updates)
    protocol.speak(lambda: prepare(*sizes), options.repeat, options.serve)


if __name__ == "__main__":
    main()
