"""The composition root: the one place where a scenario's names become the things they name."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from proxima.algorithms.ddpg import DDPGConfig, check_actions, check_network, ddpg
from proxima.algorithms.ppo import PPOConfig, ppo
from proxima.algorithms.spo import SPOConfig, spo
from proxima.core.errors import ProximaError
from proxima.core.spaces import Box, Fields, ObservationSpace, Space, is_discrete
from proxima.core.types import Agent, Env, PyTree
from proxima.domains.control.config import EnvConfig
from proxima.domains.packing.config import PackingEnvConfig
from proxima.domains.trading.config import DataConfig, TradingEnvConfig
from proxima.nets.actor_critic import NetworkConfig, adapter_kind, shares_torso
from proxima.scenario import Scenario
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
    if isinstance(config, DDPGConfig):
        return config.steps_per_update
    if isinstance(config, SPOConfig):
        return config.sequence_length
    return config.batch_size // scenario.env.num_envs


def learning_begins(scenario: Scenario) -> int:
    """Environment steps before the first gradient step."""
    config = scenario.algorithm
    return config.warmup_steps + config.batch_size if isinstance(config, DDPGConfig) else 0


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
    config, (_, action_space) = scenario.algorithm, spaces
    if isinstance(config, DDPGConfig):
        check_actions(action_space, scenario.env.name)
        check_network(scenario.network)
        return ddpg(config, scenario.network, spaces, scenario.env.num_envs)
    check_distribution(scenario.network, action_space, scenario.env.name)
    check_normalization(scenario, *spaces)
    if isinstance(config, SPOConfig):
        return _spo(scenario, config, env)
    return ppo(
        config,
        scenario.network,
        spaces,
        scenario.env.num_envs,
        total_updates(scenario),
        axis,
        value_when_acting=env is not None and shares_torso(scenario.network, *spaces),
    )


def _spo(scenario: Scenario, config: SPOConfig, env: Env | None) -> Agent:
    if env is None:
        raise ProximaError(
            f"algorithm.name: spo searches copies of the environment's state, and {scenario.env.name} "
            f"on {scenario.env.backend} has none to copy; use a compiled environment "
            "(env.backend: gymnax) or ppo"
        )
    # Search steps through the prices to come: it may teach on those of training, but not play on any.
    foresees = isinstance(scenario.env, TradingEnvConfig)
    return spo(config, scenario.network, env, config.search_in_evaluation and not foresees)


def check_distribution(network: NetworkConfig, space: Space, env_name: str) -> None:
    """An error in words where the distribution does not fit the actions."""
    kind, discrete = network.distribution, is_discrete(space)
    if kind == "tanh_normal" and isinstance(space, Box) and not space.bounded:
        raise ProximaError(
            f"network.distribution: tanh_normal needs bounded actions, {env_name}'s are not; use normal"
        )
    if kind == "auto" or (kind == "categorical") == discrete:
        return
    fitting = "categorical" if discrete else "normal or tanh_normal"
    actions = "discrete" if discrete else "continuous"
    raise ProximaError(
        f"network.distribution: {kind} does not fit {env_name}, whose actions are {actions}; "
        f"use auto or {fitting}"
    )


def check_normalization(
    scenario: Scenario, observation_space: ObservationSpace, action_space: Space
) -> None:
    """An error in words where a net takes observations as they are and they would be normalised."""
    kind = adapter_kind(scenario.network, observation_space, action_space)
    if kind == "dense" or not scenario.algorithm.normalize_observations:
        return
    raise ProximaError(
        f"algorithm.normalize_observations: the {kind} net takes lengths and positions as they are; "
        "set it to false, or network.adapter to dense"
    )


def _build_compiled(
    scenario: Scenario, env: Env, evaluation_env: Env | None = None, closing_env: Env | None = None
) -> Built:
    from proxima.train.compiled.collect import Collector
    from proxima.train.compiled.profile import Acting
    from proxima.train.compiled.program import compiled_program

    layout = _layout(scenario)
    axis = DATA if layout.data_devices > 1 else None
    spaces = env.observation_space, env.action_space
    agent = _agent(scenario, spaces, axis, env)
    collector = Collector(env, scenario.env.num_envs, rollout_steps(scenario), axis)
    acting: Acting = "search" if scenario.algorithm.name == "spo" else "act"
    program = compiled_program(
        agent, collector, layout, scenario.seed, evaluation_env, closing_env, acting
    )
    return Built(agent, program, *spaces, layout)


def _layout(scenario: Scenario) -> Layout:
    import jax

    from proxima.train.devices import plan_layout

    config = scenario.algorithm
    # DDPG's gradient steps are too small to share between devices: only trials are spread.
    share = config.minibatch_size if isinstance(config, PPOConfig) else 1
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
        "network": {
            "hidden": list(scenario.network.hidden),
            "activation": scenario.network.activation,
        },
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
