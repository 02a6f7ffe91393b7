"""Operators that ONNX lacks, in terms of those that it has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def searchsorted(
    sequence: Tensor,
    values: Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """Where values go into a sorted sequence ``[n]`` or ``[..., n]``, by halving; NaN goes to the end, as in torch."""
    if sorter is not None:
        sequence = sequence.gather(-1, sorter)
    right = right or side == "right"
    count = sequence.shape[-1]
    found = torch.zeros_like(values, dtype=torch.int64)
    step = (1 << count.bit_length()) >> 1
    while step:
        after = found + step
        inside = after <= count
        held = _at(sequence, torch.where(inside, after, torch.full_like(after, count)) - 1)
        passed = ~(held > values) if right else ~(held >= values)
        found = torch.where(passed & inside, after, found)
        step >>= 1
    return found.to(torch.int32) if out_int32 else found


def bucketize(values: Tensor, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """Which of the buckets between sorted boundaries values are in."""
    return searchsorted(boundaries, values, out_int32=out_int32, right=right)


def _at(sequence: Tensor, position: Tensor) -> Tensor:
    if sequence.dim() == 1:
        return sequence.index_select(0, position.reshape(-1)).view(position.shape)
    return sequence.gather(-1, position)


DECOMPOSITIONS: dict[Any, Callable[..., Tensor]] = {
    torch.ops.aten.searchsorted.Tensor: searchsorted,
    torch.ops.aten.bucketize.Tensor: bucketize,
}
