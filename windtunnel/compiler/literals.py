"""Numbers that are written in code, kept in float64 where an exporter would round them to float32."""

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
"""Operators with a number among their arguments -> the same with a tensor in its place."""
EXACT = {aten.pow.Tensor_Scalar}
"""Operators whose number is exported in float64."""


def keep_literals(graph: fx.GraphModule) -> bool:
    """Put tensors in the place of the numbers that float32 does not hold, wherever the graph computes in float64.

    In the bodies of its loops too. Tells whether there were any.

    Raises
    ------
    ValueError
        An operator takes such a number and no tensor.
    """
    loops = graph.graph.find_nodes(op="call_function", target=torch.ops.higher_order.while_loop)
    some = [_keep_in_loop(graph, loop) for loop in loops]
    some.append(_keep(graph, partial(_held, graph)))
    return any(some)


def _keep(graph: fx.GraphModule, held: Callable[[float], fx.Node]) -> bool:
    """Replace the numbers of one graph by what ``held`` gives for them."""
    rounded = [node for node in graph.graph.nodes if _is_float64(node) and any(map(_rounds, _numbers(node)))]
    for node in rounded:
        with graph.graph.inserting_before(node):
            if node.target in (aten.full.default, aten.scalar_tensor.default):
                _replace_constant(graph, node, held)
            elif node.target in TENSOR_FORM and not _rounds(node.kwargs.get("alpha")):
                node.args = tuple(held(one) if isinstance(one, float) else one for one in node.args)
                node.target = TENSOR_FORM[node.target]
            elif node.target not in EXACT:
                raise ValueError(f"{node.target}: its numbers {_numbers(node)} would be rounded to float32")
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return bool(rounded)


def _replace_constant(graph: fx.GraphModule, node: fx.Node, held: Callable[[float], fx.Node]) -> None:
    constant = held(float(_numbers(node)[0]))
    if node.target is aten.full.default:
        expanded = graph.graph.call_function(aten.expand.default, (constant, node.args[0]))
        # As ``full`` lays it out: a loop takes no state whose strides change.
        constant = graph.graph.call_function(
            aten.clone.default, (expanded,), {"memory_format": torch.contiguous_format}
        )
    node.replace_all_uses_with(constant)


def _keep_in_loop(graph: fx.GraphModule, loop: fx.Node) -> bool:
    """Replace the numbers in the two graphs of a loop by inputs of both, as neither can have constants of its own."""
    arguments: Any = loop.args
    *parts, carried, given = arguments
    graphs: list[fx.GraphModule] = [getattr(graph, part.target) for part in parts]
    found: list[fx.Node] = []

    def input_of(at: int, number: float) -> fx.Node:
        with graph.graph.inserting_before(loop):
            found.append(_held(graph, number))
        inputs: list[fx.Node] = []
        for one in graphs:
            last = [node for node in one.graph.nodes if node.op == "placeholder"][-1]
            with one.graph.inserting_after(last):
                inputs.append(one.graph.placeholder(f"literal_{len(found)}"))
        return inputs[at]

    some = [_keep(one, partial(input_of, at)) for at, one in enumerate(graphs)]
    loop.args = (*parts, carried, (*given, *found))
    for one in graphs:
        one.recompile()
    return any(some)


def _held(graph: fx.GraphModule, number: float) -> fx.Node:
    """A constant of the graph."""
    name = f"literal_{sum(1 for one, _ in graph.named_buffers() if one.startswith('literal_'))}"
    graph.register_buffer(name, torch.tensor(number, dtype=torch.float64))
    return graph.graph.get_attr(name)


def _numbers(node: fx.Node) -> list[Any]:
    return [one for one in (*node.args, *node.kwargs.values()) if isinstance(one, float)]


def _rounds(number: Any) -> bool:
    """Whether float32 holds another number."""
    if not isinstance(number, float) or not math.isfinite(number):
        return False
    with np.errstate(over="ignore", under="ignore"):
        return float(np.float32(number)) != number


def _is_float64(node: fx.Node) -> bool:
    values = [one.meta.get("val") for one in (node, *node.all_input_nodes)]
    return any(isinstance(value, torch.Tensor) and value.dtype == torch.float64 for value in values)
