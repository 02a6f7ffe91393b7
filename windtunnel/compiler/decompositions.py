"""Operators that ONNX or its runtime lack in float64, composed of operators that they have."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.special import erfcx
from torch import Tensor

SQRT_HALF = math.sqrt(0.5)
ERFCX_CENTER = 2.5
ERFCX: list[float] = np.polynomial.chebyshev.chebinterpolate(
    lambda t: erfcx(ERFCX_CENTER * (1 + t) / (1 - t)), 20
).tolist()
"""Coefficients of ``_erfcx``."""


def searchsorted(
    sequence: Tensor,
    values: Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """Insertion positions in a sorted sequence ``[n]`` or ``[..., n]`` by bisection; NaN goes last, as in torch."""
    if sorter is not None:
        sequence = sequence.gather(-1, sorter)
    right = right or side == "right"
    count = sequence.shape[-1]
    position = torch.zeros_like(values, dtype=torch.int64)
    step = (1 << count.bit_length()) >> 1
    while step:
        after = position + step
        inside = after <= count
        bound = _at(sequence, torch.where(inside, after, torch.full_like(after, count)) - 1)
        passed = ~(bound > values) if right else ~(bound >= values)
        position = torch.where(passed & inside, after, position)
        step >>= 1
    return position.to(torch.int32) if out_int32 else position


def bucketize(values: Tensor, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """The bucket of each value, between sorted boundaries."""
    return searchsorted(boundaries, values, out_int32=out_int32, right=right)


def full_like(values: Tensor, value: float, *, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
    """A tensor of one number, in the shape of another."""
    return torch.full(values.shape, value, dtype=dtype or values.dtype, device=values.device)


def isinf(values: Tensor) -> Tensor:
    """Whether numbers are infinite; the exporter's form compares in float32, where 1e39 is."""
    return values.abs() == math.inf


def log2(values: Tensor) -> Tensor:
    """Ln x / ln 2; the exporter's constant is a float32."""
    return torch.log(values) / math.log(2)


def log10(values: Tensor) -> Tensor:
    """Ln x / ln 10."""
    return torch.log(values) / math.log(10)


def sigmoid(values: Tensor) -> Tensor:
    """1 / (1 + exp(-x)); the runtime's operator rounds small results to 0, which a logarithm would show."""
    return 1 / (1 + torch.exp(-values))


def softplus(values: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """ln(1 + exp(beta x)) / beta, and x from the threshold on."""
    steep = values * beta
    return torch.where(steep > threshold, values, torch.log1p(torch.exp(steep)) / beta)


def _erfcx(x: Tensor) -> Tensor:
    """exp(x^2) (1 - erf(x)) of numbers from 0 on, by Chebyshev polynomials in (x - 2.5) / (x + 2.5); to 4e-15."""
    t = 2 * (x - ERFCX_CENTER) / (x + ERFCX_CENTER)
    last, before = torch.zeros_like(x), torch.zeros_like(x)
    for coefficient in ERFCX[:0:-1]:
        last, before = t * last - before + coefficient, last
    return 0.5 * t * last - before + ERFCX[0]


def erf(values: Tensor) -> Tensor:
    """The error function, which the runtime has in float32 only."""
    x = values.abs().clamp_max(30.0)
    return torch.sign(values) * (1 - torch.exp(-x * x) * _erfcx(x))


def ndtr(values: Tensor) -> Tensor:
    """The cumulative distribution function of the normal distribution."""
    return 0.5 + 0.5 * erf(values * SQRT_HALF)


def ndtri(p: Tensor) -> Tensor:
    """The quantile of the normal distribution: Winitzki's approximation (0.2 %), then two of Halley's steps."""
    a, tail = 0.147, torch.minimum(p, 1 - p)
    log = torch.log(4 * tail * (1 - tail))
    half = 2 / (math.pi * a) + log / 2
    x = torch.sqrt(2 * (torch.sqrt(half * half - log / a) - half).clamp_min(0.0))
    for _ in range(2):
        step = math.sqrt(2 * math.pi) * (tail * torch.exp(x * x / 2) - 0.5 * _erfcx(x * SQRT_HALF))
        x = x - step / (1 + x * step / 2)
    return torch.where(p < 0.5, -x, x)


def any_along(values: Tensor, dim: int, keepdim: bool = False) -> Tensor:
    """Whether any is true along a dimension; false for an empty one, which the runtime gets wrong."""
    return values.to(torch.int64).sum(dim, keepdim=keepdim) > 0


def matmul(left: Tensor, right: Tensor) -> Tensor:
    """The product, with a vector as a matrix of one column: the runtime fails for no rows times a vector."""
    if left.dim() == 2 and right.dim() == 1:
        return torch.mm(left, right.unsqueeze(1)).squeeze(1)
    return NotImplemented  # type: ignore[no-any-return]  # leaves the operator as it is


def cdist(rows: Tensor, others: Tensor, p: float = 2.0, compute_mode: int | None = None) -> Tensor:
    """Distances ``[B, N]`` of rows ``[B, width]`` from ``[N, width]``, column by column."""
    total = torch.zeros(rows.shape[0], others.shape[0], dtype=rows.dtype)
    for column in range(rows.shape[1]):
        distance = (rows[:, column : column + 1] - others[:, column]).abs()
        if p == math.inf:
            total = torch.where(distance > total, distance, total)
        else:
            total = total + (distance if p == 1.0 else distance * distance if p == 2.0 else distance**p)
    return total if p in (1.0, math.inf) else torch.sqrt(total) if p == 2.0 else total ** (1 / p)


def sort_stable(
    values: Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Tensor, Tensor]:
    """Sorted values and their old positions; ONNX's TopK keeps the order of equal values."""
    return torch.topk(values, values.shape[dim], dim=dim, largest=descending)


def argsort_stable(values: Tensor, *, stable: bool, dim: int = -1, descending: bool = False) -> Tensor:
    """The old positions of the sorted values."""
    return sort_stable(values, dim=dim, descending=descending)[1]


def solve(left: Tensor, right: Tensor) -> Tensor:
    """The solution of ``[..., n, n] X = [..., n, k]`` or ``[..., n]``, by elimination with pivots; n is fixed."""
    count, vector = left.shape[-1], right.dim() == left.dim() - 1
    both = torch.cat([left, right.unsqueeze(-1) if vector else right], dim=-1)
    places = torch.arange(count).unsqueeze(1)
    for at in range(count):
        greatest = torch.where(places.squeeze(1) >= at, both[..., at].abs(), -1.0)
        pivot = greatest.argmax(dim=-1, keepdim=True).unsqueeze(-1)
        pivot_row = both.gather(-2, pivot.expand(*both.shape[:-2], 1, both.shape[-1]))
        both = torch.where(places == pivot, both[..., at : at + 1, :], both)
        row = pivot_row / pivot_row[..., at : at + 1]
        both = torch.where(places == at, row, both - both[..., at : at + 1] * row)
    solution = both[..., count:]
    return solution.squeeze(-1) if vector else solution


def _at(sequence: Tensor, position: Tensor) -> Tensor:
    if sequence.dim() == 1:
        return sequence.index_select(0, position.reshape(-1)).view(position.shape)
    return sequence.gather(-1, position)


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.linalg_solve.default: solve,
    torch.ops.aten.searchsorted.Tensor: searchsorted,
    torch.ops.aten.bucketize.Tensor: bucketize,
    torch.ops.aten.cdist.default: cdist,
    torch.ops.aten._cdist_forward.default: cdist,
    torch.ops.aten.full_like.default: full_like,
    torch.ops.aten.isinf.default: isinf,
    torch.ops.aten.log2.default: log2,
    torch.ops.aten.log10.default: log10,
    torch.ops.aten.sigmoid.default: sigmoid,
    torch.ops.aten.softplus.default: softplus,
    torch.ops.aten.erf.default: erf,
    torch.ops.aten.special_ndtr.default: ndtr,
    torch.ops.aten.special_ndtri.default: ndtri,
    torch.ops.aten.any.dim: any_along,
    torch.ops.aten.matmul.default: matmul,
    torch.ops.aten.sort.stable: sort_stable,
    torch.ops.aten.argsort.stable: argsort_stable,
}
