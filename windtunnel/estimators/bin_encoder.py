"""Bins numbers and encodes the bins as categories."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted, validate_data

from windtunnel.errors import BadInput, InvalidOption, is_whole_number
from windtunnel.estimators.two_hot import TwoHotEncoder

MISSING = "missing"
"""The category of a missing number; the category of a bin is its position as text."""


class BinEncoder(TransformerMixin, BaseEstimator):
    """Put each number into one of about equally full bins, and encode the bins as categories.

        bin_j(x) = number of the edges e of column j with e <= x,    y = encoder(bin_1(x_1), ..., bin_n(x_n))

    The edges of a column are its quantiles i / n_bins, i = 1 .. n_bins - 1, each a number of the column. Equal edges
    count once, and no bin is empty. Missing numbers (NaN) are a further category.

    ``fit_transform`` calls the encoder's ``fit_transform``, so that a cross-fitting encoder such as scikit-learn's
    ``TargetEncoder`` cross-fits here too.

    Parameters
    ----------
    encoder : encoder of categories, default None
        Fitted on a DataFrame of texts, a column for each column of numbers; None is ``TwoHotEncoder()``.
    n_bins : int, default 32
        Largest number of bins per column, at least 2.

    Attributes
    ----------
    encoder_ : fitted encoder
    bin_edges_ : list of float64 arrays
        The inner edges of each column, ascending; none where all its numbers are equal or missing.
    n_features_in_, feature_names_in_
        As usual.

    Examples
    --------
    >>> import numpy as np
    >>> encoder = BinEncoder(n_bins=4).fit(np.array([[1.0], [2.0], [3.0], [4.0]]))
    >>> encoder.bin_edges_[0].tolist(), encoder.transform([[2.5], [9.0]]).tolist()
    ([2.0, 3.0], [[1.0, 0.0, 0.0, 1.0], [0.0, 1.0, 1.0, 0.0]])
    """

    def __init__(self, encoder: Any = None, *, n_bins: int = 32) -> None:
        self.encoder = encoder
        self.n_bins = n_bins

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the edges from numbers [rows, columns], and fit the encoder on their bins and ``y``."""
        frame = self._learn(X)
        self.encoder_.fit(frame, y)
        return self

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> NDArray[np.float64]:
        """Fit, and return the output of the encoder's ``fit_transform``."""
        if fit_params:
            raise BadInput(f"fit_transform got {', '.join(fit_params)}; it takes X and y only")
        frame = self._learn(X)
        return _dense(self.encoder_.fit_transform(frame, y))

    def transform(self, X: Any) -> NDArray[np.float64]:
        """The encoded bins of numbers [rows, columns], float64."""
        check_is_fitted(self)
        return _dense(self.encoder_.transform(self._bins(self._numbers(X, fitting=False))))

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Names of the output columns, from the encoder."""
        check_is_fitted(self)
        names: NDArray[np.object_] = self.encoder_.get_feature_names_out(_check_feature_names_in(self, input_features))
        return names

    def categories(self, column: int) -> list[str]:
        """The categories of a column's bins, in order, as the encoder gets them."""
        return [f"{at:0{self.digits_}d}" for at in range(len(self.bin_edges_[column]) + 1)]

    def _learn(self, X: Any) -> pd.DataFrame:
        if not is_whole_number(self.n_bins, 2):
            raise InvalidOption(f"n_bins={self.n_bins!r}; give a whole number from 2 up")
        numbers, self.digits_ = self._numbers(X, fitting=True), _digits(self.n_bins)
        self.bin_edges_: list[NDArray[np.float64]] = [_edges(column, int(self.n_bins)) for column in numbers.T]
        self.encoder_: Any = TwoHotEncoder() if self.encoder is None else clone(self.encoder)
        return self._bins(numbers)

    def _numbers(self, X: Any, *, fitting: bool) -> NDArray[np.float64]:
        numbers: NDArray[np.float64] = validate_data(
            self, X, dtype=np.float64, ensure_all_finite="allow-nan", reset=fitting
        )
        return numbers

    def _bins(self, numbers: NDArray[np.float64]) -> pd.DataFrame:
        names = _check_feature_names_in(self)
        columns = {}
        for at, (name, edges) in enumerate(zip(names, self.bin_edges_, strict=True)):
            categories = np.array([*self.categories(at), MISSING], dtype=object)
            position = np.searchsorted(edges, numbers[:, at], side="right")
            position[np.isnan(numbers[:, at])] = len(categories) - 1
            columns[name] = pd.Series(categories[position], dtype="str")
        return pd.DataFrame(columns)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        if self.encoder is not None and hasattr(self.encoder, "__sklearn_tags__"):
            tags.target_tags = self.encoder.__sklearn_tags__().target_tags
        return tags


def _digits(bins: int) -> int:
    """The digits of the number of the last bin."""
    return len(str(int(bins) - 1))


def _edges(column: NDArray[np.float64], bins: int) -> NDArray[np.float64]:
    """The distinct quantiles, each a number of the column, without its least number."""
    values = column[~np.isnan(column)]
    if not len(values):
        return np.zeros(0)
    quantiles = np.quantile(values, np.arange(1, bins) / bins, method="inverted_cdf")
    edges: NDArray[np.float64] = np.unique(quantiles[quantiles > values.min()])
    return edges


def _dense(encoded: Any) -> NDArray[np.float64]:
    return np.asarray(encoded.toarray() if sparse.issparse(encoded) else encoded, dtype=np.float64)
