"""Soft trees as one operation of torch, with a backward pass that computes activations again instead of keeping them.

Registered with shapes and gradients, so that ``torch.compile`` and ``torch.export`` carry it as a single node.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from windtunnel.modules.trees.soft.kernel import slices as kernel
from windtunnel.modules.trees.soft.kernel.operands import LEARNED, Dropout, SoftOperands

# What runs depends on the rows and the seed of dropout; a CUDA graph would replay what ran for other rows.
_TAGS = (torch.Tag.cudagraph_unsafe,)


def soft_ensemble(operands: SoftOperands, rate: float = 0.0, *, whole: bool = False) -> Tensor:
    """Scores ``[B, K]`` without a base, or the leaves ``[B, T * l]``; dropout draws from torch's generator.

    See ``kernel/slices.py`` for the formulas, and ``Dropout`` for ``whole``.
    """
    seed = torch.randint(2**62, (1,)) if rate else torch.zeros(0, dtype=torch.int64)
    result: Tensor = _soft_trees(*operands, seed, rate, whole)
    return result.t()


@torch.library.custom_op("windtunnel::soft_trees", mutates_args=(), tags=_TAGS)
def _soft_trees(
    z: Tensor,
    weight: Tensor,
    threshold: Tensor,
    slope: Tensor,
    path: Tensor,
    path_bias: Tensor,
    leaf_slope: Tensor,
    leaf_value: Tensor,
    x: Tensor,
    feature: Tensor,
    missing: Tensor,
    direction: Tensor,
    category_node: Tensor,
    category_table: Tensor,
    seed: Tensor,
    rate: float,
    whole: bool,
) -> Tensor:
    operands = SoftOperands(z, weight, threshold, slope, path, path_bias, leaf_slope, leaf_value, x, feature, missing,
                            direction, category_node, category_table)  # fmt: skip
    return kernel.forward(operands, _dropout(seed, rate, whole))


@torch.library.custom_op("windtunnel::soft_trees_backward", mutates_args=(), tags=_TAGS)
def _soft_trees_backward(
    grad: Tensor, operands: list[Tensor], seed: Tensor, rate: float, whole: bool, wanted: list[bool]
) -> list[Tensor]:
    return kernel.backward(grad, SoftOperands(*operands), _dropout(seed, rate, whole), wanted)


def _dropout(seed: Tensor, rate: float, whole: bool) -> Dropout:
    return Dropout(rate, int(seed.item()) if rate else 0, whole)


@_soft_trees.register_fake
def _(*args: Any) -> Tensor:
    operands = SoftOperands(*args[: len(SoftOperands._fields)])
    trees, leaves = operands.path_bias.shape
    return operands.z.new_empty(
        operands.leaf_value.shape[2] if operands.leaf_value.dim() == 3 else trees * leaves, operands.z.shape[0]
    )


@_soft_trees_backward.register_fake
def _(grad: Tensor, operands: list[Tensor], seed: Tensor, rate: float, whole: bool, wanted: list[bool]) -> list[Tensor]:
    soft = SoftOperands(*operands)
    return [
        soft.z.new_empty(getattr(soft, name).shape if wish else (0,))
        for name, wish in zip(LEARNED, wanted, strict=True)
    ]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *operands, seed, ctx.rate, ctx.whole = inputs
    ctx.save_for_backward(*operands, seed)


def _gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    *operands, seed = ctx.saved_tensors
    wanted = [ctx.needs_input_grad[SoftOperands._fields.index(name)] for name in LEARNED]
    by_name = dict(zip(LEARNED, _soft_trees_backward(grad, operands, seed, ctx.rate, ctx.whole, wanted), strict=True))
    gradients = [
        by_name[name] if name in by_name and needs else None
        for name, needs in zip(SoftOperands._fields, ctx.needs_input_grad, strict=False)
    ]
    return (*gradients, None, None, None)


_soft_trees.register_autograd(_gradients, setup_context=_keep)


def products(*shapes: Any, out_shape: Any = None, **facts: Any) -> int:
    """The floating-point operations of the products of one pass: two per row and weight."""
    shape_of = dict(zip(SoftOperands._fields, shapes, strict=False))
    weights = [shape_of[name] for name in ("weight", "path", "leaf_value")]
    products: int = 2 * shape_of["z"][0] * sum(math.prod(shape) for shape in weights if len(shape) == 3)
    return products
