"""Rejax's PPO on CartPole-v1: environment steps per second of its whole training loop.

    python benchmarks/peers/rejax_ppo.py --envs 64 --steps 128 --updates 50
    python benchmarks/peers/rejax_ppo.py --envs 4 --seeds 8      eight seeds vmapped, their sum

Same work as ours: gymnax CartPole with autoreset; rollouts of envs × steps; a policy and a value
net of 64-64 tanh; GAE; 4 epochs × 4 minibatches, reshuffled every epoch; clipped policy and value
losses, entropy bonus, advantages normalised per minibatch; Adam; float32; no normalisation of
observations or rewards; one compiled program from the key to the trained state.

What differs:
- Rejax measures nothing while it trains: no losses, KL, or episode returns. Its only metric is an
  evaluation of 128 episodes, which is switched off here. Ours keeps its metrics on.
- Rejax steps policy and value optimizers apart and clips each gradient element; ours clips by the
  global norm.
- Rejax takes a truncation for a termination; ours bootstraps from the final observation.
- gymnax 0.0.9 is the last version whose `step` Rejax 0.1.3 understands; ours uses gymnax 1.
"""

import time

import protocol
import venvs


def prepare(envs: int, steps: int, updates: int, seeds: int) -> protocol.Run:
    """A compiled training run over `seeds` seeds, each time with new ones."""
    import jax
    from rejax import PPO

    total = envs * steps * updates
    algorithm = PPO.create(
        env="CartPole-v1",
        agent_kwargs={"hidden_layer_sizes": (64, 64), "activation": "tanh"},
        num_envs=envs,
        num_steps=steps,
        num_epochs=4,
        num_minibatches=4,
        learning_rate=2.5e-4,
        max_grad_norm=0.5,
        total_timesteps=total,
        # `train` runs eval_freq steps, evaluates, and repeats until total_timesteps. One such
        # round without the evaluation at the start leaves one at the end, which does nothing.
        eval_freq=total,
        skip_initial_evaluation=True,
    ).replace(eval_callback=lambda algorithm, state, key: ())
    train = jax.jit(algorithm.train if seeds == 1 else jax.vmap(algorithm.train))

    def keys(number: int) -> jax.Array:
        key = jax.random.key(number)
        return key if seeds == 1 else jax.random.split(key, seeds)

    runs = 0

    def run() -> dict[str, float]:
        nonlocal runs
        runs += 1
        key = jax.block_until_ready(keys(runs))
        start = time.perf_counter()
        state, _ = jax.block_until_ready(train(key))
        seconds = time.perf_counter() - start
        done = int(state.global_step.sum())
        if done != total * seeds:
            raise SystemExit(f"Rejax made {done} environment steps instead of {total * seeds}")
        return protocol.measurement(done, seconds)

    run()
    return run


def main() -> None:
    """Times what the command line asks for."""
    parser = protocol.arguments("Rejax PPO on CartPole-v1", envs=64, updates=50)
    parser.add_argument("--seeds", type=protocol.positive, default=1, help="seeds vmapped")
    options = parser.parse_args()
    if options.envs * options.steps % 4:
        parser.error("--envs times --steps must divide into 4 minibatches")
    venvs.enter("rejax")
    protocol.speak(
        lambda: prepare(options.envs, options.steps, options.updates, options.seeds),
        options.repeat,
        options.serve,
    )


if __name__ == "__main__":
    main()
