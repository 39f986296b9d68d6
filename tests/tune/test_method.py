"""Every method can be brought back to any of its states, and goes on from there as if nothing had been."""

import json
import typing

import pytest
from searches import SPACE, allowed, by_share, in_training, whole_config, whole_search

from proxima.core.errors import ProximaError
from proxima.scenario.search import SearchConfig
from proxima.tune.method import Order, Outcome, replay
from proxima.tune.methods import METHODS, make_method


@pytest.fixture
def config_of(tmp_path):
    """The config of a small search by a method."""
    path = tmp_path / "table.csv"
    path.write_text("algorithm.rate,train.num_envs\n" + "1e-4,2\n3e-4,4\n" * 6)

    def make(method, **changes):
        table = str(path) if method == "table" else None
        return whole_config(method=method, path=table, points=2, **changes)

    return make


def at_cut(config, events, cut, settings, check=by_share):
    """A new method in the state after so many events, of what a checkpoint holds."""
    kept = json.loads(json.dumps([dict(each) for each in settings]))
    method = make_method(config, SPACE, check, kept)
    replay(method, events[:cut])
    return method


def settings_along(config, events):
    """The settings that were drawn when so many events had happened."""
    method = make_method(config, SPACE, by_share)
    yield list(method.settings)
    for event in events:
        replay(method, [event])
        yield list(method.settings)


@pytest.mark.parametrize("name", METHODS)
def test_a_search_goes_on_alike_from_every_cut(config_of, name):
    config = config_of(name)
    whole = make_method(config, SPACE, by_share)
    events = whole_search(whole, seed=3)
    assert len(events) >= 2 * len(whole.settings) >= 12
    for cut, settings in enumerate(settings_along(config, events)):
        method = at_cut(config, events, cut, settings)
        assert method.settings == settings
        assert whole_search(method, 3, events[:cut]) == events
        assert method.settings == whole.settings and method.wanted() == whole.wanted()


@pytest.mark.parametrize("name", METHODS)
def test_values_alone_say_which_orders_were_handed_out(config_of, name):
    config = config_of(name)
    events = whole_search(make_method(config, SPACE, by_share), seed=4)
    for cut in range(0, len(events), 3):
        if in_training(events[:cut]):
            continue  # of these only the orders tell
        method = make_method(config, SPACE, by_share)
        replay(method, [event for event in events[:cut] if isinstance(event, Outcome)])
        assert whole_search(method, 4, events[:cut]) == events


@pytest.mark.parametrize("name", METHODS)
def test_asking_for_what_does_not_fit_changes_nothing(config_of, name):
    config = config_of(name)
    events = whole_search(make_method(config, SPACE, by_share), seed=5)
    method = make_method(config, SPACE, by_share)
    for event in events:
        before = list(method.settings), method.wanted()
        assert method.next(lambda number: False) is None
        assert (method.settings, method.wanted()) == before
        replay(method, [event])


@pytest.mark.parametrize("name", [name for name in METHODS if name != "cma-es"])
def test_what_was_drawn_is_taken_as_it_is(config_of, name):
    """A resumed search neither draws nor checks again, and does not read a table that may have changed."""
    config = config_of(name)
    whole = make_method(config, SPACE, by_share)
    events = whole_search(whole, seed=6)

    def never(settings):
        raise AssertionError("checked again")

    method = at_cut(config, events, len(events), whole.settings, never)
    assert method.settings == whole.settings


def test_seeds_decide(config_of):
    for name in ("random", "sobol", "asha", "tpe", "cma-es"):
        first, same, other = (
            make_method(config_of(name, seed=seed), SPACE, allowed).settings for seed in (1, 1, 2)
        )
        assert first == same and first[0] != other[0], name


def test_random_search_and_asha_draw_the_same(config_of):
    drawn = [make_method(config_of(name), SPACE, by_share).settings for name in ("random", "asha")]
    assert drawn[0] == drawn[1]


def test_another_order_than_the_recorded_one_is_refused():
    config = whole_config(method="asha")
    with pytest.raises(ProximaError, match=r"evaluation 0 to 2, and .* configuration 0 .* 0 to 1;"):
        replay(make_method(config, SPACE, allowed), [Order(0, 0, 2)])
    with pytest.raises(ProximaError, match=r"configuration 99 .* orders nothing; go on with"):
        replay(make_method(config, SPACE, allowed), [Order(99, 0, 1)])


def test_every_name_of_the_config_is_in_the_table():
    names = typing.get_args(typing.get_type_hints(SearchConfig)["method"])
    assert set(names) == {*METHODS, "pbt", "auto"}


def test_an_empty_space_is_refused():
    with pytest.raises(ProximaError, match=r"search\.space: is empty"):
        make_method(whole_config(method="random"), {}, allowed)
