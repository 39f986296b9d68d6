"""Bars for `proxima trade`, and its answers to them."""

import io
import json

import polars as pl


def as_csv(frame: pl.DataFrame) -> str:
    return frame.with_columns(pl.col("time").dt.strftime("%Y-%m-%dT%H:%M:%S")).write_csv()


def answers_to_bars(
    main, folder, monkeypatch, usual, run, *arguments, bars="", state="state", lines=None
):
    """Answers of `proxima trade` to a file, `usual` where none is named, or to lines of standard input."""
    if lines is not None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    file = "-" if lines is not None else bars or usual.format(run=run)
    given = ["--bars", file, "--state", str(folder / state)]
    done = main("trade", run, *given, "--json", *arguments)
    assert "Traceback" not in done.err
    return [json.loads(line) for line in done.out.splitlines()], done
