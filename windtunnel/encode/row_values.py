"""Checks of what comes with rows, one value per row: targets and weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import sparse
from torch import Tensor

from windtunnel.errors import BadInput


def to_arrays(values: Any) -> Any:
    """Convert tensors, alone or as columns of a dict, to arrays."""
    if isinstance(values, Tensor):
        if values.layout != torch.strided:
            raise BadInput(
                f"a tensor with the layout {values.layout}; give tensor.to_dense(), or a scipy.sparse matrix"
            )
        return (values.float() if values.dtype == torch.bfloat16 else values).numpy(force=True)
    if isinstance(values, dict) and not sparse.issparse(values):  # a DOK matrix is a dict
        return {name: to_arrays(column) for name, column in values.items()}
    return values


def check_length(name: str, values: Any, count: int) -> None:
    """Raise ``BadInput`` unless there is one value per row."""
    if isinstance(values, str) or not hasattr(values, "__len__") or getattr(values, "ndim", 1) == 0:
        raise BadInput(f"{name}={values!r} is one value; give one per row, {count} in all")
    if len(values) != count:
        raise BadInput(f"{name} has {len(values)} values for {count} rows; give one per row, in the same order")


def check_no_missing(target: Any) -> None:
    """Raise ``BadInput`` if a target of labels is missing."""
    if missing := int(pd.isna(target).sum()):
        raise BadInput(f"{missing} of {len(target)} targets are missing (NaN or None); drop these rows.")


def encode_weights(weight: Any, count: int) -> Tensor:
    """The weights of rows, float32 ``[B]``; ``BadInput`` unless they are finite numbers from 0, one per row."""
    check_length("weight", weight, count)
    try:
        numbers = np.array(to_arrays(weight), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise BadInput(f"weight is not made of numbers ({error}); give one finite number from 0 per row") from error
    if numbers.ndim != 1:
        raise BadInput(f"weight has the shape {numbers.shape}; give one finite number from 0 per row")
    if wrong := int((~(np.isfinite(numbers) & (numbers >= 0))).sum()):
        raise BadInput(
            f"{wrong} of {count} weights are negative, NaN or infinite; give one finite number from 0 per row"
        )
    if numbers.sum() > np.finfo(np.float32).max:
        raise BadInput("the sum of the weights is beyond float32; divide them by their mean")
    return torch.from_numpy(numbers.astype(np.float32))
