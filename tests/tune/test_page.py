"""The page of a search says what came out, of searches of every kind, and needs nothing from outside."""

import re

import pytest
import search_results as searches
from page_reader import read
from search_results import configuration, search

from proxima.tune.page import MOST_LISTED, search_page
from proxima.tune.results import Confirmed

ROOT = "logs/cartpole/searches/20261118-120000-beef"
EVIL = """<script>alert("x")</script> & 'so on' https://example.org"""
HALVING = searches.surface()
ONE = search([configuration(0, searches.OWN, 123.4)])
NO_VALUES = search([configuration(k, {"x": k}, None, state="done") for k in range(9)])
SEARCHES = {
    "halving": HALVING,
    "population": searches.population(),
    "broken": searches.all_broken(),
    "one": ONE,
    "none": search([]),
    "many settings": searches.many_settings(),
    "mixed choices": searches.mixed_choices(),
    "no values": NO_VALUES,
    "steps to a target": searches.surface(20)._replace(objective="steps_to_target"),
    "a table": searches.surface(20)._replace(space={}, own={}, method="table"),
    "another metric": searches.surface(20)._replace(metric="loss/value", direction="minimise"),
    "an unknown method": searches.surface(9)._replace(method="new", objective="median"),
}


def words_of(result, **options):
    return read(search_page(result, ROOT, **options)).words


def in_order(words, parts):
    """Whether all parts are there, one after the other."""
    start = 0
    for part in parts:
        assert part in words[start:], part
        start = words.index(part, start)


@pytest.mark.parametrize("kind", SEARCHES)
def test_every_search_has_a_page_that_needs_nothing_from_outside(kind):
    page = search_page(SEARCHES[kind], ROOT)
    reader = read(page)
    tried = len(SEARCHES[kind].configurations)
    assert f"{tried} configuration" in reader.words
    in_order(reader.words, ["Configurations", "How it was made", "Configurations tried", "proxima"])
    assert not re.search(r"(src|href|srcset)=\"(?!data:)", page) and "<script" not in page
    pictures = [attributes for name, attributes in reader.seen if name == "img"]
    assert all(len(attributes["alt"]) > 20 for attributes in pictures)
    assert " nan" not in reader.words and "None" not in reader.words


def test_a_page_says_everything_in_order():
    result = searches.surface()
    chosen = result.configurations[result.chosen]
    reader = read(search_page(result, ROOT, " --output elsewhere"))
    parts = [
        *("cartpole: search", "successive halving (ASHA)", "64 configurations tried", "4 settings"),
        *(f"Configuration {result.chosen} of 64 tried", "on 5 seeds the search had not seen"),
        *("the scenario's own settings", "probability of improvement 1.00"),
        *("the best of 64 is in part the luckiest", "better than what it earned on new seeds"),
        *("95 % interval", "Configurations that broke down", "The loss of 13 of 64"),
        *("Best settings, new seeds", "Better by", "13 broke down", "Best settings Setting"),
        f"algorithm.learning_rate {chosen.settings[searches.RATE]:.4g} 0.0003 log:1e-05:0.1",
        *("net.activation", "choice:tanh,relu,swish", "Progress", "What mattered"),
        *("stopped early with the value they had", "Each setting", "The same in numbers"),
        *(
            "Pairs of settings",
            "What pairs explain",
            "On new seeds",
            "seeds 100, 101, 102, 103, 104",
        ),
        *("To judge it", "scenario's own", "Configurations Value learning_rate epochs gamma"),
        *("By seed State Steps", str(result.chosen), "All 64 configurations", "broke down"),
        *(f"{ROOT}/configurations.parquet", "How it was made", "20261118-120000-beef"),
        *(
            "64: 21 done, 30 stopped early, 13 broke down",
            "final eval/return_mean; higher is better",
        ),
        *("2 for each configuration", "5,155,546", "321.5 s", "Programs compiled 1"),
        *("proxima tune --resume 20261118-120000-beef --output elsewhere",),
        *(f"proxima experiment --config {ROOT}/best.yaml", "proxima report 20261118-120000-beef"),
    ]
    in_order(reader.words, parts)
    assert sum(name == "img" for name, _ in reader.seen) == 5
    assert "Not confirmed" not in reader.words


def test_the_sentence_has_the_numbers_of_the_new_seeds():
    result = searches.surface()
    seeds = (1, 2, 3, 4, 5)
    test = (
        Confirmed(result.chosen, (497.0, 489.0, 500.0, 498.0, 496.0), seeds),
        Confirmed(None, (431.0, 400.0, 470.0, 498.0, 420.0), seeds),
    )
    words = words_of(result._replace(test=test)).replace("\u00a0", " ")
    assert f"Configuration {result.chosen} of 64 tried: 497 [489, 500] on 5 seeds" in words
    assert "the scenario's own settings 440.3 [400, 498]; probability of improvement 0.90." in words
    value = result.configurations[result.chosen].value
    assert f"was {value:.1f}, {497 - value:.1f} worse than what it earned on new seeds" in words


def test_a_search_that_was_not_confirmed_says_so():
    words = words_of(searches.one_setting(lambda a: a, count=12))
    assert "It was not confirmed." in words and "Only seeds that the search has not seen" in words
    assert "probability" not in words and "On new seeds" not in words


def test_one_configuration_is_not_the_best_of_several():
    words = words_of(ONE)
    assert "The only configuration tried has the value 123.4" in words
    assert "luckiest" not in words and "from 1 configuration; 8 are the least" in words


def test_where_all_broke_down_nothing_is_best():
    words = words_of(searches.all_broken())
    assert "all broke down, and none is best" in words
    assert "Not one of 9 configurations has a value: none is best." in words_of(NO_VALUES)
    assert "best.yaml" not in words and "Best settings" not in words and "Progress" not in words


def test_own_settings_that_broke_down():
    result = searches.surface()
    own = result.test[1]._replace(values=(None,) * 5)
    words = words_of(result._replace(test=(result.test[0], own)))
    assert "the scenario's own settings broke down." in words


def test_a_population_shows_who_copied_whom_and_last_settings():
    result = searches.population()
    reader = read(search_page(result, ROOT))
    in_order(reader.words, ["these are the last ones", "Population", "21 times a member went on"])
    assert "Settings changed in the course of training" in reader.words
    alt = " ".join(a["alt"] for name, a in reader.seen if name == "img")
    assert "coloured by algorithm.learning_rate" in alt and "ended in the best member" in alt
    last = [copy for copy in result.copies if copy.member == result.chosen][-1]
    first = result.configurations[result.chosen].settings[searches.RATE]
    shown = f"algorithm.learning_rate {last.settings[searches.RATE]:.4g}"
    assert shown in reader.words and f"learning_rate {first:.4g}" not in reader.words


def test_settings_of_a_table_are_counted_by_its_columns():
    assert "20 configurations tried · 4 settings ·" in words_of(SEARCHES["a table"])


def test_the_table_has_the_best_first_and_ends_somewhere():
    few = searches.one_setting(lambda a: a, count=10)
    reader = read(search_page(few, ROOT))
    order = sorted(few.configurations, key=lambda row: -row.value)
    in_order(reader.words[reader.words.index("Value a b") :], [f" {r.number} 0." for r in order])
    assert "All 10" not in reader.words
    rows = [configuration(k, {"x": k}, float(k)) for k in range(MOST_LISTED + 20)]
    page = search_page(search(rows, space={"x": "int:0:999"}), ROOT)
    assert f"The best {MOST_LISTED} of 520 configurations" in read(page).words
    assert page.count("<tr>") < MOST_LISTED + 60


def test_the_row_of_the_chosen_one_is_marked():
    page = search_page(HALVING, ROOT)
    assert page.count('<span class="chosen">22</span>') == 2  # of the first few, and of all


def test_what_users_wrote_is_text():
    rows = [configuration(k, {"x": EVIL if k % 2 else "b"}, float(k)) for k in range(12)]
    result = search(rows, scenario=EVIL, space={EVIL: "0:1", "x": "choice:b"}, own={"x": EVIL})
    page = search_page(result, EVIL, EVIL)
    assert "<script" not in page and EVIL in read(page).words
