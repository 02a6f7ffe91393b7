"""Whether the source's step answers with a sparse matrix: to some estimators the zeros of such a one are missing."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.preprocessing import SplineTransformer

from windtunnel.pipeline.graph import Columns, Concatenated, Expression, MethodOutput, Raw, Step, Weighted


def gives_sparse(expression: Expression, *, raw: bool = False) -> bool:
    """Whether the source gives a sparse matrix at one place of the graph, for rows that are one themselves or not.

    Parameters
    ----------
    expression : Expression
        The place.
    raw : bool
        Whether the rows that the pipeline is inputs are a sparse matrix.
    """
    match expression:
        case Raw():
            return raw
        case MethodOutput(inputs=inputs, method=method):
            return method == "transform" and gives_sparse(inputs, raw=raw)
        case Columns(inputs=inputs) | Weighted(inputs=inputs):
            return gives_sparse(inputs, raw=raw)
        case Concatenated(composite=ColumnTransformer() as columns):
            return bool(columns.sparse_output_)
        case Concatenated(parts=parts):
            return any(gives_sparse(part, raw=raw) for part in parts)
        case Step(estimator=estimator, inputs=inputs):
            return _makes_sparse(estimator) or _answers_sparse(estimator, gives_sparse(inputs, raw=raw))


def holds_zeros(expression: Expression) -> str:
    """The step, if there is one, of whose sparse matrix some zeros are held and others left out; else nothing."""
    match expression:
        case Step(name=name, estimator=SplineTransformer()) if gives_sparse(expression):
            return name
        case Step(inputs=inputs) | Columns(inputs=inputs) | Weighted(inputs=inputs) if gives_sparse(expression):
            return holds_zeros(inputs)
        case Concatenated(parts=parts) if gives_sparse(expression):
            return next(filter(None, map(holds_zeros, parts)), "")
    return ""


def _makes_sparse(estimator: Any) -> bool:
    """What the options of a step say, of those too that take neither numbers nor zeros."""
    if type(estimator).__module__.startswith("sklearn.feature_extraction."):
        return bool(getattr(estimator, "sparse", True))  # DictVectorizer alone can be told
    if getattr(estimator, "encode", "") == "onehot" or getattr(estimator, "output", "") == "one_hot":
        return True
    return getattr(estimator, "sparse_output", False) is True


def _answers_sparse(estimator: Any, inputs: bool) -> bool:
    """What a step makes of a row of zeros, sparse or dense as it is ``inputs``; the step itself is asked."""
    width = int(getattr(estimator, "n_features_in_", 1))
    row = sparse.csr_matrix((1, width)) if inputs else np.zeros((1, width))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return bool(sparse.issparse(estimator.transform(row)))
        except Exception:  # a step that takes no such rows was inputs others
            return False
