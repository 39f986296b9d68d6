"""What both are asked to do on a trading environment: the same prices, features, costs and settings."""

from pathlib import Path

import numpy as np

POSITIONS = (-1.0, 0.0, 1.0)
WIDE_POSITIONS = (-1.0, -0.5, 0.0, 0.5, 1.0, 2.0)  # for the values that must agree
FEE = 0.001
FEATURES = 5
GOLDEN_PRICES = np.array([100.0, 102, 101, 105, 103, 99, 98, 100])
GOLDEN_TARGETS = np.array([1.0, 1, -1, -1, 0.5, 2, 2])
AGREEMENT_RUNS = 5

# PPO on prices and features that ours_trading.py --write hands over.
HANDED_OVER = Path(__file__).resolve().parent.parent / ".peers" / "trading.npz"
EPISODE = 200  # bars, from a random start
FIXED_PATH = 1_000  # bars on which both environments must agree
HIDDEN = (64, 64)
MINIBATCHES = 4
EPOCHS = 4
LEARNING_RATE = 3e-4
GAMMA = 0.99
LAMBDA = 0.95
ENTROPY = 0.01
CLIP = 0.2
VALUE_COEFFICIENT = 0.5
MAX_GRADIENT_NORM = 0.5


def prices(rows: int) -> np.ndarray:
    """A random walk, (rows,)."""
    random = np.random.default_rng(0)
    return 100 * np.exp(np.cumsum(random.normal(0, 0.01, rows)))


def features(rows: int) -> np.ndarray:
    """Noise of the size that scaled features have, (rows, FEATURES)."""
    return np.random.default_rng(1).standard_normal((rows, FEATURES), np.float32)


def action_indices(shape: tuple[int, ...]) -> np.ndarray:
    """Uniformly random choices among POSITIONS."""
    return np.random.default_rng(2).integers(len(POSITIONS), size=shape)


def agreement_paths() -> list[tuple[np.ndarray, np.ndarray]]:
    """Prices (n + 1,) and targets (n,) whose final values both must agree on."""
    random = np.random.default_rng(3)
    paths = [(GOLDEN_PRICES, GOLDEN_TARGETS)]
    for _ in range(AGREEMENT_RUNS):
        walk = 100 * np.exp(np.cumsum(random.normal(0, 0.01, 301)))
        paths.append((walk, random.choice(WIDE_POSITIONS, 300)))
    return paths
