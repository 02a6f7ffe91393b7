"""A step that rounds numbers to float32, as estimators over trees do before they pass rows on."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin


class Float32(TransformerMixin, BaseEstimator):
    """Numbers rounded to float32; there is nothing to fit.

    Examples
    --------
    >>> Float32().transform([[0.1]]).dtype
    dtype('float32')
    """

    def fit(self, X: Any, y: Any = None) -> Self:
        """Do nothing."""
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:
        """The same numbers as float32."""
        return np.asarray(X, dtype=np.float32)

    def __sklearn_is_fitted__(self) -> bool:
        return True
