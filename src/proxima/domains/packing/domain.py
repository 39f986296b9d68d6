"""Packing and mazes: environments of Jumanji, with masked actions and rules to compare with."""

from dataclasses import replace
from functools import partial

from proxima.domains import judging, reinforcement
from proxima.domains.domain import Domain, Prepared
from proxima.domains.judging import Rules
from proxima.domains.packing.pictures import film_of
from proxima.domains.packing.scenario import PackingScenario
from proxima.report import returns
from proxima.report.numbers import figure, share

# Samples of a small perceptron that one of a net for packings or boards costs as much as, at least.
SAMPLE_COST = 16
# What the scores of baselines.py are called on the page, and how they are written.
SCORES = {
    "utilisation": ("Volume filled", share),
    "utilisation_min": ("Volume filled, worst episode", share),
    "success_rate": ("Mazes solved", share),
    "path_ratio": ("Path over shortest, solved mazes", figure),
    "length_ratio": ("Path over shortest, all mazes", figure),
}


def prepare(scenario: PackingScenario) -> Prepared:
    """The scenario's environment, and its rules on new instances."""
    from proxima.domains.packing.baselines import RULES, scores
    from proxima.domains.packing.jumanji import interface, make
    from proxima.domains.packing.maze import SIDE, Maze, check_sides
    from proxima.train.compiled.episodes import play

    name, curriculum = scenario.env.name, scenario.curriculum
    sides = {} if curriculum is None else {**curriculum.parameters}
    env = make(scenario.env, scenario.seed, sides.get(SIDE, ()))
    if curriculum is not None and isinstance(env.problem, Maze):
        beyond = curriculum.beyond.get(SIDE, ())
        check_sides(f"curriculum.beyond.{SIDE}", beyond, env.problem.grid)
    evaluation_env = replace(env, pool=None)  # makes a new instance at each reset
    baselines = {
        rule: partial(play, act, evaluation_env, scenario.seed)
        for rule, act in RULES.get(name, {}).items()
    }
    built = reinforcement.compiled(scenario, env, evaluation_env, sample_cost=SAMPLE_COST)
    built = built._replace(interface=interface(env))
    rules = Rules(baselines, partial(scores, name))
    return reinforcement.prepared(scenario, built, rules=rules, film=film_of)


DOMAIN = Domain(
    name="packing",
    scenario=PackingScenario,
    checks=lambda scenario: iter(()),
    prepare=prepare,
    overview=judging.overview,
    closing=judging.closing,
    page=partial(returns.page, scores=SCORES),
    backends=("jumanji",),
    networks={
        "mlp": "proxima.nets.actor_critic:NETWORK",
        "attention": "proxima.domains.packing.attention:NETWORK",
        "grid": "proxima.domains.packing.grid:NETWORK",
    },
    prepare_host=reinforcement.prepare_host,
    gangs=True,
    film=film_of,
)
