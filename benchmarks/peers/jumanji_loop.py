"""A straightforward PPO over Jumanji's VmapAutoResetWrapper, as one would write it first.

    python benchmarks/peers/jumanji_loop.py --envs 128 --steps 16 --updates 10

The net, the settings and the sizes are those of ours_packing.py (the net is imported from Proxima, so it
runs under Proxima's Python). Values are kept from acting, minibatches are gathered leaf by leaf after
`jax.random.permutation`, Optax updates the tree, one `jit` spans an update.
"""

import time

import jax
import jax.numpy as jnp
import optax
import protocol

from proxima.core.spaces import Discrete
from proxima.domains.packing.attention import AttentionConfig, packing_actor_critic

EPOCHS, MINIBATCHES, GAMMA, LAMBDA, CLIP, ENTROPY, VALUE = 2, 8, 1.0, 0.95, 0.2, 0.003, 0.5


def named(observation):
    """Jumanji's observation as the net takes it."""
    boxes = observation.ems
    sides = [boxes.x1, boxes.x2, boxes.y1, boxes.y2, boxes.z1, boxes.z2]
    mask = observation.action_mask
    return {
        "action_mask": mask.reshape(*mask.shape[:-2], -1),
        "ems": jnp.stack(sides, axis=-1),
        "ems_mask": observation.ems_mask,
        "items": jnp.stack(list(observation.items), axis=-1),
        "items_mask": observation.items_mask,
        "items_placed": observation.items_placed,
    }


def advantages(reward, value, discount, last):
    """Generalised advantages; Jumanji's discount is 0 where an episode ends."""
    following = jnp.concatenate([value[1:], last[None]])
    delta = reward + GAMMA * discount * following - value

    def back(carry, row):
        delta, discount = row
        carry = delta + GAMMA * LAMBDA * discount * carry
        return carry, carry

    return jax.lax.scan(back, jnp.zeros_like(last), (delta, discount), reverse=True)[1]


def prepare(envs: int, steps: int, updates: int, items: int, spaces: int) -> protocol.Run:
    """A compiled training run, each time with new seeds."""
    from jumanji.environments import BinPack
    from jumanji.environments.packing.bin_pack.generator import RandomGenerator
    from jumanji.wrappers import VmapAutoResetWrapper

    generator = RandomGenerator(items, spaces, split_num_same_items=2)
    env = VmapAutoResetWrapper(BinPack(generator, spaces))
    optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(1e-3, eps=1e-5))

    def loss(net, batch):
        obs, action, old, advantage, target = batch
        distribution, value = net(obs)
        ratio = jnp.exp(distribution.log_prob(action) - old)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        gain = jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * advantage)
        entropy = distribution.entropy()
        errors = 0.5 * jnp.square(value - target)
        return -gain.mean() + VALUE * errors.mean() - ENTROPY * entropy.mean()

    @jax.jit
    def update(net, optimizer_state, env_state, timestep, key):
        def act(carry, key):
            env_state, timestep = carry
            obs = named(timestep.observation)
            distribution, value = net(obs)
            noise = jax.random.gumbel(key, distribution.logits.shape)
            action = distribution.sample(noise)
            pair = jnp.stack([action // items, action % items], axis=-1)
            env_state, timestep = env.step(env_state, pair)
            row = (obs, action, distribution.log_prob(action), value)
            return (env_state, timestep), (row, timestep.reward, timestep.discount)

        key, act_key, *epoch_keys = jax.random.split(key, 2 + EPOCHS)
        (env_state, timestep), (rows, reward, discount) = jax.lax.scan(
            act, (env_state, timestep), jax.random.split(act_key, steps)
        )
        obs, action, log_prob, value = rows
        last = net(named(timestep.observation))[1]
        advantage = advantages(reward, value, discount, last)
        batch = (obs, action, log_prob, advantage, advantage + value)
        batch = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), batch)

        def step(carry, index):
            net, optimizer_state = carry
            gradient = jax.grad(loss)(net, jax.tree.map(lambda leaf: leaf[index], batch))
            change, optimizer_state = optimizer.update(gradient, optimizer_state)
            return (optax.apply_updates(net, change), optimizer_state), None

        carry = (net, optimizer_state)
        for epoch_key in epoch_keys:
            order = jax.random.permutation(epoch_key, envs * steps).reshape(MINIBATCHES, -1)
            carry, _ = jax.lax.scan(step, carry, order)
        return *carry, env_state, timestep, key

    runs = 0

    def run() -> dict[str, float]:
        nonlocal runs
        runs += 1
        key = jax.random.key(runs)
        config = AttentionConfig(width=32)
        net = packing_actor_critic(key, config, None, Discrete(items * spaces))
        state = net, optimizer.init(net), *reset(jax.random.split(key, envs)), key
        jax.block_until_ready(state)
        start = time.perf_counter()
        for _ in range(updates):
            state = update(*state)
        jax.block_until_ready(state)
        return protocol.measurement(envs * steps * updates, time.perf_counter() - start)

    reset = jax.jit(env.reset)
    run()
    return run


def main() -> None:
    """Times what the command line asks for."""
    parser = protocol.arguments("A plain PPO loop over Jumanji's BinPack-v2", envs=128, updates=10)
    parser.set_defaults(steps=16)
    parser.add_argument("--items", type=protocol.positive, default=10)
    parser.add_argument("--spaces", type=protocol.positive, default=20)
    options = parser.parse_args()
    sizes = options.envs, options.steps, options.updates, options.items, options.spaces
    protocol.speak(lambda: prepare(*sizes), options.repeat, options.serve)


if __name__ == "__main__":
    main()
