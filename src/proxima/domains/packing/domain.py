"""Packing and mazes: environments of Jumanji, with masked actions and rules to compare with."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from proxima.domains import judging, reinforcement
from proxima.domains.domain import Domain, Prepared
from proxima.domains.judging import Rules
from proxima.domains.packing.page import page
from proxima.domains.packing.pictures import film_of
from proxima.domains.packing.scenario import PackingScenario
from proxima.train.program import Evaluation

# Samples of a small perceptron that one of a net for packings or boards costs as much as, at least.
SAMPLE_COST = 16


def prepare(scenario: PackingScenario) -> Prepared:
    """The scenario's environment, and its rules on new instances."""
    from proxima.domains.packing.assess import scores
    from proxima.domains.packing.baselines import largest_item_first, shortest_path
    from proxima.domains.packing.jumanji import make, without_pool
    from proxima.train.compiled.program import play

    env = make(scenario.env, scenario.seed)
    evaluation_env = without_pool(env)
    rules = {
        "BinPack-v2": {"largest_item_first": largest_item_first},
        "Maze-v0": {"shortest_path": shortest_path},
    }.get(scenario.env.name, {})

    def score(evaluation: Evaluation, references: Mapping[str, Evaluation]) -> Mapping[str, Any]:
        lengths = {name: each.lengths for name, each in references.items()}
        return scores(scenario.env.name, evaluation.returns, evaluation.lengths, lengths)

    baselines = {
        name: partial(play, rule, evaluation_env, scenario.seed) for name, rule in rules.items()
    }
    built = reinforcement.compiled(scenario, env, evaluation_env, sample_cost=SAMPLE_COST)
    return reinforcement.prepared(scenario, built, rules=Rules(baselines, score), film=film_of)


DOMAIN = Domain(
    name="packing",
    scenario=PackingScenario,
    checks=lambda scenario: iter(()),
    prepare=prepare,
    overview=judging.overview,
    closing=judging.closing,
    page=page,
    backends=("jumanji",),
    networks={
        "mlp": "proxima.nets.actor_critic:NETWORK",
        "attention": "proxima.domains.packing.attention:NETWORK",
        "grid": "proxima.domains.packing.grid:NETWORK",
    },
    prepare_host=reinforcement.prepare_host,
    film=film_of,
)
