"""Launch the Triton kernels of soft trees: the same sums as ``kernel``, fused.

``WINDTUNNEL_TRITON=float32`` or ``bf16`` selects them; without it, or if a shape does not fit, straight torch runs.
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
from windtunnel.modules.trees.soft.kernel.memory import ROWS_PER_MASK
from windtunnel.modules.trees.soft.kernel.operands import LEARNED, Dropout, SoftOperands
from windtunnel.modules.trees.soft.kernel.overrides import category_codes
from windtunnel.modules.trees.soft.kernel.tree_pass import dropout_mask

if TYPE_CHECKING:
    from windtunnel.modules.trees.soft.gpu.triton_kernels import KernelForm, KernelOperands, KernelSizes

log = logging.getLogger("windtunnel")

SWITCH = "WINDTUNNEL_TRITON"
"""The environment variable that selects Triton."""
PRODUCTS = ("float32", "bf16")
"""Its values: of which type the factors of matrix products are; sums are float32."""
NODES = 256
"""Most nodes of a tree; a block holds them all."""
WEIGHTS = {"float32": 4096, "bf16": 16384}
"""Most weights between nodes and leaves that a block holds, so that they find room beside the rows; the leaves of
larger trees come one block after the other."""
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


def takes(operands: SoftOperands) -> bool:
    """Whether Triton computes these trees; if it is selected but cannot, the log says why once.

    Raises
    ------
    BadInput
        ``WINDTUNNEL_TRITON`` is neither float32 nor bf16, or triton is not installed.
    """
    if not os.environ.get(SWITCH):
        return False
    _product_type()
    reason = _obstacle(operands)
    if reason:
        _log_once(reason)
    return not reason


def _product_type() -> str:
    product_type = os.environ[SWITCH]
    if product_type not in PRODUCTS:
        raise BadInput(f"{SWITCH}={product_type}; set it to {' or '.join(PRODUCTS)}, or unset it for straight torch")
    if find_spec("triton") is None:
        raise BadInput(f"{SWITCH}={product_type} needs triton, which is not installed; pip install triton, or unset it")
    return product_type


def _obstacle(operands: SoftOperands) -> str:
    """Why straight torch has to run; empty if Triton can."""
    from windtunnel.modules.trees.soft.gpu.triton_kernels import INTERPRETED

    trees, nodes, leaves = operands.path.shape
    scores = _scores(operands)
    reasons = {
        f"rows are on {operands.z.device.type}": not (operands.z.is_cuda or INTERPRETED),
        f"rows are {operands.z.dtype}": operands.z.dtype != torch.float32,
        f"trees have {nodes} nodes, more than {NODES}": nodes > NODES,
        f"there are {scores} scores, more than {SCORES}": scores > SCORES,
        "there is nothing to compute": min(trees, nodes, leaves, scores, *operands.z.shape) == 0,
    }
    return "; ".join(reason for reason, holds in reasons.items() if holds)


@cache
def _log_once(reason: str) -> None:
    log.info("soft trees are computed in straight torch although %s is set: %s", SWITCH, reason)


def forward(operands: SoftOperands, dropout: Dropout, products: str = "") -> Tensor:
    """Scores ``[K, B]`` without a base, or the leaves ``[T * l, B]``; ``products`` overrides ``WINDTUNNEL_TRITON``."""
    from windtunnel.modules.trees.soft.gpu.triton_kernels import scores_kernel

    trees, size, form = _prepared(operands, dropout, products or _product_type())
    blocks = _cuts(size.batch, form.R)
    if form.SCORED:
        per_group = _share(size.trees, blocks)
        groups = _cuts(size.trees, per_group)
        out = operands.z.new_empty(groups, size.scores, size.batch)
    else:
        per_group, groups = 1, size.trees
        out = operands.z.new_empty(size.trees * size.leaves, size.batch)
    with _on(operands.z):
        scores_kernel[blocks, groups](trees, out, size, per_group, form, num_warps=WARPS)
    return out.sum(dim=0) if form.SCORED else out


def backward(
    grad: Tensor, operands: SoftOperands, dropout: Dropout, wanted: list[bool], products: str = ""
) -> list[Tensor]:
    """Gradients in the order of ``LEARNED`` from that of the output; empty where none is wanted."""
    wants = {name for name, wish in zip(LEARNED, wanted, strict=True) if wish}
    trees, size, form = _prepared(operands, dropout, products or _product_type())
    grad = grad.contiguous()
    gradients: dict[str, Tensor] = {}
    with _on(operands.z):
        if wants - {"z"}:
            gradients |= _of_weights(operands, grad, wants, trees, size, form)
        if "z" in wants:
            gradients["z"] = _of_input(operands, grad, trees, size, form)
    return [gradients[name] if name in wants else operands.z.new_empty(0) for name in LEARNED]


def _of_weights(
    operands: SoftOperands, grad: Tensor, wants: set[str], trees: KernelOperands, size: KernelSizes, form: KernelForm
) -> dict[str, Tensor]:
    from windtunnel.modules.trees.soft.gpu.triton_kernels import GradientParts, weights_kernel

    second, table = bool(wants & {"path", "path_bias"}), "category_table" in wants and form.CATEGORIES
    form = form._replace(
        WEIGHT="weight" in wants, THRESHOLD="threshold" in wants, PATH=second, VALUE="leaf_value" in wants, TABLE=table
    )
    tiles, blocks = (_cuts(size.width, form.D) if form.WEIGHT else 1), _cuts(size.leaves, form.L)
    per_chunk = _share(_cuts(size.batch, form.R), size.trees * blocks * tiles)
    chunks = _cuts(size.batch, form.R * per_chunk)

    def room(there: bool, parts: int, *shape: int) -> Tensor:
        return operands.z.new_empty((parts, *shape) if there else 0)

    into = GradientParts(
        weight=room(form.WEIGHT, chunks * blocks, *operands.weight.shape),
        threshold=room(form.THRESHOLD, chunks * blocks, *operands.threshold.shape),
        path=room(second, chunks, *operands.path.shape),
        path_bias=room(second, chunks, *operands.path_bias.shape),
        leaf_value=room(form.VALUE, chunks, *operands.leaf_value.shape),
        looked_up=room(table, blocks, size.entries, size.batch),
    )
    weights_kernel[size.trees * blocks, chunks, tiles](trees, grad, into, size, per_chunk, form, num_warps=WARPS)
    gradients = {name: part.sum(dim=0) for name, part in into._asdict().items()}
    gradients["category_table"] = (
        _of_table(operands, gradients["looked_up"]) if table else torch.zeros_like(operands.category_table)
    )
    return {name: gradients[name] for name in wants if name in gradients}


def _of_table(operands: SoftOperands, looked_up: Tensor) -> Tensor:
    """The gradient of the table of categories from that of what each row looked up, ``[c, B]``."""
    known = operands.category_table.shape[1] - 2
    column = category_codes(operands.x[:, operands.feature.flatten()[operands.category_node]].t(), known)
    row = torch.arange(len(column), device=column.device).unsqueeze(1).expand_as(column)
    # Unlike scatter_add and index_add, this adds up in one order on a GPU too.
    return torch.zeros_like(operands.category_table).index_put_((row, column), looked_up, accumulate=True)


def _of_input(
    operands: SoftOperands, grad: Tensor, trees: KernelOperands, size: KernelSizes, form: KernelForm
) -> Tensor:
    from windtunnel.modules.trees.soft.gpu.triton_kernels import input_kernel

    blocks, tiles = _cuts(size.batch, form.R), _cuts(size.width, form.D)
    per_group = _share(size.trees, blocks * tiles)
    groups = _cuts(size.trees, per_group)
    into = operands.z.new_empty(groups, size.batch, size.width)
    input_kernel[blocks, groups, tiles](trees, grad, into, size, per_group, form, num_warps=WARPS)
    return into.sum(dim=0)


def _prepared(
    operands: SoftOperands, dropout: Dropout, products: str
) -> tuple[KernelOperands, KernelSizes, KernelForm]:
    """Operands and sizes for the kernels, and what these are compiled for."""
    from windtunnel.modules.trees.soft.gpu.triton_kernels import INTERPRETED, KernelForm, KernelOperands, KernelSizes

    (batch, width), (count, nodes, leaves) = operands.z.shape, operands.path.shape
    gather, settled, looks_up = not operands.weight.numel(), operands.x.numel() > 0, operands.category_node.numel() > 0
    fields = operands._replace(
        z=operands.z.t() if gather else operands.z, x=operands.x.t() if settled else operands.x
    )._asdict()
    fields |= {"entry": _entry(operands) if looks_up else operands.category_node, "kept": _kept(operands, dropout)}
    trees = KernelOperands(*(fields[name].contiguous() for name in KernelOperands._fields))
    size = KernelSizes(
        batch, width, count, nodes, leaves, scores=_scores(operands), entries=len(operands.category_table),
        columns=operands.category_table.shape[-1], blocks=trees.kept.shape[-1], scale=1 / (1 - dropout.rate),
    )  # fmt: skip
    bf16 = products == "bf16"
    form = KernelForm(
        R=ROWS[products], N=_power(nodes), L=min(_power(leaves), max(16, WEIGHTS[products] // _power(nodes))),
        K=_power(size.scores),
        W=min(_power(width), COLUMNS), D=min(_power(width), SUMMED), M=ROWS_PER_MASK,
        GATHER=gather, SETTLED=settled, CATEGORIES=looks_up, DROPPED=dropout.rate > 0, WHOLE=dropout.whole,
        SCORED=operands.leaf_value.dim() == 3, BF16=bf16, ROUND=bf16 and INTERPRETED,
    )  # fmt: skip
    return trees, size, form


def _entry(operands: SoftOperands) -> Tensor:
    """int64 ``[T, n]``, the row of the table of categories that belongs to a node, or -1."""
    entry = torch.full_like(operands.feature, -1)
    entry.view(-1)[operands.category_node] = torch.arange(len(operands.category_node), device=entry.device)
    return entry


def _kept(operands: SoftOperands, dropout: Dropout) -> Tensor:
    """int8 ``[T, n + 1 + l, blocks of rows]``: what dropout keeps, as in straight torch; empty without dropout."""
    if not dropout.rate:
        return operands.z.new_zeros(0, dtype=torch.int8)
    # A tree at a time, as what is drawn are floats.
    return torch.cat([dropout_mask(operands, slice(tree, tree + 1), dropout) for tree in range(len(operands.path))]).to(
        torch.int8
    )


def _scores(operands: SoftOperands) -> int:
    return int(operands.leaf_value.shape[2]) if operands.leaf_value.dim() == 3 else 1


def _on(z: Tensor) -> AbstractContextManager[Any]:
    """Kernels go to the current device, whatever their tensors are on."""
    return torch.cuda.device(z.device) if z.is_cuda else nullcontext()


def _power(count: int) -> int:
    """The power of two that holds ``count``, and that a matrix product of a GPU takes."""
    return max(16, 1 << (count - 1).bit_length())


def _cuts(whole: int, part: int) -> int:
    return -(-whole // part)


def _share(whole: int, others: int) -> int:
    """How much of ``whole`` a program takes where each share is met by ``others`` programs."""
    return _cuts(whole, min(whole, _cuts(PROGRAMS, others)))
