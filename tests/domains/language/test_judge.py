"""The judge: its formula against a slow loop, its independence of the reward, and errors in words."""

import math

import numpy as np
import pytest

from proxima.core.errors import ProximaError
from proxima.core.functions import function_at
from proxima.domains.language.data import lexicon_path
from proxima.domains.language.judge import judge, valence
from proxima.domains.language.positive import NEGATIVE, POSITIVE, positive_words
from proxima.domains.language.tables import write_columns

LEXICON = {"good": 1.9, "fine": 0.8, "dull": -1.7, ":)": 2.0}


def test_the_score_is_the_normalised_sum():
    assert valence("A GOOD, fine film .", LEXICON) == pytest.approx(2.7 / math.sqrt(2.7**2 + 15))
    assert valence("so dull :)", LEXICON) == pytest.approx(0.3 / math.sqrt(0.3**2 + 15))
    assert valence("a film", LEXICON) == valence("", LEXICON) == 0.0
    assert -1 < valence("dull " * 100, LEXICON) < -0.99


@pytest.mark.parametrize(
    "words", ["not good", "isn't very good", "isn’t good", "never a very good"]
)
def test_a_negation_turns_the_next_three_words(words):
    turned = -0.74 * 1.9
    assert valence(words, LEXICON) == pytest.approx(turned / math.sqrt(turned**2 + 15))
    assert valence("not one of those good", LEXICON) > 0


def test_vader_is_read_from_the_lexicon_file(workdir):
    write_columns({"token": list(LEXICON), "valence": list(LEXICON.values())}, lexicon_path())
    scores = judge("vader")(["good", "dull", "film"])
    assert scores.dtype == np.float64 and scores[0] > 0 > scores[1] and scores[2] == 0


def test_no_judge_and_no_lexicon(workdir):
    assert judge(None) is None
    with pytest.raises(ProximaError, match=r"vader_lexicon.parquet: no such file.*generate-data"):
        judge("vader")


def test_a_function_of_ones_own_may_judge():
    assert judge("texts.lengths")(["a", "bcd"]).tolist() == [1.0, 3.0]
    assert judge("texts:lengths")([]).tolist() == []
    for name, words in (
        ("short", "returned 1 numbers for 2 texts"),
        ("not_numbers", "row 0: returned nan for 'a'"),
        ("raises", r"texts\.raises, row 0 \('a'\): raised KeyError"),
    ):
        with pytest.raises(ProximaError, match=words):
            judge(f"texts.{name}")(["a", "b"])


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("lengths", "is not a dotted path"),
        ("no_such_module.f", "cannot import no_such_module"),
        ("texts.nothing", "has no function nothing"),
        ("texts.GOOD", "has no function GOOD"),
    ],
)
def test_paths_that_lead_nowhere(path, words):
    with pytest.raises(ProximaError, match=f"reward.function: .*{words}"):
        function_at(path, "reward.function")


def test_positive_words_count_once_and_stay_within_one():
    scores = positive_words(
        ["p"] * 4, ["Happy happy, happy!", "happy and glad", "a sad day", "a day"]
    )
    np.testing.assert_allclose(scores, [math.tanh(0.5), math.tanh(1), -math.tanh(0.5), 0.0])
    assert positive_words(["sad"], ["wonderful"])[0] > 0
    assert not POSITIVE & NEGATIVE
    assert all(-1 < each < 1 for each in positive_words([""], [" ".join(POSITIVE)[:200]]))
