"""The script a user of Stable-Baselines3 writes: PPO on CartPole-v1, then 100 greedy episodes.

Started by `sb3_ppo.py --solve`, which says by --started when, so that the interpreter's start and
the imports are counted. Prints one JSON line.
"""

import argparse
import json
import time

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

imported = time.time()

ENVS = {"default": 1, "zoo": 8}
HYPERPARAMETERS = {
    "default": {},
    # CartPole-v1 in hyperparams/ppo.yml of DLR-RM/rl-baselines3-zoo; both rates fall linearly.
    "zoo": {
        "n_steps": 32,
        "batch_size": 256,
        "gae_lambda": 0.8,
        "gamma": 0.98,
        "n_epochs": 20,
        "ent_coef": 0.0,
        "learning_rate": lambda remaining: 0.001 * remaining,
        "clip_range": lambda remaining: 0.2 * remaining,
    },
}

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--hyperparameters", choices=sorted(ENVS), required=True)
parser.add_argument("--total-steps", type=int, required=True)
parser.add_argument("--episodes", type=int, required=True, help="greedy episodes; 0 for none")
parser.add_argument("--threads", type=int, required=True, help="torch's threads")
parser.add_argument("--seed", type=int, required=True)
parser.add_argument("--started", type=float, required=True, help="time.time() at the start")
options = parser.parse_args()

torch.set_num_threads(options.threads)
env = make_vec_env("CartPole-v1", n_envs=ENVS[options.hyperparameters], seed=options.seed)
model = PPO(
    "MlpPolicy", env, seed=options.seed, device="cpu", **HYPERPARAMETERS[options.hyperparameters]
)
model.learn(options.total_steps)
learnt = time.time()

returns = []
if options.episodes:
    # Eight envs at once is the quickest way for SB3; the evaluation is timed apart from learning.
    evaluation_env = make_vec_env("CartPole-v1", n_envs=8, seed=options.seed + 10_000)
    returns, _ = evaluate_policy(
        model, evaluation_env, options.episodes, deterministic=True, return_episode_rewards=True
    )
print(
    json.dumps(
        {
            "seconds_to_learnt": learnt - options.started,
            "seconds_to_evaluated": time.time() - options.started,
            "seconds_to_imported": imported - options.started,
            "environment_steps": model.num_timesteps,  # whole rollouts: a little over the budget
            "return_mean": float(sum(returns) / len(returns)) if returns else None,
            "episodes": len(returns),
            "threads": options.threads,
            "seed": options.seed,
        }
    )
)
