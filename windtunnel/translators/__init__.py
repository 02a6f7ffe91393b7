"""Readers of fitted estimators, one file per family; this list is the table of contents."""

from windtunnel.translators import (
    category_encoders,
    encoders,
    estimators,
    hist_gradient_boosting,
    imputers,
    isolation_forest,
    lightgbm,
    linear,
    scalers,
    sklearn_trees,
    tree_committees,
)
from windtunnel.translators.registry import Encoding, Predictor, Recoding, read, supported, translates

__all__ = [
    "Encoding",
    "Predictor",
    "Recoding",
    "category_encoders",
    "encoders",
    "estimators",
    "hist_gradient_boosting",
    "imputers",
    "isolation_forest",
    "lightgbm",
    "linear",
    "read",
    "scalers",
    "sklearn_trees",
    "supported",
    "translates",
    "tree_committees",
]
