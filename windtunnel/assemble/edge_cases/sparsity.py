"""Whether the source's step returns a sparse matrix, whose zeros some estimators take for missing values."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction import DictVectorizer, FeatureHasher
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import FunctionTransformer, QuantileTransformer, SplineTransformer

from windtunnel.encode import RowEncoder
from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.columns.quantile import QuantileMap
from windtunnel.pipeline.expressions import Columns, Concatenated, Expression, MethodOutput, Raw, Step, Weighted
from windtunnel.translators.registry import has_converter


def gives_sparse(expression: Expression, *, raw: bool = False) -> bool:
    """Whether the source's output of an expression is a sparse matrix; ``raw``: whether the pipeline's own input is."""
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
            return _makes_sparse(estimator) or _transforms_to_sparse(estimator, gives_sparse(inputs, raw=raw))


def stores_zeros(expression: Expression) -> str:
    """The name of a step whose sparse matrix stores some zeros and omits others; "" if there is none."""
    match expression:
        case Step(name=name, estimator=estimator) if _stores_zeros(estimator) and gives_sparse(expression):
            return name
        case Weighted(name=name, weight=0.0) if gives_sparse(expression):
            return name
        case Step(inputs=inputs) | Columns(inputs=inputs) | Weighted(inputs=inputs) if gives_sparse(expression):
            return stores_zeros(inputs)
        case Concatenated(parts=parts) if gives_sparse(expression):
            return next(filter(None, map(stores_zeros, parts)), "")
    return ""


def check_sparse_inputs(step: Step, conversion: Any, encoder: RowEncoder) -> None:
    """Reject sparse matrices whose stored entries alone the source's step maps, leaving the other zeros as they are.

    Raises
    ------
    UnsupportedEstimator
        The steps before give one. Sparse raw rows are rejected by the encoder.
    """
    if not isinstance(conversion, QuantileMap):
        return
    zeros = torch.zeros((1, len(conversion.quantiles)), dtype=torch.float64)
    if not conversion(zeros).any():  # stored or not, a zero stays one
        return
    if gives_sparse(step.inputs):
        raise UnsupportedEstimator(
            f"step {step.name!r} ({step.estimator_name}) maps only the stored entries of a sparse matrix; fit the "
            "pipeline again with dense columns (sparse_output=False, sparse_threshold=0)"
        )
    if gives_sparse(step.inputs, raw=True):
        encoder.unstored, encoder.rejects_sparse_columns = "rejected", True


def _stores_zeros(estimator: Any) -> bool:
    """Whether a step may store zeros in the sparse matrix that it returns, as any step of a user may."""
    if not has_converter(type(estimator)):
        return True
    if isinstance(estimator, SimpleImputer):  # missing values are stored, and so is what fills them
        return bool((np.asarray(estimator.statistics_, dtype=object) == 0).any())
    if isinstance(estimator, HashingVectorizer):  # counts of opposite signs
        return bool(estimator.alternate_sign)
    if isinstance(estimator, FunctionTransformer):
        return estimator.func in (np.floor, np.ceil, np.trunc, np.rint)
    return isinstance(estimator, SplineTransformer | QuantileTransformer | DictVectorizer | FeatureHasher)


def _makes_sparse(estimator: Any) -> bool:
    """Whether the options of a step ask for a sparse matrix, also of steps whose input is no row of zeros."""
    if type(estimator).__module__.startswith("sklearn.feature_extraction."):
        return bool(getattr(estimator, "sparse", True))  # an option of DictVectorizer alone
    if getattr(estimator, "encode", "") == "onehot" or getattr(estimator, "output", "") == "one_hot":
        return True
    return getattr(estimator, "sparse_output", False) is True


def _transforms_to_sparse(estimator: Any, sparse_input: bool) -> bool:
    """Whether the output of a step is sparse; probes the step with rows of zeros, then of texts."""
    width = int(getattr(estimator, "n_features_in_", 1))
    names = getattr(estimator, "feature_names_in_", None)
    zeros, texts = np.zeros((1, width)), np.full((1, width), "a", dtype=object)
    rows = [sparse.csr_matrix(zeros) if sparse_input else zeros, pd.DataFrame(zeros, columns=names)]
    rows += [["a"], pd.DataFrame(texts, columns=names)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for row in rows:
            with contextlib.suppress(Exception):  # a step that rejects such rows never gets them
                return bool(sparse.issparse(estimator.transform(row)))
    return False
