"""Converters of fitted estimators, one file per family; each folder imports its families."""

from windtunnel.translators import (
    categories as categories,
    composites as composites,
    decomposition as decomposition,
    linear as linear,
    neighbours as neighbours,
    preprocessing as preprocessing,
    trees as trees,
)
from windtunnel.translators.conversions import (
    CategoryEncoding,
    CategoryRecoding,
    Composite,
    Part,
    Predictor,
    Selection,
    TokenCounts,
    Transformer,
)
from windtunnel.translators.registry import convert, supported, translates

__all__ = [
    "Composite",
    "CategoryEncoding",
    "Part",
    "Predictor",
    "CategoryRecoding",
    "Selection",
    "TokenCounts",
    "Transformer",
    "convert",
    "supported",
    "translates",
]
