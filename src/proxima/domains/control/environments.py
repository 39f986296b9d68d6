"""Where a control scenario's environments come from: Gymnax, pools on the host, or the user's own."""

from proxima.domains.control.config import EnvConfig
from proxima.domains.control.scenario import ControlScenario
from proxima.domains.reinforcement import Built, compiled, hosted


def build(scenario: ControlScenario) -> Built:
    """The agent and the program of a scenario on the environments it names."""
    if scenario.env.backend == "gymnax":
        from proxima.domains.control.gymnax import make

        return compiled(scenario, make(scenario.env))
    return _build_host(scenario, scenario.env)


def _build_host(scenario: ControlScenario, config: EnvConfig) -> Built:
    from proxima.domains.control.pools import (
        evaluation_pool,
        evaluation_width,
        spaces,
        training_pools,
    )
    from proxima.train.host.program import Pools

    waiting: list[str] = []

    def notices() -> list[str]:
        sentences = waiting.copy()
        waiting.clear()
        return sentences

    pools = Pools(
        train=lambda num_envs: training_pools(config, num_envs, waiting.append),
        evaluate=lambda num_envs, render: evaluation_pool(config, num_envs, render, waiting.append),
        evaluation_width=evaluation_width(config),
    )
    built = hosted(scenario, spaces(config), pools)
    return built._replace(program=built.program._replace(notices=notices))
