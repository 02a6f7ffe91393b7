"""Whether the source's step answers with a sparse matrix: to some estimators the zeros of such a one are missing."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.preprocessing import SplineTransformer

from windtunnel.pipeline.graph import Answer, Columns, Expression, Joined, Raw, Step, Weighted


def gives_sparse(expression: Expression, *, raw: bool = False) -> bool:
    """Whether the source gives a sparse matrix at one place of the graph, for rows that are one themselves or not.

    Parameters
    ----------
    expression : Expression
        The place.
    raw : bool
        Whether the rows that the pipeline is given are a sparse matrix.
    """
    match expression:
        case Raw():
            return raw
        case Answer(given=given, method=method):
            return method == "transform" and gives_sparse(given, raw=raw)
        case Columns(given=given) | Weighted(given=given):
            return gives_sparse(given, raw=raw)
        case Joined(composite=ColumnTransformer() as columns):
            return bool(columns.sparse_output_)
        case Joined(parts=parts):
            return any(gives_sparse(part, raw=raw) for part in parts)
        case Step(estimator=estimator, given=given):
            return _makes_sparse(estimator) or _answers_sparse(estimator, gives_sparse(given, raw=raw))


def holds_zeros(expression: Expression) -> str:
    """The step, if there is one, of whose sparse matrix some zeros are held and others left out; else nothing."""
    match expression:
        case Step(name=name, estimator=SplineTransformer()) if gives_sparse(expression):
            return name
        case Step(given=given) | Columns(given=given) | Weighted(given=given) if gives_sparse(expression):
            return holds_zeros(given)
        case Joined(parts=parts) if gives_sparse(expression):
            return next(filter(None, map(holds_zeros, parts)), "")
    return ""


def _makes_sparse(estimator: Any) -> bool:
    """What the options of a step say, of those too that take neither numbers nor zeros."""
    if type(estimator).__module__.startswith("sklearn.feature_extraction."):
        return bool(getattr(estimator, "sparse", True))  # DictVectorizer alone can be told
    if getattr(estimator, "encode", "") == "onehot" or getattr(estimator, "output", "") == "one_hot":
        return True
    return getattr(estimator, "sparse_output", False) is True


def _answers_sparse(estimator: Any, given: bool) -> bool:
    """What a step makes of a row of zeros, sparse or dense as it is ``given``; the step itself is asked."""
    width = int(getattr(estimator, "n_features_in_", 1))
    row = sparse.csr_matrix((1, width)) if given else np.zeros((1, width))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return bool(sparse.issparse(estimator.transform(row)))
        except Exception:  # a step that takes no such rows was given others
            return False
