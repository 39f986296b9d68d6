"""Settings of environments, whoever makes them: unknown ones, and text where a number belongs."""

import pytest

from proxima import ProximaError, load
from proxima.domains.environments import check_params
from proxima.run.start import make_runnable

KNOWN = {"gravity": 9.8, "rows": 4, "mode": "rgb", "free": None}


def test_settings_as_they_should_be():
    check_params({"gravity": 3, "rows": 2.0, "mode": "ansi", "free": "text"}, KNOWN, "Moon-v0")


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"gravty": 1}, "env.params.gravty: Moon-v0 has no such setting; did you mean gravity?"),
        (
            {"gravity": "strong"},
            "env.params.gravity: expected a number, got 'strong'; Moon-v0 has 9.8 there",
        ),
        ({"rows": ""}, "env.params.rows: expected a number, got ''; Moon-v0 has 4 there"),
    ],
)
def test_settings_that_are_wrong(params, told):
    with pytest.raises(ProximaError) as caught:
        check_params(params, KNOWN, "Moon-v0")
    assert str(caught.value) == told


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("cartpole", "gravity"),
        ("binpack_ppo", "max_num_items"),
        ("maze_ppo", "time_limit"),
        ("cartpole_envpool", "frame_stack"),
    ],
)
def test_text_for_a_number_is_told_by_every_maker(name, key):
    with pytest.raises(ProximaError, match=rf"env\.params.*{key}"):
        make_runnable(load(name, {"env.params": {key: "many"}}))
