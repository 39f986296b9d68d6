"""Rated movie reviews and the sentiment lexicon, from the source distribution of vaderSentiment 3.3.2.

    vaderSentiment-3.3.2.tar.gz (PyPI, MIT)
      additional_resources/hutto_ICWSM_2014.tar.gz
        movieReviewSnippets_GroundTruth.txt    id ⇥ mean rating of about 20 people, −4 .. 4 ⇥ text
      vaderSentiment/vader_lexicon.txt         token ⇥ mean valence ⇥ deviation ⇥ ratings

pip obtains it, with whatever index, mirror or proxy it is set up for; nothing of it is installed and
nothing is kept but the rows. Hutto & Gilbert 2014, "VADER: a parsimonious rule-based model for sentiment
analysis of social media text", ICWSM; the snippets are Pang & Lee's of rottentomatoes.com.
"""

import io
import tarfile
import tempfile
from pathlib import Path

from proxima.core.errors import ProximaError
from proxima.domains.language.hub import pip_download

PACKAGE = "vaderSentiment==3.3.2"
ARCHIVE = "vaderSentiment-3.3.2.tar.gz"
INNER = "vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz"
REVIEWS = "hutto_ICWSM_2014/movieReviewSnippets_GroundTruth.txt"
LEXICON = "vaderSentiment-3.3.2/vaderSentiment/vader_lexicon.txt"
BY_HAND = (
    f"where there is a connection, `pip download {PACKAGE} --no-deps --no-binary vaderSentiment`, copy "
    f"{ARCHIVE} to a folder here and set PIP_FIND_LINKS to that folder"
)


def obtain_archive() -> bytes:
    """The source distribution, as pip finds it."""
    with tempfile.TemporaryDirectory() as folder:
        options = ("--no-binary", "vaderSentiment")
        return pip_download(PACKAGE, Path(folder), BY_HAND, *options).read_bytes()


def read_archive(archive: bytes) -> tuple[list[tuple[str, float]], dict[str, float]]:
    """The reviews and the lexicon in a source distribution."""
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as outer:
            lexicon, inner = _member(outer, LEXICON), _member(outer, INNER)
        with tarfile.open(fileobj=io.BytesIO(inner)) as folder:
            reviews = _member(folder, REVIEWS)
    except (tarfile.TarError, KeyError, EOFError, OSError) as failure:
        raise ProximaError(f"{ARCHIVE}: is not as expected ({failure}); {BY_HAND}") from failure
    return read_reviews(reviews), read_lexicon(lexicon)


def read_reviews(content: bytes) -> list[tuple[str, float]]:
    """Texts and ratings, in the order of the file; one that is not id, number and text is an error."""
    reviews = []
    for row, line in enumerate(content.splitlines(), start=1):
        where = f"{REVIEWS}: row {row}"
        try:  # Latin-1 as the file is, but for the few rows that are UTF-8
            cells = line.decode("utf-8").split("\t")
        except UnicodeDecodeError:
            cells = line.decode("latin-1").split("\t")
        if len(cells) != 3:
            raise ProximaError(f"{where}: {len(cells)} columns, expected id, rating and text")
        rating, text = _number(cells[1], f"{where}, column rating"), " ".join(cells[2].split())
        if not text:
            raise ProximaError(f"{where}, column text: is empty")
        reviews.append((text, rating))
    return reviews


def read_lexicon(content: bytes) -> dict[str, float]:
    """Tokens and their mean valences, −4 .. 4."""
    lexicon = {}
    for row, line in enumerate(content.decode("utf-8").splitlines(), start=1):
        cells = line.strip().split("\t")
        if len(cells) < 2:
            raise ProximaError(f"{LEXICON}: row {row}: expected token and valence")
        lexicon[cells[0]] = _number(cells[1], f"{LEXICON}: row {row}, column valence")
    return lexicon


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    if file is None:
        raise KeyError(f"{name} is no file")
    return file.read()


def _number(text: str, where: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ProximaError(f"{where}: expected a number, got {text!r}") from None
