"""Control: environments of Gymnax, Gymnasium and EnvPool, or the user's own."""

from collections.abc import Mapping
from typing import Any

from proxima.domains import judging, reinforcement
from proxima.domains.control.config import BACKENDS
from proxima.domains.control.film import film_of
from proxima.domains.control.page import page
from proxima.domains.control.scenario import ControlScenario, control_faults
from proxima.domains.domain import Domain, Prepared


def prepare(scenario: ControlScenario) -> Prepared:
    """The scenario's environments, compiled or on the host, and the program over them."""
    from proxima.domains.control.environments import build

    return reinforcement.prepared(scenario, build(scenario), film=film_of)


def env_settings(env: Any) -> Mapping[str, Any]:
    """The section `env` of what a program gives as its environment."""
    from proxima.domains.control.environments import env_settings

    return env_settings(env)


DOMAIN = Domain(
    name="control",
    scenario=ControlScenario,
    checks=control_faults,
    prepare=prepare,
    overview=judging.overview,
    closing=judging.closing,
    page=page,
    backends=BACKENDS,
    networks={"mlp": "proxima.nets.actor_critic:NETWORK"},
    prepare_host=reinforcement.prepare_host,
    film=film_of,
    env_settings=env_settings,
)
