"""What is to be seen of a trial's newest evaluation, in a small file for whoever looks on while it trains.

<trial>/[<stage>/]preview.json     replaced after evaluations, where the domain has something to show

Nobody goes on from it, and no result depends on it.
"""

import json
from pathlib import Path
from typing import Any

from proxima.files import replacing
from proxima.run.files import plain
from proxima.train.stage import Preview

NAME = "preview.json"


def write_preview(folder: Path, step: int, preview: Preview) -> None:
    """Replace the file; readers see the old or the new one whole."""
    content = {
        "step": step,
        "charts": [chart._asdict() for chart in preview.charts],
        "samples": list(preview.samples),
    }
    with replacing(folder / NAME, lasting=False) as fresh:
        fresh.write_text(json.dumps(plain(content), allow_nan=False))


def keep_preview_until(folder: Path, step: int) -> None:
    """Drop one of an evaluation after `step`: a resumed run makes it again."""
    path = folder / NAME
    try:
        content: Any = json.loads(path.read_bytes())
        is_kept = content["step"] <= step
    except FileNotFoundError:
        return
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        is_kept = False
    if not is_kept:
        path.unlink(missing_ok=True)
