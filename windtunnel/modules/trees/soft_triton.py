"""Soft trees on a GPU through Triton, where it is asked for: the same sums as ``soft_kernel``, fused.

``WINDTUNNEL_TRITON=float32`` or ``bf16`` asks for it; without, or where a shape does not fit, straight torch is taken.
"""

from __future__ import annotations

import logging
import os
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from windtunnel.errors import BadInput
from windtunnel.modules.trees.soft_kernel import LEARNED, Dropout, SoftOperands

if TYPE_CHECKING:
    from windtunnel.modules.trees.triton_kernels import Sizes, Trees

log = logging.getLogger("windtunnel")

SWITCH = "WINDTUNNEL_TRITON"
"""The environment variable that asks for Triton."""
PRODUCTS = ("float32", "bf16")
"""Its values: of which type the factors of matrix products are; sums are float32."""
UNITS = 128
"""Most nodes and most leaves of a tree that a block holds."""
SCORES = 64
"""Most scores that a block holds."""
ROWS = {"float32": 32, "bf16": 64}
"""Rows in a block; with these sizes the registers of compute capability 9.0 hold nearly all of it."""
COLUMNS = 32
"""Columns of the input that a product reads at once, at most."""
SUMMED = 128
"""Columns of the input whose gradients a program adds up, at most; each further program computes activations again."""
WARPS = 8
"""Warps that share a block."""
PROGRAMS = 1024
"""Programs that keep a large GPU busy; fewer rows or trees are cut further until there are as many."""


def takes(of: SoftOperands, dropout: Dropout) -> bool:
    """Whether Triton computes these trees; where it was asked for and does not, the log says why, once.

    Raises
    ------
    BadInput
        ``WINDTUNNEL_TRITON`` is neither float32 nor bf16, or triton is not installed.
    """
    if not os.environ.get(SWITCH):
        return False
    _asked()
    reason = _obstacle(of, dropout)
    if reason:
        _say(reason)
    return not reason


def _asked() -> str:
    asked = os.environ[SWITCH]
    if asked not in PRODUCTS:
        raise BadInput(f"{SWITCH}={asked}; set it to {' or '.join(PRODUCTS)}, or unset it for straight torch")
    if find_spec("triton") is None:
        raise BadInput(f"{SWITCH}={asked} needs triton, which is not installed; pip install triton, or unset it")
    return asked


def _obstacle(of: SoftOperands, dropout: Dropout) -> str:
    """Why straight torch is taken; empty where nothing hinders."""
    from windtunnel.modules.trees.triton_kernels import INTERPRETED

    trees, nodes, leaves = of.path.shape
    scores = of.leaf_value.shape[2] if of.leaf_value.dim() == 3 else 1
    reasons = {
        f"rows are on {of.z.device.type}": not (of.z.is_cuda or INTERPRETED),
        f"rows are {of.z.dtype}": of.z.dtype != torch.float32,
        "nodes look up categories": of.category_node.numel() > 0,
        "activations are dropped": dropout.rate > 0,
        f"trees have {nodes} nodes and {leaves} leaves, more than {UNITS}": max(nodes, leaves) > UNITS,
        f"there are {scores} scores, more than {SCORES}": scores > SCORES,
        "there is nothing to compute": min(trees, nodes, leaves, scores, *of.z.shape) == 0,
    }
    return "; ".join(reason for reason, holds in reasons.items() if holds)


@cache
def _say(reason: str) -> None:
    log.info("soft trees are computed in straight torch although %s is set: %s", SWITCH, reason)


def forward(of: SoftOperands, products: str = "") -> Tensor:
    """Scores ``[K, B]`` without a base, or the leaves ``[T * l, B]``; products of that type, or as asked for."""
    from windtunnel.modules.trees.triton_kernels import scores_kernel

    trees, size, block = _prepared(of, products or _asked())
    blocks = _cuts(size.batch, block["R"])
    if block["SCORED"]:
        per_group = _share(size.trees, blocks)
        groups = _cuts(size.trees, per_group)
        out = of.z.new_empty(groups, size.scores, size.batch)
    else:
        per_group, groups = 1, size.trees
        out = of.z.new_empty(size.trees * size.leaves, size.batch)
    with _on(of.z):
        scores_kernel[blocks, groups](trees, out, size, per_group, **block)
    return out.sum(dim=0) if block["SCORED"] else out


def backward(grad: Tensor, of: SoftOperands, wanted: list[bool], products: str = "") -> list[Tensor]:
    """Gradients in the order of ``LEARNED`` from that of the output; empty where none is wanted."""
    wants = {name for name, wish in zip(LEARNED, wanted, strict=True) if wish}
    trees, size, block = _prepared(of, products or _asked())
    grad = grad.contiguous()
    answers = {"category_table": torch.zeros_like(of.category_table)}
    with _on(of.z):
        if wants - {"z", "category_table"}:
            answers |= _of_weights(of, grad, wants, trees, size, block)
        if "z" in wants:
            answers["z"] = _of_input(of, grad, trees, size, block)
    return [answers[name] if name in wants else of.z.new_empty(0) for name in LEARNED]


def _of_weights(
    of: SoftOperands, grad: Tensor, wants: set[str], trees: Trees, size: Sizes, block: dict[str, Any]
) -> dict[str, Tensor]:
    from windtunnel.modules.trees.triton_kernels import Parts, weights_kernel

    columns = _columns(size)
    tiles = _cuts(size.width, columns) if "weight" in wants else 1
    per_chunk = _share(_cuts(size.batch, block["R"]), size.trees * tiles)
    chunks = _cuts(size.batch, block["R"] * per_chunk)
    second = bool(wants & {"path", "path_bias"})
    needs = wants | ({"path", "path_bias"} if second else set())
    shapes = {name: getattr(of, name).shape for name in Parts._fields}
    into = Parts(*(of.z.new_empty((chunks, *shape) if name in needs else 0) for name, shape in shapes.items()))
    weights_kernel[size.trees, chunks, tiles](
        trees, grad, into, size, per_chunk, **block, D=columns,
        WEIGHT="weight" in wants, THRESHOLD="threshold" in wants, PATH=second, VALUE="leaf_value" in wants,
    )  # fmt: skip
    return {name: part.sum(dim=0) for name, part in into._asdict().items() if name in wants}


def _of_input(of: SoftOperands, grad: Tensor, trees: Trees, size: Sizes, block: dict[str, Any]) -> Tensor:
    from windtunnel.modules.trees.triton_kernels import input_kernel

    columns = _columns(size)
    blocks, tiles = _cuts(size.batch, block["R"]), _cuts(size.width, columns)
    per_group = _share(size.trees, blocks * tiles)
    groups = _cuts(size.trees, per_group)
    into = of.z.new_empty(groups, size.batch, size.width)
    input_kernel[blocks, groups, tiles](trees, grad, into, size, per_group, **block, D=columns)
    return into.sum(dim=0)


def _prepared(of: SoftOperands, products: str) -> tuple[Trees, Sizes, dict[str, Any]]:
    """Operands and sizes for the kernels, and how their blocks are cut."""
    from windtunnel.modules.trees.triton_kernels import INTERPRETED, Sizes, Trees

    gather, scored, settled = not of.weight.numel(), of.leaf_value.dim() == 3, of.x.numel() > 0
    own = of._replace(z=of.z.t() if gather else of.z, x=of.x.t() if settled else of.x)
    trees = Trees(*(getattr(own, name).contiguous() for name in Trees._fields))
    (batch, width), (count, nodes, leaves) = of.z.shape, of.path.shape
    scores = of.leaf_value.shape[2] if scored else 1
    size = Sizes(batch, width, count, nodes, leaves, scores)
    bf16 = products == "bf16"
    block = {
        "R": ROWS[products], "N": _power(nodes), "L": _power(leaves), "K": _power(scores),
        "W": min(_power(size.width), COLUMNS), "GATHER": gather, "SETTLED": settled, "SCORED": scored,
        "BF16": bf16, "ROUND": bf16 and INTERPRETED, "num_warps": WARPS,
    }  # fmt: skip
    return trees, size, block


def _on(z: Tensor) -> AbstractContextManager[Any]:
    """Kernels go to the current device, whatever their tensors are on."""
    return torch.cuda.device(z.device) if z.is_cuda else nullcontext()


def _columns(size: Sizes) -> int:
    return min(_power(size.width), SUMMED)


def _power(count: int) -> int:
    """The power of two that holds ``count``, and that a matrix product of a GPU takes."""
    return max(16, 1 << (count - 1).bit_length())


def _cuts(whole: int, part: int) -> int:
    return -(-whole // part)


def _share(whole: int, others: int) -> int:
    """How much of ``whole`` a program takes where each share is met by ``others`` programs."""
    return _cuts(whole, min(whole, _cuts(PROGRAMS, others)))
