"""Triton kernels of soft trees, forward and backward; launched by ``soft_triton``. Importing this needs triton.

A program holds R rows of one tree at a time: both layers, and in the backward pass their gradients, stay on the chip.
Sizes in capitals are those of blocks, powers of two that hold n nodes, l leaves and K scores; what pads them is 0.
Sums over rows and trees are taken in an order that only shapes decide, so the same rows give the same bits.
"""

# mypy: ignore-errors
# Kernels are written in Triton's language, which has no types to check and takes no annotations but its own.

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

INTERPRETED = bool(triton.knobs.runtime.interpret)
"""Whether TRITON_INTERPRET=1 was set when this was imported, so that kernels run in NumPy.

Triton itself may have been imported without it; so kernels take its built-in functions and none that are written in
its own language (``tl.sum``, ``tl.sigmoid``, ``tl.zeros``).
"""


class Trees(NamedTuple):
    """Operands as in ``SoftOperands``, contiguous; z and x are columns first where nodes gather from them."""

    z: Tensor
    weight: Tensor
    threshold: Tensor
    slope: Tensor
    path: Tensor
    path_bias: Tensor
    leaf_slope: Tensor
    leaf_value: Tensor
    x: Tensor
    feature: Tensor
    missing: Tensor
    direction: Tensor


class Sizes(NamedTuple):
    """How many there are."""

    batch: int
    width: int
    trees: int
    nodes: int
    leaves: int
    scores: int


class Parts(NamedTuple):
    """Gradients of the weights, one part per chunk of rows in front; empty where none is wanted."""

    weight: Tensor
    threshold: Tensor
    path: Tensor
    path_bias: Tensor
    leaf_value: Tensor


@triton.jit
def _sigmoid(x):
    return 1 / (1 + tl.exp(-x))


@triton.jit
def _product(a, b, total, BF16: tl.constexpr, ROUND: tl.constexpr):
    if BF16:
        if ROUND:  # NumPy has no bf16: what it holds, in float32; the upper part of a Veltkamp split
            a, b = 65537.0 * a - (65537.0 * a - a), 65537.0 * b - (65537.0 * b - b)
        else:
            a, b = a.to(tl.bfloat16), b.to(tl.bfloat16)
    return tl.dot(a, b, total, input_precision="ieee")


@triton.jit
def _weights(of, size, tree, column, N: tl.constexpr, GATHER: tl.constexpr):
    """The first layer ``[W, N]`` at these columns of the input."""
    node = tl.arange(0, N)
    real = node < size.nodes
    if GATHER:
        feature = tl.load(of.feature + tree * size.nodes + node, mask=real, other=-1)
        return (feature[None, :] == column[:, None]).to(tl.float32)
    at = (tree * size.width + column[:, None]) * size.nodes + node[None, :]
    return tl.load(of.weight + at, mask=(column < size.width)[:, None] & real[None, :], other=0.0)


@triton.jit
def _input(of, size, rows, column, GATHER: tl.constexpr):
    """The input ``[R, W]`` at these columns."""
    here = (rows < size.batch)[:, None] & (column < size.width)[None, :]
    if GATHER:
        return tl.load(of.z + column[None, :] * size.batch + rows[:, None], mask=here, other=0.0)
    return tl.load(of.z + rows[:, None] * size.width + column[None, :], mask=here, other=0.0)


@triton.jit
def _nodes(
    of, size, tree, rows,
    R: tl.constexpr, N: tl.constexpr, W: tl.constexpr,
    GATHER: tl.constexpr, SETTLED: tl.constexpr, BF16: tl.constexpr, ROUND: tl.constexpr,
):  # fmt: skip
    """``tanh(slope (z . w - threshold))``, ``[R, N]``."""
    node = tl.arange(0, N)
    real = node < size.nodes
    at = tree * size.nodes + node
    if GATHER:
        total = _input(of, size, rows, tl.load(of.feature + at, mask=real, other=0), GATHER)
    else:
        total = tl.full([R, N], 0.0, tl.float32)
        for first in range(0, size.width, W):
            column = first + tl.arange(0, W)
            weights = _weights(of, size, tree, column, N, GATHER)
            total = _product(_input(of, size, rows, column, GATHER), weights, total, BF16, ROUND)
    slope = tl.load(of.slope + at, mask=real, other=0.0)
    threshold = tl.load(of.threshold + at, mask=real, other=0.0)
    active = 2 * _sigmoid(2 * slope[None, :] * (total - threshold[None, :])) - 1
    if SETTLED:  # a missing value goes the default way; flags as in TreeEnsemble.missing
        column = tl.load(of.feature + at, mask=real, other=0)
        flag = tl.load(of.missing + at, mask=real, other=0)[None, :]
        there = (rows < size.batch)[:, None] & real[None, :]
        x = tl.load(of.x + column[None, :] * size.batch + rows[:, None], mask=there, other=0.0)
        unknown = x != x
        gone = (unknown & ((flag & 2) != 0)) | ((unknown | (tl.abs(x) <= 1e-35)) & ((flag & 1) != 0))
        active = tl.where(gone, tl.load(of.direction + at, mask=real, other=0.0)[None, :], active)
    return active


@triton.jit
def _path(of, size, tree, N: tl.constexpr, L: tl.constexpr):
    """The second layer, ``[N, L]``."""
    node, leaf = tl.arange(0, N), tl.arange(0, L)
    real = (node < size.nodes)[:, None] & (leaf < size.leaves)[None, :]
    return tl.load(of.path + (tree * size.nodes + node[:, None]) * size.leaves + leaf[None, :], mask=real, other=0.0)


@triton.jit
def _reach(
    of, size, tree, active,
    R: tl.constexpr, N: tl.constexpr, L: tl.constexpr, BF16: tl.constexpr, ROUND: tl.constexpr,
):  # fmt: skip
    """``(1 + tanh(leaf_slope (a . path + bias))) / 2``, ``[R, L]``; 1/2 at padding, whose values are 0."""
    leaf = tl.arange(0, L)
    real = leaf < size.leaves
    slope = tl.load(of.leaf_slope + tree * size.leaves + leaf, mask=real, other=0.0)
    bias = tl.load(of.path_bias + tree * size.leaves + leaf, mask=real, other=0.0)
    total = _product(active, _path(of, size, tree, N, L), tl.full([R, L], 0.0, tl.float32), BF16, ROUND)
    return _sigmoid(2 * slope[None, :] * (total + bias[None, :]))


@triton.jit
def _values(of, size, tree, L: tl.constexpr, K: tl.constexpr):
    """What each leaf adds to each score where it is reached, ``[L, K]``."""
    leaf, score = tl.arange(0, L), tl.arange(0, K)
    real = (leaf < size.leaves)[:, None] & (score < size.scores)[None, :]
    at = (tree * size.leaves + leaf[:, None]) * size.scores + score[None, :]
    return 2 * tl.load(of.leaf_value + at, mask=real, other=0.0)


@triton.jit
def _score_gradient(grad, size, rows, K: tl.constexpr):
    """``[R, K]`` of the incoming gradient ``[scores, batch]``."""
    score = tl.arange(0, K)
    here = (rows < size.batch)[:, None] & (score < size.scores)[None, :]
    return tl.load(grad + score[None, :] * size.batch + rows[:, None], mask=here, other=0.0)


@triton.jit
def _upper(
    of, size, tree, rows, reach, grad,
    R: tl.constexpr, L: tl.constexpr, K: tl.constexpr,
    SCORED: tl.constexpr, BF16: tl.constexpr, ROUND: tl.constexpr,
):  # fmt: skip
    """The gradient of ``a . path + bias``, ``[R, L]``."""
    leaf = tl.arange(0, L)
    real = leaf < size.leaves
    if SCORED:
        values = tl.trans(_values(of, size, tree, L, K))
        total = tl.full([R, L], 0.0, tl.float32)
        above = _product(_score_gradient(grad, size, rows, K), values, total, BF16, ROUND)
    else:
        at = (tree * size.leaves + leaf[None, :]) * size.batch + rows[:, None]
        above = tl.load(grad + at, mask=(rows < size.batch)[:, None] & real[None, :], other=0.0)
    slope = tl.load(of.leaf_slope + tree * size.leaves + leaf, mask=real, other=0.0)
    return above * reach * (1 - reach) * 2 * slope[None, :]


@triton.jit
def _lower(
    of, size, tree, active, upper,
    R: tl.constexpr, N: tl.constexpr, L: tl.constexpr, BF16: tl.constexpr, ROUND: tl.constexpr,
):  # fmt: skip
    """The gradient of ``z . w - threshold``, ``[R, N]``; 0 where a node is settled, as its activation is -1 or +1."""
    node = tl.arange(0, N)
    slope = tl.load(of.slope + tree * size.nodes + node, mask=node < size.nodes, other=0.0)
    back = tl.trans(_path(of, size, tree, N, L))
    above = _product(upper, back, tl.full([R, N], 0.0, tl.float32), BF16, ROUND)
    return above * (1 - active * active) * slope[None, :]


@triton.jit
def scores_kernel(
    of, out, size, per_group,
    R: tl.constexpr, N: tl.constexpr, L: tl.constexpr, K: tl.constexpr, W: tl.constexpr,
    GATHER: tl.constexpr, SETTLED: tl.constexpr, SCORED: tl.constexpr, BF16: tl.constexpr, ROUND: tl.constexpr,
):  # fmt: skip
    """Scores ``[groups, K, batch]``, each of a group of trees, or leaves ``[T * l, batch]``."""
    rows = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    group = tl.program_id(1).to(tl.int64)
    leaf, score = tl.arange(0, L), tl.arange(0, K)
    total = tl.full([R, K], 0.0, tl.float32)
    for step in range(tl.minimum(per_group, size.trees - group * per_group)):
        tree = group * per_group + step
        active = _nodes(of, size, tree, rows, R, N, W, GATHER, SETTLED, BF16, ROUND)
        reach = _reach(of, size, tree, active, R, N, L, BF16, ROUND)
        if SCORED:
            total = _product(reach, _values(of, size, tree, L, K), total, BF16, ROUND)
        else:
            at = (tree * size.leaves + leaf[None, :]) * size.batch + rows[:, None]
            tl.store(out + at, reach, mask=(rows < size.batch)[:, None] & (leaf < size.leaves)[None, :])
    if SCORED:
        at = (group * size.scores + score[None, :]) * size.batch + rows[:, None]
        tl.store(out + at, total, mask=(rows < size.batch)[:, None] & (score < size.scores)[None, :])


@triton.jit
def weights_kernel(
    of, grad, into, size, per_chunk,
    R: tl.constexpr, N: tl.constexpr, L: tl.constexpr, K: tl.constexpr, W: tl.constexpr, D: tl.constexpr,
    GATHER: tl.constexpr, SETTLED: tl.constexpr, SCORED: tl.constexpr, BF16: tl.constexpr, ROUND: tl.constexpr,
    WEIGHT: tl.constexpr, THRESHOLD: tl.constexpr, PATH: tl.constexpr, VALUE: tl.constexpr,
):  # fmt: skip
    """Gradients of one tree's weights over a chunk of rows; ``weight`` for D columns of the input."""
    tree, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    node, leaf, score = tl.arange(0, N), tl.arange(0, L), tl.arange(0, K)
    column = tl.program_id(2) * D + tl.arange(0, D)
    weight, threshold = tl.full([D, N], 0.0, tl.float32), tl.full([N], 0.0, tl.float32)
    path, bias, value = (
        tl.full([N, L], 0.0, tl.float32),
        tl.full([L], 0.0, tl.float32),
        tl.full([L, K], 0.0, tl.float32),
    )
    for step in range(per_chunk):
        rows = (chunk * per_chunk + step) * R + tl.arange(0, R)
        active = _nodes(of, size, tree, rows, R, N, W, GATHER, SETTLED, BF16, ROUND)
        reach = _reach(of, size, tree, active, R, N, L, BF16, ROUND)
        if VALUE:
            value = _product(tl.trans(reach), _score_gradient(grad, size, rows, K), value, BF16, ROUND)
        if WEIGHT or THRESHOLD or PATH:
            upper = _upper(of, size, tree, rows, reach, grad, R, L, K, SCORED, BF16, ROUND)
            if PATH:
                path = _product(tl.trans(active), upper, path, BF16, ROUND)
                bias += tl.reduce(upper, 0, tl.standard._sum_combine)
            if WEIGHT or THRESHOLD:
                lower = _lower(of, size, tree, active, upper, R, N, L, BF16, ROUND)
                threshold -= tl.reduce(lower, 0, tl.standard._sum_combine)
                if WEIGHT:
                    block = tl.trans(_input(of, size, rows, column, GATHER))
                    weight = _product(block, lower, weight, BF16, ROUND)
    part = chunk * size.trees + tree  # programs for other columns write the same of all but the weights
    if WEIGHT:
        at = (part * size.width + column[:, None]) * size.nodes + node[None, :]
        tl.store(into.weight + at, weight, mask=(column < size.width)[:, None] & (node < size.nodes)[None, :])
    if THRESHOLD:
        tl.store(into.threshold + part * size.nodes + node, threshold, mask=node < size.nodes)
    if PATH:
        real = (node < size.nodes)[:, None] & (leaf < size.leaves)[None, :]
        tl.store(into.path + (part * size.nodes + node[:, None]) * size.leaves + leaf[None, :], path, mask=real)
        tl.store(into.path_bias + part * size.leaves + leaf, bias, mask=leaf < size.leaves)
    if VALUE:
        worth = (leaf < size.leaves)[:, None] & (score < size.scores)[None, :]
        place = (part * size.leaves + leaf[:, None]) * size.scores + score[None, :]
        tl.store(into.leaf_value + place, 2 * value, mask=worth)


@triton.jit
def input_kernel(
    of, grad, into, size, per_group,
    R: tl.constexpr, N: tl.constexpr, L: tl.constexpr, K: tl.constexpr, W: tl.constexpr, D: tl.constexpr,
    GATHER: tl.constexpr, SETTLED: tl.constexpr, SCORED: tl.constexpr, BF16: tl.constexpr, ROUND: tl.constexpr,
):  # fmt: skip
    """The gradient of D columns of z, added up over a group of trees: ``[groups, batch, width]``."""
    rows = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    group = tl.program_id(1).to(tl.int64)
    column = tl.program_id(2) * D + tl.arange(0, D)
    total = tl.full([R, D], 0.0, tl.float32)
    for step in range(tl.minimum(per_group, size.trees - group * per_group)):
        tree = group * per_group + step
        active = _nodes(of, size, tree, rows, R, N, W, GATHER, SETTLED, BF16, ROUND)
        reach = _reach(of, size, tree, active, R, N, L, BF16, ROUND)
        upper = _upper(of, size, tree, rows, reach, grad, R, L, K, SCORED, BF16, ROUND)
        lower = _lower(of, size, tree, active, upper, R, N, L, BF16, ROUND)
        back = tl.trans(_weights(of, size, tree, column, N, GATHER))
        total = _product(lower, back, total, BF16, ROUND)
    at = (group * size.batch + rows[:, None]) * size.width + column[None, :]
    tl.store(into + at, total, mask=(rows < size.batch)[:, None] & (column < size.width)[None, :])
