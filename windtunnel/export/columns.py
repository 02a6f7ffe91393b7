"""Which raw columns a file is given, and as what."""

from __future__ import annotations

from collections.abc import Sequence

from windtunnel.encode import NONE_CATEGORY, CategoryColumn, RowEncoder


def raw_columns(encoder: RowEncoder) -> tuple[list[int], list[int]]:
    """Tell the raw columns given as numbers from those given as texts; ``limits`` rejects those that are both."""
    numbers, texts = encoder.columns_by_kind()
    return sorted(numbers), sorted(texts - numbers)


def names(encoder: RowEncoder, columns: Sequence[int]) -> list[str]:
    """Names of raw columns; the position of one that has no name."""
    return [encoder.names[column] if encoder.names else str(column) for column in columns]


def text_slots(encoder: RowEncoder) -> list[tuple[int, CategoryColumn]]:
    """The columns of ``ids`` that are looked up by text, with their position."""
    texts = set(raw_columns(encoder)[1])
    return [(slot, one) for slot, one in enumerate(encoder.categories) if one.column in texts]


def none_columns(encoder: RowEncoder) -> list[str]:
    """Names of the columns of texts where None is a category of its own, told from NaN by all that read them."""
    slots = text_slots(encoder)
    plain = {one.column for _, one in slots if NONE_CATEGORY not in one.vocabulary.values}
    return names(encoder, sorted({one.column for _, one in slots} - plain))


def told_by_text(encoder: RowEncoder) -> list[str]:
    """Names of the columns of texts whose categories are told by their text alone, so that whole numbers are texts."""
    slots = text_slots(encoder)
    others = {one.column for _, one in slots if one.vocabulary.hashes is None}
    return names(encoder, sorted({one.column for _, one in slots} - others))
