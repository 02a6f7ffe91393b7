"""Constants of a graph in float64, where an exporter would round them to float32."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import fx

aten = torch.ops.aten

TENSOR_FORM: dict[Any, Any] = {
    aten.add.Scalar: aten.add.Tensor,
    aten.sub.Scalar: aten.sub.Tensor,
    aten.rsub.Scalar: aten.rsub.Tensor,
    aten.mul.Scalar: aten.mul.Tensor,
    aten.div.Scalar: aten.div.Tensor,
    aten.fmod.Scalar: aten.fmod.Tensor,
    aten.remainder.Scalar: aten.remainder.Tensor,
    aten.pow.Scalar: aten.pow.Tensor_Tensor,
    aten.clamp.default: aten.clamp.Tensor,
    aten.clamp_min.default: aten.clamp_min.Tensor,
    aten.clamp_max.default: aten.clamp_max.Tensor,
    aten.eq.Scalar: aten.eq.Tensor,
    aten.ne.Scalar: aten.ne.Tensor,
    aten.gt.Scalar: aten.gt.Tensor,
    aten.ge.Scalar: aten.ge.Tensor,
    aten.lt.Scalar: aten.lt.Tensor,
    aten.le.Scalar: aten.le.Tensor,
    aten.where.Scalar: aten.where.self,
    aten.where.ScalarSelf: aten.where.self,
    aten.where.ScalarOther: aten.where.self,
    aten.masked_fill.Scalar: aten.masked_fill.Tensor,
    **{op: op for op in (aten.add.Tensor, aten.sub.Tensor, aten.rsub.Tensor, aten.mul.Tensor, aten.div.Tensor)},
}
"""Operator with a number among its arguments -> the same operator with a tensor for the number."""
EXACT = {aten.pow.Tensor_Scalar}
"""Operators whose number is exported in float64."""


def keep_float64(graph: fx.GraphModule) -> bool:
    """Replace numbers that float32 does not hold by tensors, wherever a graph or a body of its loops is in float64.

    Returns whether there were any.

    Raises
    ------
    ValueError
        An operator takes such a number and no tensor.
    """
    loops = graph.graph.find_nodes(op="call_function", target=torch.ops.higher_order.while_loop)
    changed = [_replace_in_loop(graph, loop) for loop in loops]
    changed.append(_replace(graph, partial(_constant, graph)))
    return any(changed)


def _replace(graph: fx.GraphModule, node_of: Callable[[float], fx.Node]) -> bool:
    """Replace the numbers of one graph by the nodes that ``node_of`` gives for them."""
    rounded = [node for node in graph.graph.nodes if _is_float64(node) and any(map(_rounds, _numbers(node)))]
    for node in rounded:
        with graph.graph.inserting_before(node):
            if node.target in (aten.full.default, aten.scalar_tensor.default):
                _replace_full(graph, node, node_of)
            elif node.target in TENSOR_FORM and not _rounds(node.kwargs.get("alpha")):
                node.args = tuple(
                    node_of(argument) if isinstance(argument, float) else argument for argument in node.args
                )
                node.target = TENSOR_FORM[node.target]
            elif node.target not in EXACT:
                raise ValueError(f"{node.target}: its numbers {_numbers(node)} would be rounded to float32")
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return bool(rounded)


def _replace_full(graph: fx.GraphModule, node: fx.Node, node_of: Callable[[float], fx.Node]) -> None:
    constant = node_of(float(_numbers(node)[0]))
    if node.target is aten.full.default:
        expanded = graph.graph.call_function(aten.expand.default, (constant, node.args[0]))
        # The strides of ``full``: a loop takes no state whose strides change.
        constant = graph.graph.call_function(
            aten.clone.default, (expanded,), {"memory_format": torch.contiguous_format}
        )
    node.replace_all_uses_with(constant)


def _replace_in_loop(graph: fx.GraphModule, loop: fx.Node) -> bool:
    """Replace the numbers in the two graphs of a loop by inputs of both, as neither can have constants."""
    arguments: Any = loop.args
    *parts, carried, inputs = arguments
    bodies: list[fx.GraphModule] = [getattr(graph, part.target) for part in parts]
    constants: list[fx.Node] = []

    def input_of(body: int, number: float) -> fx.Node:
        with graph.graph.inserting_before(loop):
            constants.append(_constant(graph, number))
        placeholders: list[fx.Node] = []
        for module in bodies:
            last = [node for node in module.graph.nodes if node.op == "placeholder"][-1]
            with module.graph.inserting_after(last):
                placeholders.append(module.graph.placeholder(f"constant_{len(constants)}"))
        return placeholders[body]

    changed = [_replace(module, partial(input_of, body)) for body, module in enumerate(bodies)]
    loop.args = (*parts, carried, (*inputs, *constants))
    for module in bodies:
        module.recompile()
    return any(changed)


def _constant(graph: fx.GraphModule, number: float) -> fx.Node:
    """A constant of the graph."""
    name = f"constant_{sum(1 for buffer, _ in graph.named_buffers() if buffer.startswith('constant_'))}"
    graph.register_buffer(name, torch.tensor(number, dtype=torch.float64))
    return graph.graph.get_attr(name)


def _numbers(node: fx.Node) -> list[Any]:
    return [argument for argument in (*node.args, *node.kwargs.values()) if isinstance(argument, float)]


def _rounds(number: Any) -> bool:
    """Whether rounding to float32 changes a number."""
    if not isinstance(number, float) or not math.isfinite(number):
        return False
    with np.errstate(over="ignore", under="ignore"):
        return float(np.float32(number)) != number


def _is_float64(node: fx.Node) -> bool:
    values = [source.meta.get("val") for source in (node, *node.all_input_nodes)]
    return any(isinstance(value, torch.Tensor) and value.dtype == torch.float64 for value in values)
