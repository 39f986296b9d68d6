"""The table of speed lines: what is asked of us and of the rival, and the ratio to reach."""

from typing import NamedTuple

OURSELVES = "proxima"


class Line(NamedTuple):
    """One line of the table: what is asked of both, and the ratio to reach."""

    name: str
    ours: tuple[str, ...]
    peer: str
    theirs: tuple[str, ...]
    at_least: float
    script: str = "ours.py"
    before: tuple[str, ...] = ()  # a script of ours that writes what both read
    own_speed: float = 0.0  # steps per second that ours is to reach besides


LINES = {
    "large": Line(
        "64 envs × 128, one run",
        ("--envs", "64", "--updates", "60"),
        "rejax",
        ("rejax_ppo.py", "--envs", "64", "--updates", "60"),
        2.4,
    ),
    "small": Line(
        "4 envs × 128, one run",
        ("--envs", "4", "--updates", "500"),
        "rejax",
        ("rejax_ppo.py", "--envs", "4", "--updates", "500"),
        1.3,
    ),
    "trials": Line(
        "8 trials of 4 × 128, in sum",
        ("--envs", "4", "--updates", "200", "--trials", "8"),
        "rejax",
        ("rejax_ppo.py", "--envs", "4", "--updates", "200", "--seeds", "8"),
        3.3,
    ),
    "sb3": Line(
        "8 envs × 128",
        ("--envs", "8", "--updates", "400"),
        "sb3",
        ("sb3_ppo.py", "--envs", "8", "--updates", "20"),
        30.0,
    ),
    "host": Line(
        "Gymnasium CartPole, 8 envs × 128",
        ("--envs", "8", "--updates", "40", "--host"),
        "sb3",
        ("sb3_ppo.py", "--envs", "8", "--updates", "20"),
        2.0,
    ),
    "memory": Line(
        "PPO with a memory of 128 (GRU; the rival an LSTM), 64 envs × 128",
        ("--envs", "64", "--updates", "20", "--memory", "128"),
        "sb3",
        ("sb3_recurrent.py", "--envs", "64", "--updates", "2", "--memory", "128"),
        10.0,
    ),
    "trading_env": Line(
        "trading env alone, 1,024 accounts in one process",
        ("--envs", "1024", "--steps", "1000", "--updates", "10"),
        "gym-trading-env",
        ("gym_trading.py", "--envs", "1", "--steps", "1000", "--updates", "10"),
        300.0,
        "trading_env.py",
    ),
    "trading_ppo": Line(
        "PPO on a trading env, 4,096 steps per update; the rival as usual, with one env",
        ("--envs", "64", "--steps", "64", "--updates", "100"),
        "torchrl",
        ("torchrl_trading.py", "--envs", "1", "--steps", "4096", "--updates", "1"),
        100.0,
        "ours_trading.py",
        ("ours_trading.py", "--write"),
        60_000,
    ),
    "trading_ppo_vector": Line(  # no aim but to be quicker than what TorchRL can be brought to
        "PPO on a trading env, 64 envs × 64; the rival's in two processes, as vectors",
        ("--envs", "64", "--steps", "64", "--updates", "100"),
        "torchrl",
        ("torchrl_trading.py", "--envs=64", "--steps=64", "--updates=10", "--collectors=2"),
        1.0,
        "ours_trading.py",
        ("ours_trading.py", "--write"),
        60_000,
    ),
    "ddpg_sb3": Line(
        "DDPG on Pendulum, 256-256, batch 256, an update per step",
        ("--algorithm=ddpg", "--updates", "1000"),
        "sb3",
        ("sb3_off_policy.py", "--algorithm=ddpg", "--updates", "500"),
        3.0,
        "ours_off_policy.py",
    ),
    "ddpg_sbx": Line(
        "DDPG on Pendulum, 256-256, batch 256, an update per step",
        ("--algorithm=ddpg", "--updates", "1000"),
        "sbx",
        ("sbx_off_policy.py", "--algorithm=ddpg", "--updates", "800"),
        1.5,
        "ours_off_policy.py",
    ),
    "sac_sb3": Line(
        "SAC on Pendulum, 256-256, batch 256, an update per step",
        ("--algorithm=sac", "--updates", "1000"),
        "sb3",
        ("sb3_off_policy.py", "--algorithm=sac", "--updates", "300"),
        3.0,
        "ours_off_policy.py",
    ),
    "sac_sbx": Line(
        "SAC on Pendulum, 256-256, batch 256, an update per step",
        ("--algorithm=sac", "--updates", "1000"),
        "sbx",
        ("sbx_off_policy.py", "--algorithm=sac", "--updates", "500"),
        1.5,
        "ours_off_policy.py",
    ),
    "dqn_sb3": Line(
        "DQN on CartPole, 256-256, batch 256, an update per step",
        ("--algorithm=dqn", "--updates", "1000"),
        "sb3",
        ("sb3_off_policy.py", "--algorithm=dqn", "--updates", "500"),
        3.0,
        "ours_off_policy.py",
    ),
    "dqn_sbx": Line(
        "DQN on CartPole, 256-256, batch 256, an update per step",
        ("--algorithm=dqn", "--updates", "1000"),
        "sbx",
        ("sbx_off_policy.py", "--algorithm=dqn", "--updates", "800"),
        1.5,
        "ours_off_policy.py",
    ),
    "packing": Line(
        "PPO on BinPack-v2, 10 items and 20 spaces, 128 envs × 16; the rival over Jumanji's autoreset",
        ("--envs=128", "--steps=16", "--updates=10"),
        OURSELVES,
        ("jumanji_loop.py", "--envs=128", "--steps=16", "--updates=10"),
        1.5,
        "ours_packing.py",
    ),
    "packing_full": Line(
        "PPO on BinPack-v2, 20 items and 40 spaces, 128 envs × 16; the rival over Jumanji's autoreset",
        ("--envs=128", "--steps=16", "--updates=4", "--items=20", "--spaces=40"),
        OURSELVES,
        ("jumanji_loop.py", "--envs=128", "--steps=16", "--updates=4", "--items=20", "--spaces=40"),
        1.5,
        "ours_packing.py",
    ),
    "language_generation": Line(
        "627,360 parameters, 64 prompts × 20 new tokens: tokens per second",
        ("generation", "--updates", "20"),
        "trl",
        ("trl_ppo.py", "generation", "--updates", "5"),
        2.0,
        "ours_language.py",
    ),
    "language_ppo": Line(
        "627,360 parameters, 64 × 20 tokens, PPO with 4 optimizer steps: iterations per second",
        ("ppo", "--updates", "5"),
        "trl",
        ("trl_ppo.py", "ppo", "--updates", "3"),
        2.0,
        "ours_language.py",
    ),
    "smollm2_generation": Line(
        "SmolLM2-135M, 16 prompts of 16 × 64 new tokens: tokens per second",
        ("smollm2_generation", "--updates", "1"),
        "trl",
        ("torch_smollm2.py", "generation", "--updates", "1"),
        1.2,
        "ours_language.py",
        ("ours_language.py", "write"),
    ),
    "smollm2_lora": Line(
        "SmolLM2-135M, LoRA rank 16, 8 × 64 tokens: updates per second",
        ("smollm2_lora", "--updates", "3"),
        "trl",
        ("torch_smollm2.py", "lora", "--updates", "3"),
        1.2,
        "ours_language.py",
        ("ours_language.py", "write"),
    ),
    "envpool": Line(
        "EnvPool CartPole, 1,024 envs, rollouts kept; the rival's loop keeps nothing",
        ("--envs", "1024", "--updates", "20", "--groups", "2"),
        "envpool",
        ("envpool_loop.py", "--envs", "1024", "--updates", "20"),
        0.7,
        "ours_pools.py",
    ),
}
