"""Which raw columns a file is given, and as what."""

from __future__ import annotations

from collections.abc import Sequence

from windtunnel.encode import CategoryColumn, RowEncoder
from windtunnel.errors import UnfaithfulOption


def raw_columns(encoder: RowEncoder) -> tuple[list[int], list[int]]:
    """Tell the raw columns given as numbers from those given as texts; ``UnfaithfulOption`` where one is both."""
    numbers: set[int] = set(encoder.numbers)
    texts: set[int] = set()
    for category in encoder.categories:
        kind = category.vocabulary.kind
        if kind == "mixed":
            raise UnfaithfulOption(
                f"column {encoder.name(category.column)} has texts and numbers among its categories, which an exported "
                "file cannot take side by side; convert the column to text before fitting."
            )
        (numbers if kind == "number" else texts).add(category.column)
    if both := sorted(numbers & texts):
        # A vocabulary without values says nothing of its column.
        empty = {c.column for c in encoder.categories if c.vocabulary.kind == "empty"}
        if wrong := [encoder.name(column) for column in both if column not in empty]:
            raise UnfaithfulOption(
                f"columns {', '.join(wrong)} are read as text in one place and as numbers in another, which an "
                "exported file cannot take; give the pipeline two columns."
            )
    return sorted(numbers), sorted(texts - numbers)


def names(encoder: RowEncoder, columns: Sequence[int]) -> list[str]:
    """Names of raw columns; the position of one that has no name."""
    return [encoder.names[column] if encoder.names else str(column) for column in columns]


def text_slots(encoder: RowEncoder) -> list[tuple[int, CategoryColumn]]:
    """The columns of ``ids`` that are looked up by text, with their position."""
    texts = set(raw_columns(encoder)[1])
    return [(slot, one) for slot, one in enumerate(encoder.categories) if one.column in texts]
