"""Whether the source's step answers with a sparse matrix: to some estimators the zeros of such a one are missing."""

from __future__ import annotations

import warnings
from typing import Any

from scipy import sparse
from sklearn.compose import ColumnTransformer

from windtunnel.graph import Answer, Columns, Expression, Joined, Raw, Step, Weighted


def gives_sparse(expression: Expression, width: int) -> bool:
    """Whether the source gives a sparse matrix of ``width`` columns at one place of the graph."""
    match expression:
        case Raw() | Answer():
            return False
        case Columns(given=given) | Weighted(given=given):
            return gives_sparse(given, width)
        case Joined(composite=ColumnTransformer() as columns):
            return bool(columns.sparse_output_)
        case Joined(parts=parts):
            return any(gives_sparse(part, width) for part in parts)
        case Step(estimator=estimator, given=given):
            return _makes_sparse(estimator) or (gives_sparse(given, width) and _keeps_sparse(estimator))


def _makes_sparse(estimator: Any) -> bool:
    if type(estimator).__module__.startswith("sklearn.feature_extraction."):
        return bool(getattr(estimator, "sparse", True))  # DictVectorizer alone can be told
    if getattr(estimator, "encode", "") == "onehot" or getattr(estimator, "output", "") == "one_hot":
        return True
    return getattr(estimator, "sparse_output", False) is True


def _keeps_sparse(estimator: Any) -> bool:
    """What a step makes of a sparse row; the step itself is asked."""
    row = sparse.csr_matrix((1, int(getattr(estimator, "n_features_in_", 1))))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return bool(sparse.issparse(estimator.transform(row)))
        except Exception:  # a step that takes no sparse rows was given dense ones
            return False
