"""What a language scenario needs from outside before it can run: its texts, and a model to start from."""

from pathlib import Path

from proxima.domains.language.config import LanguageScenario

SMOLLM2 = Path("data/models/smollm2")


def obtain(scenario: LanguageScenario, root: Path = Path()) -> Path:
    """Writes the scenario's texts, and its model if we know where that comes from; where the texts are.

    What is there already stays: texts and weights do not change.
    """
    from proxima.domains.language.data import lexicon_path, movie_reviews_path, write_movie_reviews

    data = scenario.data
    path = Path(data.path) if data.path is not None else movie_reviews_path(root)
    wants_judge = scenario.evaluation.judge == "vader" and not lexicon_path(root).exists()
    if wants_judge or (data.source == "movie_reviews" and not path.exists()):
        write_movie_reviews(root)
    if scenario.model.path == str(SMOLLM2) and not (root / SMOLLM2 / "config.json").exists():
        from proxima.domains.language.gguf import import_smollm2

        import_smollm2(root / SMOLLM2)
    return path
