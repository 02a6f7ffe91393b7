"""What the fitted attributes of a source are read into."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor


def tensor(values: Any) -> Tensor:
    """A float64 copy of an array, dense or sparse."""
    dense = values.toarray() if hasattr(values, "toarray") else values
    return torch.from_numpy(np.array(dense, dtype=np.float64, order="C"))
