"""scikit-learn's MissingIndicator."""

from __future__ import annotations

from numbers import Real

import numpy as np
import pandas as pd
from sklearn.impute import MissingIndicator

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.imputers.imputer import MissingFlags
from windtunnel.translators.arrays import indices
from windtunnel.translators.conversions import CategoryEncoding
from windtunnel.translators.preprocessing.nearest_imputer import missing_marker
from windtunnel.translators.registry import translates


@translates(MissingIndicator, differentiable=False, notes="of numbers, and of text that one text stands for as missing")
def missing_indicator(fitted: MissingIndicator) -> MissingFlags | CategoryEncoding:
    """1 where x is missing_values, else 0. Reads features_, missing_values, features and error_on_new."""
    mark = fitted.missing_values
    if fitted._precomputed:
        raise UnsupportedEstimator(
            "MissingIndicator was fitted on a mask (precomputed=True), not on rows; fit it on the rows themselves"
        )
    never = np.setdiff1d(np.arange(fitted.n_features_in_), fitted.features_)
    strict = fitted.features == "missing-only" and fitted.error_on_new
    if isinstance(mark, str) or mark is None:
        if strict and len(never):
            raise UnsupportedEstimator(
                f"MissingIndicator rejects missing texts in its columns {never.tolist()}, in which it was fitted on "
                "none; set error_on_new=False or features='all'"
            )
        return CategoryEncoding([[mark]] * fitted.n_features_in_, trainable=False)
    if not (pd.isna(mark) or isinstance(mark, Real)):
        raise UnsupportedEstimator(f"MissingIndicator flags {mark!r}; NaN, None, a number or a text can be translated")
    return MissingFlags(missing_marker(fitted), indices(fitted.features_), indices(never if strict else []))
