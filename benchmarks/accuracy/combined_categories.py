"""Pairs and triples of categories that nobody has screened, as one column each: what target encoding is applied to."""

from __future__ import annotations

from itertools import combinations
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin

MOST_NUMBERS = 64
"""Distinct values up to which numbers count as categories too."""


class CombinedCategories(TransformerMixin, BaseEstimator):
    """Whole numbers that stand for combinations of one, two and three categories; -1 for values not seen in ``fit``.

    Parameters
    ----------
    most : int
        The most combinations. Singles and pairs come first; where there are too many, pairs or triples are drawn at
        random.
    seed : int
    """

    def __init__(self, most: int = 150, seed: int = 0) -> None:
        self.most, self.seed = most, seed

    def fit(self, X: pd.DataFrame, y: Any = None) -> Self:
        """Learn the values of each column, and draw the combinations."""
        columns = [
            name for name in X if not pd.api.types.is_numeric_dtype(X[name]) or X[name].nunique() <= MOST_NUMBERS
        ]
        self.values_ = {name: pd.Index(X[name].dropna().unique()) for name in columns}
        draw, self.combinations_ = np.random.default_rng(self.seed), list[tuple[Any, ...]]()
        for order in (1, 2, 3):
            every, left = list(combinations(columns, order)), self.most - len(self.combinations_)
            chosen = np.sort(draw.permutation(len(every))[:left])
            self.combinations_ += [every[place] for place in chosen]
        return self

    def transform(self, X: pd.DataFrame) -> NDArray[np.int64]:
        """int64 ``[rows, combinations]``."""
        codes = {
            name: np.where(X[name].isna(), len(values), values.get_indexer(X[name])).astype(np.int64)
            for name, values in self.values_.items()
        }
        combined = np.zeros((len(X), len(self.combinations_)), dtype=np.int64)
        for place, names in enumerate(self.combinations_):
            unseen = np.zeros(len(X), dtype=bool)
            for name in names:
                combined[:, place] = combined[:, place] * (len(self.values_[name]) + 1) + codes[name]
                unseen |= codes[name] < 0
            combined[unseen, place] = -1
        return combined
