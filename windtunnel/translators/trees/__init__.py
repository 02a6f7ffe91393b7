"""Converters of tree ensembles."""

from importlib.util import find_spec

from windtunnel.translators.trees import (
    hist_gradient_boosting as hist_gradient_boosting,
    isolation_forest as isolation_forest,
    leaf_encoder as leaf_encoder,
    lightgbm as lightgbm,
    sklearn_trees as sklearn_trees,
)

# Optional libraries: a converter is registered where its library is installed.
if find_spec("catboost") is not None:
    from windtunnel.translators.trees import catboost as catboost
if find_spec("xgboost") is not None:
    from windtunnel.translators.trees import xgboost as xgboost
