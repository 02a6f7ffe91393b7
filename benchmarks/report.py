"""Numbers, tables and sections of the Markdown pages that benchmarks write."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean, stdev

from windtunnel.errors import BadInput


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean, and its standard error where there are two values or more."""
    error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    return fmean(values), error


def written(values: Sequence[float], *, sign: bool = False) -> str:
    """Mean and standard error as a table has them; a dash without values."""
    if not values:
        return "-"
    mean, error = mean_and_error(values)
    return f"{mean:{'+' if sign else ''}.4f}" + ("" if error is None else f" ± {error:.4f}")


def markdown(rows: Iterable[Sequence[str]]) -> str:
    """Rows of text, the first of them titles, as a Markdown table."""
    titles, *body = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([titles, "| --- " * (titles.count("|") - 1) + "|", *body])


def write_section(path: Path, begin: str, end: str, section: str) -> None:
    """Put a section between two lines of a Markdown file, at the end of a file without them, or in a new file.

    Raises
    ------
    BadInput
        If the file has one of the lines alone, several times, or in the other order.
    """
    text = path.read_text(encoding="utf-8") if path.is_file() else "# Accuracy\n"
    if begin not in text and end not in text:
        text = f"{text.rstrip()}\n\n{begin}\n{end}\n"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise BadInput(f"{path} has to have the lines {begin!r} and {end!r} once each, in order, or not at all")
    head, rest = text.split(begin)
    _, tail = rest.split(end)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{head}{begin}\n{section}\n{end}{tail}", encoding="utf-8")
