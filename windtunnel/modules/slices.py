"""Rows in slices, which bound the numbers that a step computes at once."""

import torch
from torch import Tensor


def cache_slices(x: Tensor, numbers: int, fewest: int = 64, cells: int = 65536) -> list[Tensor]:
    """Slices of the rows, of at most ``cells`` numbers where a row takes ``numbers`` of them; ``fewest`` rows at least.

    Fresh memory costs more than what is computed in it: half a megabyte is used again from slice to slice. All rows in
    one where gradients are wanted, on a GPU, and for an exporter, for which the number of rows is a symbol.
    """
    if not torch.jit.is_scripting():  # type: ignore[attr-defined]
        if torch.compiler.is_compiling():
            return [x]
    rows = max(fewest, cells // max(1, numbers))
    if torch.is_grad_enabled() or x.is_cuda or x.shape[0] <= rows:
        return [x]
    return list(torch.split(x, rows))


def join_slices(parts: list[Tensor]) -> Tensor:
    """The slices below each other; a single one is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def row_blocks(x: Tensor, points: int, cells: int = 4194304) -> list[Tensor]:
    """Slices of the rows, so that a block of rows by points has at most ``cells`` numbers.

    An exporter, for which the number of rows is a symbol, gets all of them in one.
    """
    if not torch.jit.is_scripting():  # type: ignore[attr-defined]
        if torch.compiler.is_exporting():
            return [x]
    return list(torch.split(x, max(1, cells // max(1, points))))
