"""The raw columns that a file reads, as numbers or as texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from windtunnel.encode import NONE_CATEGORY, CategoryColumn, RowEncoder


def raw_columns(encoder: RowEncoder) -> tuple[list[int], list[int]]:
    """The raw columns read as numbers and those read as texts; ``limits`` rejects columns that are both."""
    numbers, texts = encoder.columns_by_kind()
    return sorted(numbers), sorted(texts - numbers)


def names(encoder: RowEncoder, columns: Sequence[int]) -> list[str]:
    """Names of raw columns; the position of one that has no name."""
    return [encoder.names[column] if encoder.names else str(column) for column in columns]


def text_slots(encoder: RowEncoder) -> list[tuple[int, CategoryColumn]]:
    """The columns of ``ids`` that are looked up by text, with their position."""
    texts = set(raw_columns(encoder)[1])
    return [(slot, category) for slot, category in enumerate(encoder.categories) if category.column in texts]


def none_columns(encoder: RowEncoder) -> list[str]:
    """Names of the columns of texts where None is a category in every vocabulary, apart from NaN."""
    return _columns_where_all(encoder, lambda category: NONE_CATEGORY in category.vocabulary.values)


def told_by_text(encoder: RowEncoder) -> list[str]:
    """Names of the columns of texts where a whole number is the category of its text, in every vocabulary."""
    return _columns_where_all(encoder, lambda category: category.vocabulary.hashes is not None)


def _columns_where_all(encoder: RowEncoder, meets: Callable[[CategoryColumn], bool]) -> list[str]:
    categories = [category for _, category in text_slots(encoder)]
    others = {category.column for category in categories if not meets(category)}
    return names(encoder, sorted({category.column for category in categories} - others))
