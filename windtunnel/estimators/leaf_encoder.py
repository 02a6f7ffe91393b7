"""Encodes rows by the leaves that they reach in the trees of an ensemble."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import get_tags
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted, has_fit_parameter, validate_data

from windtunnel.errors import BadInput, InvalidOption
from windtunnel.estimators.leaves import leaf_ids, leaf_numbers, positions

OUTPUTS = ("one_hot", "ids")


class LeafEncoder(TransformerMixin, BaseEstimator):
    """Encode a row by the leaf that it reaches in each tree of an ensemble, which ``fit`` fits.

        one-hot: column start_t + l is 1 if the row reaches leaf l of tree t, and else 0
        ids: column t is l, from 0, in the order of the library's leaf numbers

    With gradient-boosted trees, a factorization machine or linear model after this step gets feature crosses and bins.

    Parameters
    ----------
    estimator : estimator or None, default None
        The trees: an unfitted model of LightGBM, XGBoost, CatBoost, or of scikit-learn a decision tree, random forest,
        extra trees, gradient boosting or histogram gradient boosting. None is the paper's
        ``LGBMClassifier(n_estimators=100, num_leaves=64)``, for labels; for numbers give a regressor. Trees that are
        fitted already go into ``sklearn.frozen.FrozenEstimator``.
    output : {"one_hot", "ids"}, default "one_hot"
        A sparse matrix in CSR form, float64 [rows, leaves in all], or an array int64 [rows, trees].

    Attributes
    ----------
    estimator_ : fitted estimator
    leaves_ : int64 array [trees]
        Number of leaves of each tree.
    n_features_in_, feature_names_in_
        As usual.

    Source
    ------
    WindTunnel (VLDB 2022), Pipe3 of section 5.4: LightGBM, its leaves, a factorization machine.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> X, y = np.array([[1.0], [2.0], [3.0], [4.0]]), np.array([0, 1, 1, 0])
    >>> encoder = LeafEncoder(DecisionTreeClassifier(random_state=0)).fit(X, y)
    >>> encoder.transform(X).toarray().tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    >>> encoder.get_feature_names_out().tolist()
    ['tree0_leaf0', 'tree0_leaf1', 'tree0_leaf2']
    """

    def __init__(self, estimator: Any = None, *, output: str = "one_hot") -> None:
        self.estimator = estimator
        self.output = output

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the trees on rows [rows, columns], a target for each and, if given, weights [rows]."""
        if self.output not in OUTPUTS:
            raise InvalidOption(f"output={self.output!r}; give 'one_hot' or 'ids'")
        estimator = self._trees()
        if sample_weight is not None and not has_fit_parameter(estimator, "sample_weight"):
            raise BadInput(f"{type(estimator).__name__} takes no sample_weight in fit; leave it out")
        X = self._read(X, fitting=True)
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        fitted = clone(estimator).fit(X, y, **weights)
        self.estimator_ = fitted.estimator if isinstance(fitted, FrozenEstimator) else fitted
        self._numbers = leaf_numbers(self.estimator_)
        self.leaves_ = np.array([len(numbers) for numbers in self._numbers], np.int64)
        return self

    def transform(self, X: Any) -> Any:
        """Encode rows [rows, columns] as a sparse matrix [rows, leaves in all] or an array [rows, trees]."""
        check_is_fitted(self)
        ids = positions(leaf_ids(self.estimator_, self._read(X, fitting=False)), self._numbers)
        return ids if self.output == "ids" else self._one_hot(ids)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Names of the columns out: ``tree0_leaf0, tree0_leaf1, ...``, or ``tree0, tree1, ...`` of ids."""
        check_is_fitted(self)
        _check_feature_names_in(self, input_features)
        if self.output == "ids":
            return np.array([f"tree{tree}" for tree in range(len(self.leaves_))], dtype=object)
        return np.array(
            [f"tree{tree}_leaf{leaf}" for tree, count in enumerate(self.leaves_) for leaf in range(count)], dtype=object
        )

    def _read(self, X: Any, *, fitting: bool) -> Any:
        """Check rows; a DataFrame may hold categories, which the trees check themselves."""
        accepts_missing = get_tags(self).input_tags.allow_nan
        if accepts_missing and hasattr(X, "columns"):
            return validate_data(self, X, reset=fitting, skip_check_array=True)
        return validate_data(
            self, X, accept_sparse="csr", dtype=None, ensure_all_finite=not accepts_missing, reset=fitting
        )

    def _trees(self) -> Any:
        if self.estimator is not None:
            return self.estimator
        from lightgbm import LGBMClassifier  # here, so that the other estimators load without it

        return LGBMClassifier(n_estimators=100, num_leaves=64, verbosity=-1)

    def _one_hot(self, ids: NDArray[np.int64]) -> sparse.csr_matrix:
        starts = np.cumsum(self.leaves_) - self.leaves_
        rows, trees = ids.shape
        shape = rows, int(self.leaves_.sum())
        ends = np.arange(0, rows * trees + 1, trees)
        return sparse.csr_matrix((np.ones(rows * trees), (ids + starts).reshape(-1), ends), shape=shape)

    def __sklearn_tags__(self) -> Any:
        tags, inner = super().__sklearn_tags__(), get_tags(self._trees())
        tags.input_tags, tags.target_tags = inner.input_tags, inner.target_tags
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = []
        tags.non_deterministic = inner.non_deterministic
        return tags
