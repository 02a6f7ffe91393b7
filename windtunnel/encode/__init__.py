"""Raw rows to tensors: a block of floating-point numbers and one of int64 category ids. Vocabularies are data."""

from __future__ import annotations

from windtunnel.encode.batch import Batch
from windtunnel.encode.category import CategoryColumn
from windtunnel.encode.encoder import RowEncoder
from windtunnel.encode.rows import Rows, as_column, as_frame, count_rows, indexable, is_named
from windtunnel.encode.vocabulary import (
    FIRST_ID,
    MISSING_ID,
    NONE_CATEGORY,
    UNKNOWN_ID,
    Vocabulary,
    category_text,
    hash_bucket,
)

__all__ = [
    "FIRST_ID",
    "MISSING_ID",
    "NONE_CATEGORY",
    "UNKNOWN_ID",
    "Batch",
    "CategoryColumn",
    "RowEncoder",
    "Rows",
    "Vocabulary",
    "as_column",
    "as_frame",
    "hash_bucket",
    "count_rows",
    "indexable",
    "is_named",
    "category_text",
]
