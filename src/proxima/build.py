"""The composition root: the one place where a scenario's names become the things they name."""

from typing import Any, NamedTuple

from proxima.algorithms.ppo import PPO, ppo
from proxima.core.errors import ProximaError
from proxima.core.spaces import Box, Discrete, Space
from proxima.core.types import PyTree
from proxima.nets.actor_critic import NetworkConfig
from proxima.scenario import Scenario
from proxima.train.chunk import DATA, Layout
from proxima.train.loop import Settings
from proxima.train.program import Program


class Built(NamedTuple):
    """A scenario made runnable."""

    agent: PPO
    program: Program
    observation_space: Box
    action_space: Space
    layout: Layout


def build(scenario: Scenario) -> Built:
    """The agent and the program of a scenario."""
    if scenario.env.backend == "gymnasium":
        return _build_host(scenario)
    return _build_compiled(scenario)


def settings(scenario: Scenario) -> Settings:
    """What the loop reads of a scenario."""
    return Settings(
        scenario.training, scenario.evaluation, scenario.convergence, scenario.checkpoint
    )


def rollout_steps(scenario: Scenario) -> int:
    """Steps of each environment per update."""
    return scenario.algorithm.batch_size // scenario.env.num_envs


def total_updates(scenario: Scenario) -> int | None:
    """Updates in the step budget, None where there is none."""
    if scenario.training.max_steps is None:
        return None
    return -(-scenario.training.max_steps // scenario.algorithm.batch_size)


def _agent(scenario: Scenario, spaces: tuple[Box, Space], axis: str | None) -> PPO:
    observation_space, action_space = spaces
    check_distribution(scenario.network, action_space, scenario.env.name)
    return ppo(
        scenario.algorithm,
        scenario.network,
        (observation_space, action_space),
        scenario.env.num_envs,
        total_updates(scenario),
        axis,
    )


def check_distribution(network: NetworkConfig, space: Space, env_name: str) -> None:
    """An error in words where the distribution does not fit the actions."""
    kind, discrete = network.distribution, isinstance(space, Discrete)
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


def _build_compiled(scenario: Scenario) -> Built:
    import jax

    from proxima.domains.control.gymnax import make
    from proxima.train.collect import Collector
    from proxima.train.compiled import compiled_program
    from proxima.train.devices import plan_layout

    env = make(scenario.env)
    layout = plan_layout(
        scenario.trials,
        scenario.env.num_envs,
        scenario.algorithm.minibatch_size,
        len(jax.devices()),
    )
    axis = DATA if layout.data_devices > 1 else None
    agent = _agent(scenario, (env.observation_space, env.action_space), axis)
    collector = Collector(env, scenario.env.num_envs, rollout_steps(scenario), axis)
    program = compiled_program(agent, collector, layout, scenario.seed)
    return Built(agent, program, env.observation_space, env.action_space, layout)


def _build_host(scenario: Scenario) -> Built:
    from proxima.domains.control.gymnasium import make_pool, spaces
    from proxima.train.host import host_program

    observation_space, action_space = spaces(scenario.env)
    if not isinstance(observation_space, Box):
        raise ProximaError(
            f"env.name: {scenario.env.name} observes single integers and the nets take arrays; "
            "wrap it with gymnasium.wrappers.FlattenObservation and register it under a new name"
        )
    agent = _agent(scenario, (observation_space, action_space), None)
    program = host_program(
        agent,
        lambda num_envs, render: make_pool(scenario.env, num_envs, render=render),
        trials=scenario.trials,
        num_envs=scenario.env.num_envs,
        steps=rollout_steps(scenario),
        experiment_seed=scenario.seed,
    )
    return Built(agent, program, observation_space, action_space, Layout(1, 1))


def describe_policy(scenario: Scenario, built: Built) -> dict[str, Any]:
    """What policy.json says of an exported policy besides its weights."""
    return {
        "scenario": scenario.name,
        "algorithm": scenario.algorithm.name,
        "env": scenario.env.name,
        "observation_space": built.observation_space._asdict(),
        "action_space": built.action_space._asdict(),
        "network": {
            "hidden": list(scenario.network.hidden),
            "activation": scenario.network.activation,
        },
        "normalize_observations": scenario.algorithm.normalize_observations,
    }


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
