"""Arrays and tensors from the fitted attributes of a source."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor


def dense(values: Any) -> NDArray[np.float64]:
    """A contiguous float64 copy of an array, dense or sparse."""
    return np.array(values.toarray() if hasattr(values, "toarray") else values, dtype=np.float64, order="C")


def tensor(values: Any) -> Tensor:
    """A float64 copy of an array, dense or sparse."""
    return torch.from_numpy(dense(values))


def indices(values: Any) -> Tensor:
    """An int64 copy of an array of positions or codes."""
    return torch.from_numpy(np.array(values, dtype=np.int64, order="C"))


def per_column(values: ArrayLike, width: int) -> Tensor:
    """One float64 number per column; a single number stands for all columns."""
    return tensor(np.broadcast_to(np.asarray(values, dtype=np.float64), (width,)))
