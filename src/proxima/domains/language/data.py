"""Tables of texts: rated movie reviews or a file of the user's own, divided, and made into prompts.

    text (, rating)               imitated by sft; pairs for the reward model come of the ratings
    prompt, chosen, rejected      preferences; sft imitates what was chosen
    prompt                        prompts alone

A row is held out or trained on by a hash of its prompt, or of its text: the same for every trial, whatever
else is in the file, and rows with the same prompt stay on one side. Left out on purpose: streaming; a
table fits memory.
"""

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from proxima.core.errors import ProximaError
from proxima.domains.language import tables
from proxima.domains.language.config import TextDataConfig
from proxima.domains.language.movie_reviews import obtain_archive, read_archive
from proxima.domains.language.tables import Table
from proxima.domains.language.tokenizer import Tokenizer

FOLDER = Path("data") / "raw" / "language"
SLOT = "{text}"
# What templates that ask for the date are told in runs: today's would make tomorrow's run another one.
DAY = datetime(2024, 7, 26)  # what Llama 3's template takes where nobody tells it


class Answer(NamedTuple):
    """What follows a prompt, as ids after the prompt's."""

    ids: list[int]  # of both, without EOS
    given: int  # how many of them are the prompt's; at least the first, which nothing comes before


class Texts(NamedTuple):
    """What the stages train on and what they are measured on."""

    train: Table
    held_out: Table
    source: str
    sha256: str  # of what was read, so that a run is resumed on the same


def movie_reviews_path(root: str | Path = ".") -> Path:
    """Where the rated movie reviews are."""
    return Path(root) / FOLDER / "movie_reviews.parquet"


def lexicon_path(root: str | Path = ".") -> Path:
    """Where the judge's lexicon is."""
    return Path(root) / FOLDER / "vader_lexicon.parquet"


def write_movie_reviews(
    root: str | Path = ".", obtain: Callable[[], bytes] = obtain_archive
) -> Path:
    """Obtains the reviews and the lexicon beside them, and writes each whole or not at all."""
    reviews, lexicon = read_archive(obtain())
    path = movie_reviews_path(root)
    words, valences = list(lexicon), list(lexicon.values())
    tables.write_columns({"token": words, "valence": valences}, lexicon_path(root))
    texts, ratings = [text for text, _ in reviews], [rating for _, rating in reviews]
    tables.write_columns({"text": texts, "rating": ratings}, path)
    return path


def read_lexicon(root: str | Path = ".") -> dict[str, float]:
    """Valences by token, as `write_movie_reviews` wrote them."""
    path = lexicon_path(root)
    if not path.exists():
        raise ProximaError(
            f"{path}: no such file, and the judge vader needs it; write it with "
            "`proxima generate-data --scenario movie_critic`, or set evaluation.judge: null"
        )
    columns = tables.read_columns(path, ("token", "valence"))
    lexicon = dict(zip(columns.get("token", []), columns.get("valence", []), strict=False))
    if not lexicon or not all(
        isinstance(token, str) and isinstance(valence, float) and math.isfinite(valence)
        for token, valence in lexicon.items()
    ):
        raise ProximaError(
            f"{path}: is not the judge's lexicon, tokens and their valences; remove it, and write it again "
            "with `proxima generate-data --scenario movie_critic`"
        )
    return lexicon


def read_texts(config: TextDataConfig, name: str, root: str | Path = ".") -> Texts:
    """The config's table, checked row by row and divided; `name` is the scenario's, for messages."""
    if config.source == "file":
        if config.path is None:
            raise ProximaError(f"data.path: null; name the file with {tables.COLUMNS_WANTED}")
        path = Path(config.path)
        missing = f"{path}: no such file; data.path is relative to the working directory"
    else:
        path = movie_reviews_path(root)
        missing = (
            f"{path}: no such file; write it with `proxima generate-data --scenario {name}`, or run "
            "the experiment with --generate-data"
        )
    if not path.exists():
        raise ProximaError(missing)
    table = tables.read_table(path)
    train, held_out = divided(table, config.held_out, config.seed, str(path))
    sha256 = hashlib.sha256("".join(map(json.dumps, table[1:])).encode()).hexdigest()
    return Texts(train, held_out, str(path), sha256)


def divided(table: Table, share: float, seed: int, source: str) -> tuple[Table, Table]:
    """Training and held-out rows, `share` of them held out; rows with the same key stay together."""
    keys = table.prompt or table.text or table.chosen or []
    ranks = [hashlib.blake2b(f"{seed}\0{key}".encode(), digest_size=8).digest() for key in keys]
    count = min(max(1, round(share * len(ranks))), len(ranks))
    last = sorted(ranks)[count - 1]
    held_out = [i for i, rank in enumerate(ranks) if rank <= last]
    train = [i for i, rank in enumerate(ranks) if rank > last]
    if not train:
        raise ProximaError(
            f"{source}: its {len(ranks)} rows, {len(set(ranks))} different, cannot be divided into "
            "training and held-out ones; bring more, or a smaller data.held_out"
        )
    return _taken(table, train), _taken(table, held_out)


def imitated(config: TextDataConfig, table: Table, tokenizer: Tokenizer) -> list[list[int]]:
    """The ids of what sft imitates, without EOS: the texts, or prompts with what was chosen."""
    if table.text is not None:
        return tokenizer.encode(table.text)
    if table.chosen is None:
        raise ProximaError(
            "data: sft needs a column text, or prompt and chosen; bring one, or leave sft out"
        )
    return _continued(config, table, table.chosen, tokenizer)


def preferred(
    config: TextDataConfig, table: Table, tokenizer: Tokenizer
) -> tuple[list[list[int]], list[list[int]]]:
    """The ids of chosen and of rejected texts, with their prompts, without EOS."""
    if table.chosen is None or table.rejected is None:
        raise ProximaError(
            "data: the reward model needs columns text and rating, or prompt, chosen and rejected"
        )
    chosen = _continued(config, table, table.chosen, tokenizer)
    return chosen, _continued(config, table, table.rejected, tokenizer)


def answers_of(
    config: TextDataConfig, table: Table, answers: Sequence[str], tokenizer: Tokenizer
) -> list[Answer]:
    """The table's texts as answers to its prompts; where it has none, to the beginning of a text alone.

    A prompt's ids are those that it is asked with. Where they do not begin the ids of prompt and answer
    together, because a token reaches over the border, the answer is encoded by itself.
    """
    wholes = tokenizer.encode(answers)
    if table.prompt is None:
        return [Answer(ids, 1) for ids in wholes]
    worded_prompts = worded(config, table.prompt, tokenizer)
    together = tokenizer.encode([a + b for a, b in zip(worded_prompts, answers, strict=True)])
    rows = zip(tokenizer.encode(worded_prompts), together, wholes, strict=True)
    return [_answer(*row, tokenizer.bos_id) for row in rows]


def _answer(prompt: list[int], together: list[int], alone: list[int], bos_id: int | None) -> Answer:
    if together[: len(prompt)] == prompt:
        return Answer(together, len(prompt))
    return Answer([*prompt, *(alone[1:] if alone[:1] == [bos_id] else alone)], len(prompt))


def prompts_of(
    config: TextDataConfig,
    texts: Texts,
    tokenizer: Tokenizer,
    context: int,
    new_tokens: int,
    section: str = "ppo",
) -> tuple[list[list[int]], list[list[int]]]:
    """Training and held-out prompts as ids, each short enough for `new_tokens` to follow it.

    Without a column of prompts they are the beginnings of texts; texts no longer than that have none.
    `section` is where a scenario sets new_tokens, for messages.
    """
    room = context - new_tokens
    if room < 1:
        raise ProximaError(
            f"{section}.new_tokens: {new_tokens} leaves no room for a prompt in the model's context of "
            f"{context}"
        )

    def checked(table: Table, kind: str) -> list[list[int]]:
        rows, prompts = _prompt_ids(config, table, tokenizer)
        if not prompts:
            raise ProximaError(
                f"{texts.source}: no {kind} text is longer than data.prompt_tokens "
                f"({config.prompt_tokens}), so there are no prompts; set fewer"
            )
        for row, ids in zip(rows, prompts, strict=True):
            if not 0 < len(ids) <= room:
                raise ProximaError(
                    f"{texts.source}: row {row}: a prompt of {len(ids)} tokens, and the model's context "
                    f"of {context} leaves room for 1 to {room} before {new_tokens} new ones; change the "
                    f"row, data.prompt_tokens or {section}.new_tokens"
                )
        return prompts

    return checked(texts.train, "training"), checked(texts.held_out, "held-out")


def worded(config: TextDataConfig, prompts: Sequence[str], tokenizer: Tokenizer) -> list[str]:
    """Prompts as the model reads them: in the template, and as the user's turn with chat."""
    template = config.prompt_template
    if template is not None and SLOT not in template:
        raise ProximaError(
            f"data.prompt_template: {template!r} has no {SLOT} where the prompt goes"
        )
    texts = [text if template is None else template.replace(SLOT, text) for text in prompts]
    if not config.chat:
        return texts
    return [tokenizer.chat([{"role": "user", "content": text}], now=DAY) for text in texts]


def _prompt_ids(
    config: TextDataConfig, table: Table, tokenizer: Tokenizer
) -> tuple[list[int], list[list[int]]]:
    """The numbers of the rows that have a prompt, and the prompts."""
    if table.prompt is not None:
        return table.rows, tokenizer.encode(worded(config, table.prompt, tokenizer))
    if table.text is None:
        raise ProximaError("data: prompts need a column prompt or text")
    encoded = tokenizer.encode(table.text)
    rows, prompts = [], []
    for row, ids in zip(table.rows, encoded, strict=True):
        # a BOS is no token of the text
        end = config.prompt_tokens + int(ids[:1] == [tokenizer.bos_id])
        if len(ids) > end:
            rows.append(row)
            prompts.append(ids[:end])
    if config.prompt_template is not None or config.chat:
        beginnings = [tokenizer.decode(ids) for ids in prompts]
        prompts = tokenizer.encode(worded(config, beginnings, tokenizer))
    return rows, prompts


def _continued(
    config: TextDataConfig, table: Table, answers: list[str], tokenizer: Tokenizer
) -> list[list[int]]:
    if table.prompt is None:
        return tokenizer.encode(answers)
    prompts = worded(config, table.prompt, tokenizer)
    return tokenizer.encode([a + b for a, b in zip(prompts, answers, strict=True)])


def _taken(table: Table, rows: Sequence[int]) -> Table:
    columns = [None if column is None else [column[i] for i in rows] for column in table]
    return Table(*columns)  # type: ignore[arg-type]
