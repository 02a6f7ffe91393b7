"""Modules whose tensors keep their type whatever they are cast to."""

from collections.abc import Callable
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn


class FixedPrecision(nn.Module):
    """A module that takes rows of either precision; its own buffers keep theirs."""

    def register_derived(self, device: torch.device, **arrays: NDArray[np.generic]) -> None:
        """Register buffers that follow from the saved tensors and are not saved."""
        for name, array in arrays.items():
            self.register_buffer(name, torch.from_numpy(np.ascontiguousarray(array)).to(device), persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        before = dict(self.named_buffers(recurse=False))
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, buffer in before.items():
            moved = getattr(self, name)
            if moved.dtype != buffer.dtype:
                setattr(self, name, buffer.to(moved.device))
        return self
