"""Triton kernels of soft trees, forward and backward; launched by ``launch``. Importing this needs triton.

A program holds rows of one tree at a time; both layers, and in the backward pass their gradients, stay on the chip.
Leaves that are more than a block holds come one block after the other. What pads a block is 0.
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


class KernelOperands(NamedTuple):
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
    category_table: Tensor
    entry: Tensor  # int64 [T, n], the row of the table that a node looks its category up in, -1 where it compares
    kept: Tensor
    """int8 ``[T, n + 1 + l, blocks]``, what dropout keeps of nodes, of the unit that is always 1, and of leaves."""


class KernelSizes(NamedTuple):
    """How many there are."""

    batch: int
    width: int
    trees: int
    nodes: int
    leaves: int
    scores: int
    entries: int  # rows of the table of categories
    columns: int  # columns of it
    blocks: int  # of rows that share what is dropped
    scale: float  # how much more what is kept counts


class KernelForm(NamedTuple):
    """What kernels are compiled for: sizes of blocks, powers of two, and what is there and wanted."""

    R: int  # rows
    N: int  # nodes, all of a tree
    L: int  # leaves
    K: int  # scores, all of them
    W: int  # columns of the input that a product reads at once
    D: int  # columns of the input whose gradients a program adds up
    M: int  # rows that share what is dropped
    GATHER: bool  # each node reads one column
    SETTLED: bool  # nodes may miss a value or look up a category, so that x is there
    CATEGORIES: bool  # some of them look up categories
    DROPPED: bool
    WHOLE: bool  # of a leaf all of ``(1 + h) / 2`` is dropped, or only ``h``
    SCORED: bool  # scores, or the leaves themselves
    BF16: bool
    ROUND: bool  # in bf16's place, where there is none
    WEIGHT: bool = False
    THRESHOLD: bool = False
    PATH: bool = False
    VALUE: bool = False
    TABLE: bool = False


class GradientParts(NamedTuple):
    """Gradients of the weights, one part per chunk of rows in front; empty where none is wanted.

    Of ``weight``, ``threshold`` and ``looked_up`` (``[c, B]``, of the values that rows looked up) each block of leaves
    has its own part too.
    """

    weight: Tensor
    threshold: Tensor
    path: Tensor
    path_bias: Tensor
    leaf_value: Tensor
    looked_up: Tensor


@triton.jit
def _sigmoid(x):
    return 1 / (1 + tl.exp(-x))


@triton.jit
def _product(a, b, total, form: tl.constexpr):
    if form.BF16:
        if form.ROUND:  # NumPy has no bf16: what it holds, in float32; the upper part of a Veltkamp split
            a, b = 65537.0 * a - (65537.0 * a - a), 65537.0 * b - (65537.0 * b - b)
        else:
            a, b = a.to(tl.bfloat16), b.to(tl.bfloat16)
    return tl.dot(a, b, total, input_precision="ieee")


@triton.jit
def _weights(of, size, tree, column, form: tl.constexpr):
    """The first layer ``[columns, N]`` at these columns of the input."""
    node = tl.arange(0, form.N)
    real = node < size.nodes
    if form.GATHER:
        feature = tl.load(of.feature + tree * size.nodes + node, mask=real, other=-1)
        return (feature[None, :] == column[:, None]).to(tl.float32)
    at = (tree * size.width + column[:, None]) * size.nodes + node[None, :]
    return tl.load(of.weight + at, mask=(column < size.width)[:, None] & real[None, :], other=0.0)


@triton.jit
def _input(of, size, rows, column, form: tl.constexpr):
    """The input ``[R, columns]`` at these columns."""
    here = (rows < size.batch)[:, None] & (column < size.width)[None, :]
    if form.GATHER:
        return tl.load(of.z + column[None, :] * size.batch + rows[:, None], mask=here, other=0.0)
    return tl.load(of.z + rows[:, None] * size.width + column[None, :], mask=here, other=0.0)


@triton.jit
def _entries(of, size, tree, form: tl.constexpr):
    """Which row of the table a node looks up, ``[N]``; -1 where it compares."""
    node = tl.arange(0, form.N)
    return tl.load(of.entry + tree * size.nodes + node, mask=node < size.nodes, other=-1)


@triton.jit
def _nodes(of, size, tree, rows, form: tl.constexpr):
    """``tanh(slope (z . w - threshold))``, ``[R, N]``, or the value of overridden nodes."""
    node = tl.arange(0, form.N)
    real = node < size.nodes
    at = tree * size.nodes + node
    feature = tl.load(of.feature + at, mask=real, other=0)
    if form.GATHER:
        total = _input(of, size, rows, feature, form)
    else:
        total = tl.full([form.R, form.N], 0.0, tl.float32)
        for first in range(0, size.width, form.W):
            column = first + tl.arange(0, form.W)
            total = _product(_input(of, size, rows, column, form), _weights(of, size, tree, column, form), total, form)
    slope = tl.load(of.slope + at, mask=real, other=0.0)
    threshold = tl.load(of.threshold + at, mask=real, other=0.0)
    active = 2 * _sigmoid(2 * slope[None, :] * (total - threshold[None, :])) - 1
    if form.SETTLED:
        there = (rows < size.batch)[:, None] & real[None, :]
        x = tl.load(of.x + feature[None, :] * size.batch + rows[:, None], mask=there, other=0.0)
        unknown = x != x
        # A missing value goes the default way; flags as in TreeEnsemble.missing.
        flag = tl.load(of.missing + at, mask=real, other=0)[None, :]
        gone = (unknown & ((flag & 2) != 0)) | ((unknown | (tl.abs(x) <= 1e-35)) & ((flag & 1) != 0))
        active = tl.where(gone, tl.load(of.direction + at, mask=real, other=0.0)[None, :], active)
        if form.CATEGORIES:  # the last two columns are for what is none of the known ones, and for missing values
            entry = _entries(of, size, tree, form)[None, :]
            known = size.columns - 2
            code = tl.where(unknown, known + 1, tl.where((x < 0) | (x >= known), known, x)).to(tl.int32)
            value = tl.load(of.category_table + entry * size.columns + code, mask=there & (entry >= 0), other=0.0)
            active = tl.where(entry >= 0, 2 * _sigmoid(2 * slope[None, :] * value) - 1, active)
    return active


@triton.jit
def _kept(of, size, tree, rows, unit, real, form: tl.constexpr):
    """What dropout leaves of these units, ``[R, units]``: 0, or somewhat more than 1."""
    at = (tree * (size.nodes + 1 + size.leaves) + unit)[None, :] * size.blocks + (rows // form.M)[:, None]
    kept = tl.load(of.kept + at, mask=(rows < size.batch)[:, None] & real[None, :], other=0)
    return size.scale * kept.to(tl.float32)


@triton.jit
def _units(of, size, tree, rows, active, form: tl.constexpr):
    """What the second layer reads of the nodes."""
    if form.DROPPED:
        node = tl.arange(0, form.N)
        active = active * _kept(of, size, tree, rows, node, node < size.nodes, form)
    return active


@triton.jit
def _path(of, size, tree, leaf, form: tl.constexpr):
    """The second layer towards these leaves, ``[N, L]``."""
    node = tl.arange(0, form.N)
    real = (node < size.nodes)[:, None] & (leaf < size.leaves)[None, :]
    return tl.load(of.path + (tree * size.nodes + node[:, None]) * size.leaves + leaf[None, :], mask=real, other=0.0)


@triton.jit
def _reach(of, size, tree, leaf, units, form: tl.constexpr):
    """``(1 + tanh(leaf_slope (a . path + bias))) / 2``, ``[R, L]``; 1/2 at padding, whose values are 0."""
    real = leaf < size.leaves
    slope = tl.load(of.leaf_slope + tree * size.leaves + leaf, mask=real, other=0.0)
    bias = tl.load(of.path_bias + tree * size.leaves + leaf, mask=real, other=0.0)
    total = tl.full([form.R, form.L], 0.0, tl.float32)
    total = _product(units, _path(of, size, tree, leaf, form), total, form)
    return _sigmoid(2 * slope[None, :] * (total + bias[None, :]))


@triton.jit
def _leaves_kept(of, size, tree, rows, leaf, form: tl.constexpr):
    return _kept(of, size, tree, rows, size.nodes + 1 + leaf, leaf < size.leaves, form)


@triton.jit
def _leaves(of, size, tree, rows, leaf, reach, form: tl.constexpr):
    """What the scores read of the leaves."""
    if form.DROPPED:
        kept = _leaves_kept(of, size, tree, rows, leaf, form)
        reach = reach * kept if form.WHOLE else reach * kept + 0.5 - 0.5 * kept
    return reach


@triton.jit
def _values(of, size, tree, leaf, form: tl.constexpr):
    """What each leaf adds to each score where it is reached, ``[L, K]``."""
    score = tl.arange(0, form.K)
    real = (leaf < size.leaves)[:, None] & (score < size.scores)[None, :]
    at = (tree * size.leaves + leaf[:, None]) * size.scores + score[None, :]
    return 2 * tl.load(of.leaf_value + at, mask=real, other=0.0)


@triton.jit
def _score_gradient(grad, size, rows, form: tl.constexpr):
    """``[R, K]`` of the incoming gradient ``[scores, batch]``."""
    score = tl.arange(0, form.K)
    here = (rows < size.batch)[:, None] & (score < size.scores)[None, :]
    return tl.load(grad + score[None, :] * size.batch + rows[:, None], mask=here, other=0.0)


@triton.jit
def _upper(of, size, tree, rows, leaf, reach, grad, form: tl.constexpr):
    """The gradient of ``a . path + bias``, ``[R, L]``."""
    real = leaf < size.leaves
    if form.SCORED:
        values = tl.trans(_values(of, size, tree, leaf, form))
        total = tl.full([form.R, form.L], 0.0, tl.float32)
        above = _product(_score_gradient(grad, size, rows, form), values, total, form)
    else:
        at = (tree * size.leaves + leaf[None, :]) * size.batch + rows[:, None]
        above = tl.load(grad + at, mask=(rows < size.batch)[:, None] & real[None, :], other=0.0)
    if form.DROPPED:
        above *= _leaves_kept(of, size, tree, rows, leaf, form)
    slope = tl.load(of.leaf_slope + tree * size.leaves + leaf, mask=real, other=0.0)
    return above * reach * (1 - reach) * 2 * slope[None, :]


@triton.jit
def _lower(of, size, tree, rows, active, above, form: tl.constexpr):
    """The gradient of ``z . w - threshold``, or of what a category node looked up, ``[R, N]``.

    It is 0 where a node misses its value, as its activation is -1 or +1.
    """
    node = tl.arange(0, form.N)
    real = node < size.nodes
    slope = tl.load(of.slope + tree * size.nodes + node, mask=real, other=0.0)
    return _units(of, size, tree, rows, above, form) * (1 - active * active) * slope[None, :]


@triton.jit
def scores_kernel(of, out, size, per_group, form: tl.constexpr):
    """Scores ``[groups, K, batch]``, each of a group of trees, or leaves ``[T * l, batch]``."""
    rows = tl.program_id(0).to(tl.int64) * form.R + tl.arange(0, form.R)
    group = tl.program_id(1).to(tl.int64)
    score = tl.arange(0, form.K)
    total = tl.full([form.R, form.K], 0.0, tl.float32)
    for step in range(tl.minimum(per_group, size.trees - group * per_group)):
        tree = group * per_group + step
        units = _units(of, size, tree, rows, _nodes(of, size, tree, rows, form), form)
        for first in range(0, size.leaves, form.L):
            leaf = first + tl.arange(0, form.L)
            leaves = _leaves(of, size, tree, rows, leaf, _reach(of, size, tree, leaf, units, form), form)
            if form.SCORED:
                total = _product(leaves, _values(of, size, tree, leaf, form), total, form)
            else:
                at = (tree * size.leaves + leaf[None, :]) * size.batch + rows[:, None]
                tl.store(out + at, leaves, mask=(rows < size.batch)[:, None] & (leaf < size.leaves)[None, :])
    if form.SCORED:
        at = (group * size.scores + score[None, :]) * size.batch + rows[:, None]
        tl.store(out + at, total, mask=(rows < size.batch)[:, None] & (score < size.scores)[None, :])


@triton.jit
def weights_kernel(of, grad, into, size, per_chunk, form: tl.constexpr):
    """Gradients of one tree's weights over a chunk of rows, through a block of its leaves; D columns of ``weight``."""
    blocks = (size.leaves + form.L - 1) // form.L
    tree, block = tl.program_id(0).to(tl.int64) // blocks, tl.program_id(0).to(tl.int64) % blocks
    chunk = tl.program_id(1).to(tl.int64)
    column = tl.program_id(2) * form.D + tl.arange(0, form.D)
    node, leaf, score = tl.arange(0, form.N), block * form.L + tl.arange(0, form.L), tl.arange(0, form.K)
    weight, threshold = tl.full([form.D, form.N], 0.0, tl.float32), tl.full([form.N], 0.0, tl.float32)
    path, bias = tl.full([form.N, form.L], 0.0, tl.float32), tl.full([form.L], 0.0, tl.float32)
    value = tl.full([form.L, form.K], 0.0, tl.float32)
    for step in range(per_chunk):
        rows = (chunk * per_chunk + step) * form.R + tl.arange(0, form.R)
        active = _nodes(of, size, tree, rows, form)
        units = _units(of, size, tree, rows, active, form)
        reach = _reach(of, size, tree, leaf, units, form)
        if form.VALUE:
            leaves = _leaves(of, size, tree, rows, leaf, reach, form)
            value = _product(tl.trans(leaves), _score_gradient(grad, size, rows, form), value, form)
        if form.WEIGHT or form.THRESHOLD or form.TABLE or form.PATH:
            upper = _upper(of, size, tree, rows, leaf, reach, grad, form)
            if form.PATH:
                path = _product(tl.trans(units), upper, path, form)
                bias += tl.reduce(upper, 0, tl.standard._sum_combine)
            if form.WEIGHT or form.THRESHOLD or form.TABLE:
                above = tl.full([form.R, form.N], 0.0, tl.float32)
                above = _product(upper, tl.trans(_path(of, size, tree, leaf, form)), above, form)
                lower = _lower(of, size, tree, rows, active, above, form)
                if form.CATEGORIES:
                    entry = _entries(of, size, tree, form)[None, :]
                    if form.TABLE:
                        entries = block * size.entries + entry
                        here = (rows < size.batch)[:, None] & (entry >= 0)
                        tl.store(into.looked_up + entries * size.batch + rows[:, None], lower, mask=here)
                    lower = tl.where(entry >= 0, 0.0, lower)
                threshold -= tl.reduce(lower, 0, tl.standard._sum_combine)
                if form.WEIGHT:
                    weight = _product(tl.trans(_input(of, size, rows, column, form)), lower, weight, form)
    # Programs for other columns write the same of all but the weights.
    part, own = chunk * size.trees + tree, (chunk * blocks + block) * size.trees + tree
    if form.WEIGHT:
        at = (own * size.width + column[:, None]) * size.nodes + node[None, :]
        tl.store(into.weight + at, weight, mask=(column < size.width)[:, None] & (node < size.nodes)[None, :])
    if form.THRESHOLD:
        tl.store(into.threshold + own * size.nodes + node, threshold, mask=node < size.nodes)
    if form.PATH:
        real = (node < size.nodes)[:, None] & (leaf < size.leaves)[None, :]
        tl.store(into.path + (part * size.nodes + node[:, None]) * size.leaves + leaf[None, :], path, mask=real)
        tl.store(into.path_bias + part * size.leaves + leaf, bias, mask=leaf < size.leaves)
    if form.VALUE:
        worth = (leaf < size.leaves)[:, None] & (score < size.scores)[None, :]
        place = (part * size.leaves + leaf[:, None]) * size.scores + score[None, :]
        tl.store(into.leaf_value + place, 2 * value, mask=worth)


@triton.jit
def input_kernel(of, grad, into, size, per_group, form: tl.constexpr):
    """The gradient of D columns of z, added up over a group of trees: ``[groups, batch, width]``."""
    rows = tl.program_id(0).to(tl.int64) * form.R + tl.arange(0, form.R)
    group = tl.program_id(1).to(tl.int64)
    column = tl.program_id(2) * form.D + tl.arange(0, form.D)
    total = tl.full([form.R, form.D], 0.0, tl.float32)
    for step in range(tl.minimum(per_group, size.trees - group * per_group)):
        tree = group * per_group + step
        active = _nodes(of, size, tree, rows, form)
        units = _units(of, size, tree, rows, active, form)
        above = tl.full([form.R, form.N], 0.0, tl.float32)
        for first in range(0, size.leaves, form.L):
            leaf = first + tl.arange(0, form.L)
            upper = _upper(of, size, tree, rows, leaf, _reach(of, size, tree, leaf, units, form), grad, form)
            above = _product(upper, tl.trans(_path(of, size, tree, leaf, form)), above, form)
        lower = _lower(of, size, tree, rows, active, above, form)
        if form.CATEGORIES:
            lower = tl.where(_entries(of, size, tree, form)[None, :] >= 0, 0.0, lower)
        total = _product(lower, tl.trans(_weights(of, size, tree, column, form)), total, form)
    at = (group * size.batch + rows[:, None]) * size.width + column[None, :]
    tl.store(into + at, total, mask=(rows < size.batch)[:, None] & (column < size.width)[None, :])
