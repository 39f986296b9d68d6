"""The composition root: the one place where a scenario's names become the things they name."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any, NamedTuple

from proxima.core.algorithm import Problem
from proxima.core.network import NetworkSpec
from proxima.core.spaces import Fields, ObservationSpace, Space
from proxima.core.types import Agent, Env, PyTree
from proxima.domains.control.config import EnvConfig
from proxima.domains.packing.config import PackingEnvConfig
from proxima.domains.trading.config import DataConfig, TradingEnvConfig
from proxima.scenario import Scenario
from proxima.scenario.tree import ALGORITHMS, NETWORKS
from proxima.train.compiled.chunk import DATA, Layout
from proxima.train.loop import Settings
from proxima.train.program import Evaluation, Program, Recording

# Samples of a small perceptron that one of a net for packings or boards costs as much as, at least.
ATTENDING = 16


class Market(NamedTuple):
    """What a trading scenario is made of besides its program."""

    data: DataConfig
    env: TradingEnvConfig
    prepared: Any  # domains.trading.market.Prepared
    record: dict[str, Callable[[PyTree], Recording]]  # a learner's greedy run over each whole split


class Built(NamedTuple):
    """A scenario made runnable."""

    agent: Agent
    program: Program
    observation_space: ObservationSpace
    action_space: Space
    layout: Layout
    market: Market | None = None  # of trading scenarios
    # Fixed rules to compare with, oracles among them: episodes → what the rule gets on those of evaluation.
    baselines: Mapping[str, Callable[[int], Evaluation]] = {}
    # Every trial's scores in the problem's own terms, (trials,), from its evaluation and the baselines'.
    score: Callable[[Evaluation, Mapping[str, Evaluation]], Mapping[str, Any]] | None = None


def build(scenario: Scenario) -> Built:
    """The agent and the program of a scenario."""
    if isinstance(scenario.env, TradingEnvConfig):
        return _build_trading(scenario, scenario.env)
    if isinstance(scenario.env, PackingEnvConfig):
        return _build_packing(scenario, scenario.env)
    if scenario.env.backend in ("gymnasium", "envpool"):
        return _build_host(scenario, scenario.env)
    from proxima.domains.control.gymnax import make

    return _build_compiled(scenario, make(scenario.env))


def settings(scenario: Scenario) -> Settings:
    """What the loop reads of a scenario."""
    return Settings(
        scenario.training, scenario.evaluation, scenario.convergence, scenario.checkpoint
    )


def rollout_steps(scenario: Scenario) -> int:
    """Steps of each environment per update."""
    config = scenario.algorithm
    return ALGORITHMS[config.name].rollout_steps(config, scenario.env.num_envs)


def learning_begins(scenario: Scenario) -> int:
    """Environment steps before the first gradient step."""
    return ALGORITHMS[scenario.algorithm.name].learning_begins(scenario.algorithm)


def total_updates(scenario: Scenario) -> int | None:
    """Updates in the step budget, None where there is none."""
    if scenario.training.max_steps is None:
        return None
    return -(-scenario.training.max_steps // (rollout_steps(scenario) * scenario.env.num_envs))


def _agent(
    scenario: Scenario,
    spaces: tuple[ObservationSpace, Space],
    axis: str | None = None,
    env: Env | None = None,
) -> Agent:
    """The algorithm on these spaces; `env` is the compiled environment, None where it is on the host."""
    problem = Problem(
        env_name=scenario.env.name,
        backend=scenario.env.backend,
        observation_space=spaces[0],
        action_space=spaces[1],
        num_envs=scenario.env.num_envs,
        network=NetworkSpec(NETWORKS[scenario.network.kind], scenario.network),
        total_updates=total_updates(scenario),
        axis=axis,
        env=env,
        # Search steps through the prices to come: it may teach on those of training, but not play on any.
        foresees=isinstance(scenario.env, TradingEnvConfig),
    )
    return ALGORITHMS[scenario.algorithm.name].make(scenario.algorithm, problem)


def _build_compiled(
    scenario: Scenario, env: Env, evaluation_env: Env | None = None, closing_env: Env | None = None
) -> Built:
    from proxima.train.compiled.collect import Collector
    from proxima.train.compiled.program import compiled_program

    layout = _layout(scenario)
    axis = DATA if layout.data_devices > 1 else None
    spaces = env.observation_space, env.action_space
    agent = _agent(scenario, spaces, axis, env)
    collector = Collector(env, scenario.env.num_envs, rollout_steps(scenario), axis)
    acting = ALGORITHMS[scenario.algorithm.name].acting
    program = compiled_program(
        agent, collector, layout, scenario.seed, evaluation_env, closing_env, acting
    )
    return Built(agent, program, *spaces, layout)


def _layout(scenario: Scenario) -> Layout:
    import jax

    from proxima.train.devices import plan_layout

    config = scenario.algorithm
    share = ALGORITHMS[config.name].shared_samples(config)
    if isinstance(scenario.env, PackingEnvConfig) and share % len(jax.devices()) == 0:
        share *= ATTENDING  # so dear a sample is worth a device's waiting sooner
    return plan_layout(scenario.trials, scenario.env.num_envs, share, len(jax.devices()))


def _build_trading(scenario: Scenario, config: TradingEnvConfig) -> Built:
    from proxima.domains.trading.data import prepare_data
    from proxima.domains.trading.env import fill_returns, trading_env
    from proxima.train.compiled.program import recorder

    assert scenario.data is not None  # checked when the scenario was read
    prepared = prepare_data(scenario.data, scenario.name)
    whole = {
        "train": trading_env(prepared.train, config, training=False),
        "validation": trading_env(prepared.validation, config, training=False),
        "test": trading_env(prepared.test, config, training=False),
    }
    built = _build_compiled(
        scenario,
        trading_env(prepared.train, config, training=True),
        whole["validation"],
        whole["test"],
    )
    markets = prepared._asdict()
    record = {
        split: recorder(
            built.agent, env, scenario.seed, len(fill_returns(markets[split], config.fill))
        )
        for split, env in whole.items()
    }
    return built._replace(market=Market(scenario.data, config, prepared, record))


def _build_packing(scenario: Scenario, config: PackingEnvConfig) -> Built:
    from proxima.domains.packing.assess import scores
    from proxima.domains.packing.baselines import largest_item_first, shortest_path
    from proxima.domains.packing.jumanji import make, without_pool
    from proxima.train.compiled.program import play

    env = make(config, scenario.seed)
    evaluation_env = without_pool(env)
    rules = {
        "BinPack-v2": {"largest_item_first": largest_item_first},
        "Maze-v0": {"shortest_path": shortest_path},
    }.get(config.name, {})
    return _build_compiled(scenario, env, evaluation_env)._replace(
        baselines={
            name: partial(play, rule, evaluation_env, scenario.seed) for name, rule in rules.items()
        },
        score=lambda evaluation, references: scores(
            config.name,
            evaluation.returns,
            evaluation.lengths,
            {name: each.lengths for name, each in references.items()},
        ),
    )


def _build_host(scenario: Scenario, config: EnvConfig) -> Built:
    from proxima.domains.control.pools import (
        evaluation_pool,
        evaluation_width,
        spaces,
        training_pools,
    )
    from proxima.train.host.program import Pools, host_program

    notices: list[str] = []

    def new_notices() -> list[str]:
        told = notices.copy()
        notices.clear()
        return told

    observation_space, action_space = spaces(config)
    agent = _agent(scenario, (observation_space, action_space))
    program = host_program(
        agent,
        Pools(
            train=lambda num_envs: training_pools(config, num_envs, notices.append),
            evaluate=lambda num_envs, render: evaluation_pool(
                config, num_envs, render, notices.append
            ),
            evaluation_width=evaluation_width(config),
        ),
        trials=scenario.trials,
        num_envs=config.num_envs,
        steps=rollout_steps(scenario),
        experiment_seed=scenario.seed,
    )
    program = program._replace(notices=new_notices)
    return Built(agent, program, observation_space, action_space, Layout(1, 1))


def describe_policy(scenario: Scenario, built: Built) -> dict[str, Any]:
    """What policy.json says of an exported policy besides its weights."""
    return {
        "scenario": scenario.name,
        "algorithm": scenario.algorithm.name,
        "env": scenario.env.name,
        "observation_space": describe_space(built.observation_space),
        "action_space": describe_space(built.action_space),
        "network": asdict(scenario.network),
        "normalize_observations": scenario.algorithm.normalize_observations,
    }


def describe_space(space: ObservationSpace | Space) -> dict[str, Any]:
    """A space as JSON holds it."""
    if isinstance(space, Fields):
        return {name: each._asdict() for name, each in space.items()}
    return space._asdict()


def policy_function(built: Built, learner: PyTree) -> tuple[Any, dict[str, Any]]:
    """The greedy policy as f(weights by name, observations) → actions, and the weights."""
    import jax

    from proxima.core.types import View

    parts = built.agent.policy(learner)
    leaves, structure = jax.tree_util.tree_flatten_with_path(parts)
    names = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in leaves]

    def act(weights: dict[str, Any], observations: Any) -> Any:
        learner = jax.tree.unflatten(structure, [weights[name] for name in names])
        return built.agent.exploit(learner, View(observations))

    return act, {name: leaf for name, (_, leaf) in zip(names, leaves, strict=True)}
