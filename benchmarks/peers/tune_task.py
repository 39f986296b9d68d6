"""What is searched, and what every configuration is given: the same for RL Baselines3 Zoo and for ours.

PPO on CartPole-v1, two nets of 64-64 tanh. What does not vary is Stable-Baselines3's default, but for the
rollouts, which are those of the Zoo's own settings for CartPole (8 envs × 32). Standard library only.
"""

from typing import NamedTuple


class Varied(NamedTuple):
    """A setting that the search varies, by the name that each of both gives it."""

    ours: str
    theirs: str
    low: float
    high: float
    is_log: bool = False

    def words(self) -> str:
        """As `proxima tune --search` takes it."""
        kind = "log:" if self.is_log else ""
        return f"algorithm.{self.ours}={kind}{self.low:g}:{self.high:g}"


SPACE = (
    Varied("learning_rate", "learning_rate", 1e-5, 1e-2, is_log=True),
    Varied("gamma", "gamma", 0.95, 0.999),
    Varied("gae_lambda", "gae_lambda", 0.8, 1.0),
    Varied("entropy_coef", "ent_coef", 1e-8, 0.1, is_log=True),
    Varied("clip_epsilon", "clip_range", 0.1, 0.4),
    Varied("max_grad_norm", "max_grad_norm", 0.3, 5.0),
)
BUDGET = 20_000  # steps of a configuration; both end the rollout that reaches it
ENVS, STEPS = 8, 32  # of a rollout
MINIBATCH, EPOCHS = 64, 10
EPISODES = 10  # of the one evaluation, at the end
TRAINED = -(-BUDGET // (ENVS * STEPS)) * ENVS * STEPS
