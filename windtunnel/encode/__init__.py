"""Raw rows to tensors: a block of floating-point numbers and one of int64 category ids. Vocabularies are data."""

from __future__ import annotations

from windtunnel.encode.category import CategoryColumn
from windtunnel.encode.encoder import Batch, RowEncoder
from windtunnel.encode.rows import Rows, as_column, as_frame, count_rows, objects
from windtunnel.encode.vocabulary import FIRST_ID, MISSING_ID, NONE, UNKNOWN_ID, Vocabulary, bucket_of, text_of

__all__ = [
    "FIRST_ID",
    "MISSING_ID",
    "NONE",
    "UNKNOWN_ID",
    "Batch",
    "CategoryColumn",
    "RowEncoder",
    "Rows",
    "Vocabulary",
    "as_column",
    "as_frame",
    "bucket_of",
    "count_rows",
    "objects",
    "text_of",
]
