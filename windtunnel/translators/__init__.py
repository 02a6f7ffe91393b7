"""Converters of fitted estimators, one file per family; each folder's list is the table of contents."""

from windtunnel.translators import (
    categories as categories,
    composites as composites,
    decomposition as decomposition,
    linear as linear,
    neighbours as neighbours,
    preprocessing as preprocessing,
    trees as trees,
)
from windtunnel.translators.registry import (
    Composite,
    Encoding,
    Part,
    Predictor,
    Recoding,
    Selection,
    Tokens,
    Transformer,
    read,
    supported,
    translates,
)

__all__ = [
    "Composite",
    "Encoding",
    "Part",
    "Predictor",
    "Recoding",
    "Selection",
    "Tokens",
    "Transformer",
    "read",
    "supported",
    "translates",
]
