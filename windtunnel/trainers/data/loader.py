"""``windtunnel.loader``: rows in memory, encoded once."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy import sparse

from windtunnel.encode import Batch, as_column, as_frame, indexable, is_named
from windtunnel.encode.row_values import to_arrays
from windtunnel.errors import BadInput
from windtunnel.program.scoring_pipeline import SPARSE_BYTES
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.data.encoded_rows import EncodedRows, LazilyEncodedRows
from windtunnel.trainers.data.encoding import check_weights, encode
from windtunnel.trainers.data.schema import BatchSchema
from windtunnel.trainers.recipe import LARGEST_BATCH

DENSE_BYTES_OF_FIT = 2**28
"""Sparse rows of many columns that take more as dense numbers are made dense batch by batch."""


def loader(
    net: TranslatedPipeline,
    X: Any,
    y: Any = None,
    weight: Any = None,
    *,
    batch_size: int | None = None,
    shuffle: bool = True,
    seed: int = 0,
    drop_last: bool = False,
    training: bool = True,
) -> EncodedRows:
    """Encode rows and targets once, as batches that are slices of tensors.

    Rows are encoded batch by batch if ``untranslated="stream"`` keeps steps on the host, or if they are sparse and
    would take much memory.

    Parameters
    ----------
    net : TranslatedPipeline
        Encodes rows and targets.
    X : DataFrame, Arrow table, array, sparse matrix or dict of columns
        Raw rows.
    y : array-like, optional
        Original targets, one per row; without them the bare ``Batch`` is yielded.
    weight : array-like, optional
        Row weights, from 0.
    batch_size : int, optional
        Rows per batch; by default 4,096, of which ``fit`` makes the batches of its recipe.
    shuffle, seed, drop_last
        See ``EncodedRows``.
    training : bool
        Passed on to ``net.encode``.

    Returns
    -------
    EncodedRows

    Raises
    ------
    BadInput
        For no rows, for targets or weights of another length, missing or unknown targets, weights below 0.
    InvalidOption
        For a batch size that is no whole number from 1, or a seed that is none from 0.
    """
    raw = None
    by_batch = bool(net.hosts) and net.untranslated == "stream" and not isinstance(X, Batch)
    if sparse.issparse(X) and not net.takes_residual_model():  # which needs all rows
        by_batch = by_batch or dense_bytes(net, X.shape[0]) > DENSE_BYTES_OF_FIT
    if by_batch:
        raw = _sliceable(to_arrays(X), net.encoder.flat)
        X, y = Batch(torch.empty(raw.shape[0], 0), torch.arange(raw.shape[0]).unsqueeze(1)), to_arrays(y)
    rows, target, weights = encode(net, X, y, weight, training=training)
    if rows.numbers.shape[0] == 0:
        raise BadInput("X has no rows; give at least one")
    check_weights(weights)
    order: dict[str, Any] = {"shuffle": shuffle, "seed": seed, "drop_last": drop_last, "schema": BatchSchema.of(net)}
    order["is_batched"] = batch_size is not None
    batch_size = LARGEST_BATCH if batch_size is None else batch_size
    if raw is None:
        return EncodedRows(rows, target, weights, batch_size=batch_size, **order)
    if not training:  # batches may have any size, as no optimizer step depends on it
        batch_size = min(batch_size, max(SPARSE_BYTES // dense_bytes(net, 1), 1))
    lazily = {"net": net, "raw": raw, "training": training}
    return LazilyEncodedRows(rows, target, weights, batch_size=batch_size, **lazily, **order)


def dense_bytes(net: TranslatedPipeline, rows: int) -> int:
    """The bytes that the numbers of encoded rows take."""
    return rows * max(len(net.encoder.numbers), 1) * np.dtype(net.encoder.dtype).itemsize


def _sliceable(rows: Any, flat: bool) -> Any:
    """Rows that an array of row numbers selects from: an array, a sparse matrix or a DataFrame."""
    if flat:
        return indexable(as_column(rows))
    if hasattr(rows, "tocsr"):
        return rows.tocsr()
    if isinstance(rows, np.ndarray) and rows.ndim == 2:
        return rows
    nameless = isinstance(rows, list | tuple) and not is_named(rows)
    return as_frame(rows).to_numpy() if nameless else as_frame(rows)
