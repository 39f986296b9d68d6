"""Control: environments of Gymnax, Gymnasium and EnvPool, or the user's own."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proxima.domains import reinforcement
from proxima.domains.control.config import BACKENDS
from proxima.domains.control.page import page
from proxima.domains.control.scenario import ControlScenario, control_faults
from proxima.domains.domain import Domain, Prepared
from proxima.train.program import Recording


def prepare(scenario: ControlScenario) -> Prepared:
    """The scenario's environments, compiled or on the host, and the program over them."""
    from proxima.domains.control.environments import build

    return reinforcement.prepared(scenario, build(scenario), film=film_of)


def env_settings(env: Any) -> Mapping[str, Any]:
    """The section `env` of what a program gives as its environment."""
    from proxima.domains.control.environments import env_settings

    return env_settings(env)


def film_of(path: Path, env_name: str, recording: Recording) -> bool:
    """Draw an episode: from the environment's own pictures, or from its observations where we know how."""
    from proxima.domains.control import film
    from proxima.report.gif import write_gif

    if recording.frames:
        write_gif(path, recording.frames)
        return True
    if isinstance(recording.obs, dict) or not film.can_draw(env_name, recording.obs.shape[1:]):
        return False
    film.film(path, env_name, recording.obs, recording.actions, recording.rewards)
    return True


DOMAIN = Domain(
    name="control",
    scenario=ControlScenario,
    checks=control_faults,
    prepare=prepare,
    overview=reinforcement.overview,
    closing=reinforcement.closing,
    page=page,
    backends=BACKENDS,
    networks={"mlp": "proxima.nets.actor_critic:NETWORK"},
    prepare_host=reinforcement.prepare_host,
    film=film_of,
    env_settings=env_settings,
)
