"""Flags that say where a number is missing."""

import torch
from torch import Tensor

from windtunnel.modules.base import Module


class MissingFlags(Module):
    """One flag per flagged column.

    y = [1 where x_k is missing, else 0, for k in flagged]

    Shape
    -----
    ``[B, width]`` -> ``[B, len(flagged)]``.

    Parameters
    ----------
    missing : Tensor
        ``[]``, the value that stands for a missing one: NaN or a number.
    flagged : Tensor
        int64 positions of input columns.
    never : Tensor
        int64 positions of columns in which the source rejects missing values.

    Examples
    --------
    >>> import torch
    >>> none = torch.zeros(0, dtype=torch.int64)
    >>> MissingFlags(torch.tensor(-1.0), torch.tensor([1]), none)(torch.tensor([[-1.0, 2.0], [3.0, -1.0]])).tolist()
    [[0.0], [1.0]]
    """

    missing: Tensor
    flagged: Tensor
    never: Tensor

    def absent(self, x: Tensor) -> Tensor:
        """Where a value is missing, bool ``[B, width]``."""
        # NaN equals nothing, itself included.
        return (x == self.missing) | (torch.isnan(x) & torch.isnan(self.missing))

    def outside(self, x: Tensor) -> Tensor | None:
        """Rows with a missing value where fitting saw none, an infinite one, or NaN where it marks nothing."""
        odd = torch.isinf(x) | (torch.isnan(x) & ~torch.isnan(self.missing))
        return self.absent(x)[:, self.never].any(dim=1) | odd.any(dim=1)

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, len(flagged)]."""
        return self.absent(x).index_select(1, self.flagged).to(x.dtype)
