"""Operators that ONNX or its runtime lack in float64, in terms of those that they have."""

from __future__ import annotations

import math
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


def full_like(given: Tensor, value: float, *, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
    """The number in the shape of another tensor."""
    return torch.full(given.shape, value, dtype=dtype or given.dtype, device=given.device)


def log2(given: Tensor) -> Tensor:
    """Ln x / ln 2, as the exporter's own constant is that of float32."""
    return torch.log(given) / math.log(2)


def log10(given: Tensor) -> Tensor:
    """Ln x / ln 10."""
    return torch.log(given) / math.log(10)


def sigmoid(given: Tensor) -> Tensor:
    """1 / (1 + exp(-x)), as the runtime's own gives 0 for what is near 0, which a logarithm may still tell apart."""
    return 1 / (1 + torch.exp(-given))


def softplus(given: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """ln(1 + exp(beta x)) / beta, and x from the threshold on."""
    steep = given * beta
    return torch.where(steep > threshold, given, torch.log1p(torch.exp(steep)) / beta)


def any_along(given: Tensor, dim: int, keepdim: bool = False) -> Tensor:
    """Whether any is true along a dimension; of none there is none, which the runtime gets wrong."""
    return given.to(torch.int64).sum(dim, keepdim=keepdim) > 0


def matmul(one: Tensor, other: Tensor) -> Tensor:
    """The product, with a vector as a matrix of one column, as the runtime multiplies no rows with no vector."""
    if one.dim() == 2 and other.dim() == 1:
        return torch.mm(one, other.unsqueeze(1)).squeeze(1)
    return NotImplemented  # type: ignore[no-any-return]  # the product as it is


def cdist(rows: Tensor, others: Tensor, p: float = 2.0, compute_mode: int | None = None) -> Tensor:
    """Distances ``[B, N]`` of rows ``[B, width]`` from ``[N, width]``, column by column."""
    total = torch.zeros(rows.shape[0], others.shape[0], dtype=rows.dtype)
    for column in range(rows.shape[1]):
        apart = (rows[:, column : column + 1] - others[:, column]).abs()
        if p == math.inf:
            total = torch.where(apart > total, apart, total)
        else:
            total = total + (apart if p == 1.0 else apart * apart if p == 2.0 else apart**p)
    return total if p in (1.0, math.inf) else torch.sqrt(total) if p == 2.0 else total ** (1 / p)


def sort_stable(
    given: Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Tensor, Tensor]:
    """Values in order, and where they were; ONNX's TopK leaves equal values as they stand."""
    return torch.topk(given, given.shape[dim], dim=dim, largest=descending)


def argsort_stable(given: Tensor, *, stable: bool, dim: int = -1, descending: bool = False) -> Tensor:
    """Where values in order were."""
    return sort_stable(given, dim=dim, descending=descending)[1]


def _at(sequence: Tensor, position: Tensor) -> Tensor:
    if sequence.dim() == 1:
        return sequence.index_select(0, position.reshape(-1)).view(position.shape)
    return sequence.gather(-1, position)


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.searchsorted.Tensor: searchsorted,
    torch.ops.aten.bucketize.Tensor: bucketize,
    torch.ops.aten.cdist.default: cdist,
    torch.ops.aten._cdist_forward.default: cdist,
    torch.ops.aten.full_like.default: full_like,
    torch.ops.aten.log2.default: log2,
    torch.ops.aten.log10.default: log10,
    torch.ops.aten.sigmoid.default: sigmoid,
    torch.ops.aten.softplus.default: softplus,
    torch.ops.aten.any.dim: any_along,
    torch.ops.aten.matmul.default: matmul,
    torch.ops.aten.sort.stable: sort_stable,
    torch.ops.aten.argsort.stable: argsort_stable,
}
