"""The names and the number of the columns that a pipeline was fitted on."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from windtunnel.encode import Rows, as_frame
from windtunnel.encode.rows import is_named
from windtunnel.errors import UnsupportedEstimator
from windtunnel.estimators.takes_sequence import leading_steps, takes_sequence

MEMBERS = ("best_estimator_", "estimator_", "regressor_", "estimators_", "calibrated_classifiers_")
"""Attributes in which estimators of scikit-learn hold what they are made of; one, or a list."""


def fitted_columns(pipeline: Any, sample: Rows | None = None) -> tuple[list[str] | None, int]:
    """Names (None if it was fitted on an array) and number of the columns that a pipeline was fitted on.

    A custom transformer as the first step may store neither; then the raw rows of ``sample`` tell.
    """
    if takes_sequence(pipeline):
        return None, 1
    first: Any = next(leading_steps(pipeline), None)
    if hasattr(first, "feature_name") and hasattr(first, "num_feature"):  # a raw booster
        names: Any = first.feature_name()
    else:
        names = getattr(first, "feature_names_in_", None)
    width = getattr(first, "n_features_in_", len(names) if names is not None else None)
    if (catboost := _catboost_in(first)) is not None:  # its n_features_in_ is 0 once it comes from a file
        first, names = catboost, catboost.feature_names_
        width = len(names)
    if width is None and sample is not None and hasattr(first, "transform"):
        frame = as_frame(sample)
        return ([str(name) for name in frame.columns] if is_named(sample) else None), frame.shape[1]
    if width is None:
        raise UnsupportedEstimator(
            f"{type(first or pipeline).__name__} does not tell how many columns it was fitted on (n_features_in_); "
            "fit it, or put a step that does in front, such as a ColumnTransformer; of a custom transformer, give a "
            "few raw rows as calibrate=."
        )
    return (None if names is None or _are_invented(names, first) else [str(name) for name in names]), int(width)


def _catboost_in(first: Any) -> Any:
    """A fitted CatBoost model, also inside of estimators of scikit-learn, which leave names of columns to it."""
    if hasattr(first, "tree_count_"):
        return first if first.is_fitted() else None
    selects = hasattr(first, "ranking_")  # RFE and RFECV fit the model that they hold on some of the columns
    if not type(first).__module__.startswith("sklearn.") or hasattr(first, "feature_names_in_") or selects:
        return None
    inner = next((getattr(first, name) for name in MEMBERS if hasattr(first, name)), None)
    if isinstance(inner, list):
        inner = inner[0] if inner else None
    return _catboost_in(getattr(inner, "estimator", inner))


def _are_invented(names: Any, fitted: Any) -> bool:
    """Whether a library made up the names of an array's columns; rows are then taken by position.

    LightGBM takes all rows by position, whatever their names are.
    """
    library = type(fitted).__module__.partition(".")[0]
    if library == "lightgbm":
        return all(str(name) in (f"Column_{position}", str(position)) for position, name in enumerate(names))
    if library == "catboost":
        return [*names] == [*map(str, range(len(names)))] and not _has_feature_ids(fitted)
    return [*names] == [*range(len(names))]


def _has_feature_ids(fitted: Any) -> bool:
    """Whether a CatBoost model stores names of its columns: those of a DataFrame, which may be numbers too."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        fitted.save_model(str(path), format="json")
        features: dict[str, Any] = json.loads(path.read_text())["features_info"]
    kinds = (features.get(f"{kind}_features", []) for kind in ("float", "categorical", "text", "embedding"))
    return any(feature["feature_id"] for kind in kinds for feature in kind)
