"""Folding of linear maps: multiplies scalers and category tables into the weights of the linear maps after them.

A scaler before weighted sums becomes their center and a factor of their weights, so that a chain of scalers and a
linear model is one ``Projection``. Weighting and norm of term counts, with the sums after them, become one pass over
the counts. A table before weighted sums is multiplied by their weights: a one-hot category is looked up as the K sums
that it adds. Scalers before trees stay, because a value at a threshold must be rounded as in the source.
"""

from __future__ import annotations

from collections import defaultdict
from types import UnionType

import torch
from torch import Tensor

from windtunnel.modules.columns.affine import Affine
from windtunnel.modules.linear.linear import Linear
from windtunnel.modules.linear.projection import Projection
from windtunnel.modules.tables.category_table import CategoryTable, SumGroups
from windtunnel.modules.tables.one_hot import OneHot
from windtunnel.modules.tables.tfidf import TermSums, Tfidf, weighted
from windtunnel.program.non_finite import NOT_FINITE
from windtunnel.program.records.origin import Origin
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.program.wiring import Node, Source, Wiring

LARGEST_SHIFT = 1000.0
"""A scaler that shifts a column by more than this, in units of its output, is not folded: the outputs would differ from
the source by more than the last few digits."""


def fold(wiring: Wiring) -> None:
    """Multiply scalers, then tables, into the linear maps after them, in place."""
    for node in list(wiring.nodes):
        if type(node.module) in (Linear, Projection):
            while scaler := _scaler_before(wiring, node):
                _fold_scaler(node, scaler)
                wiring.nodes.remove(scaler)
            _fold_tables(wiring, node)
        if type(node.module) is Linear and (terms := _terms_before(wiring, node)):
            _fold_terms(node, terms)
            wiring.nodes.remove(terms)
    _drop_unread(wiring)


def look_up_sums(net: TranslatedPipeline) -> None:
    """Multiply one-hot columns without a table into the linear maps after them, in place.

    The products are a learnable table ``[V, K]``, which can represent all weights of such columns.
    """
    if not any(isinstance(step.module, OneHot) for step in net.program.steps):
        return
    wiring = Wiring.of(net.program, net.origins)
    for node in list(wiring.nodes):
        if type(node.module) in (Linear, Projection):
            _fold_tables(wiring, node, OneHot, trainable=True)
    _drop_unread(wiring)
    program, origins = wiring.program()
    net.replace_program(program, origins=origins)


def _scaler_before(wiring: Wiring, node: Node) -> Node | None:
    """A scaler whose columns are inputs of this linear map alone."""
    users = wiring.users()
    for source in dict.fromkeys(source for source, _ in node.inputs):
        if isinstance(source, Node) and type(source.module) is Affine and users[source] == {node}:
            if _may_fold(node, source):
                return source
    return None


def _may_fold(node: Node, scaler: Node) -> bool:
    """Whether the linear map makes the checks of the scaler, and folding changes only the last few digits."""
    if not set(scaler.rejects) <= set(node.rejects) or "huge" in node.rejects:
        return False
    columns = [column for source, column in node.inputs if source is scaler]
    weight, _, _ = _folded(node, scaler)
    affine: Affine = scaler.module  # type: ignore[assignment]
    center = _center(node)[[source is scaler for source, _ in node.inputs]]
    near = torch.maximum(affine.shift.double()[columns].abs(), center.abs()) <= LARGEST_SHIFT
    return bool(near.all()) and bool(torch.isfinite(weight.to(_map(node).weight.dtype)).all())


def _fold_scaler(node: Node, scaler: Node) -> None:
    weight, bias, center = _folded(node, scaler)
    dtype = _map(node).weight.dtype
    node.module = Projection(weight.to(dtype), bias.to(dtype), center.to(dtype))
    node.inputs = [scaler.inputs[column] if source is scaler else (source, column) for source, column in node.inputs]
    node.origin = _joint_origin(scaler, node)


def _folded(node: Node, scaler: Node) -> tuple[Tensor, Tensor, Tensor]:
    """Weight, bias and center of ((x - c) / u s + h - C) W^T + b, with c for the center; float64."""
    affine: Affine = scaler.module  # type: ignore[assignment]
    from_scaler = torch.tensor([source is scaler for source, _ in node.inputs])
    columns = [column for source, column in node.inputs if source is scaler]
    scale, shift, new, unit = (
        tensor.detach().double()[columns] for tensor in (affine.scale, affine.shift, affine.center, affine.unit)
    )
    weight, bias, center = _map(node).weight.detach().double().clone(), _map(node).bias.double(), _center(node)
    bias = bias + weight[:, from_scaler] @ (shift - center[from_scaler])
    weight[:, from_scaler] *= scale / unit
    center[from_scaler] = new
    return weight, bias, center


def _terms_before(wiring: Wiring, node: Node) -> Node | None:
    """The node of weighted counts that this linear map, and no other node, reads; None if it reads others too."""
    sources = {source for source, _ in node.inputs}
    source = next(iter(sources), None)
    if len(sources) != 1 or not isinstance(source, Node) or type(source.module) is not Tfidf:
        return None
    # Folded, the linear map checks the counts.
    same_checks = set(source.rejects) <= set(node.rejects) <= NOT_FINITE
    return source if source.module.norm and same_checks and wiring.users()[source] == {node} else None


def _fold_terms(node: Node, terms: Node) -> None:
    tfidf: Tfidf = terms.module  # type: ignore[assignment]
    linear, idf = _map(node), tfidf.idf.detach()
    columns = tfidf.terms([column for _, column in node.inputs])
    weight = linear.weight.new_zeros(len(linear.bias), len(terms.inputs))
    # A term may occur twice.
    weight.index_add_(1, torch.tensor(columns, device=weight.device), linear.weight.detach())
    node.module = TermSums(idf, weighted(weight, idf), linear.bias, tfidf.norm)
    node.inputs, node.origin = terms.inputs, _joint_origin(terms, node)


def _joint_origin(first: Node, second: Node) -> Origin:
    """The origin of a step that replaces two."""
    origins = (first.origin, second.origin)
    estimators = [origin.estimator for origin in origins if origin.estimator]
    return Origin(" + ".join(origin.name for origin in origins), " + ".join(estimators))


def _fold_tables(
    wiring: Wiring, node: Node, kinds: type | UnionType = CategoryTable | OneHot, *, trainable: bool = False
) -> None:
    """Replace weighted sums of a table's columns by a table of sums; the node then adds these tables and the rest."""
    columns_of: dict[Source, list[int]] = defaultdict(list)
    for at, (source, _) in enumerate(node.inputs):
        columns_of[source].append(at)
    sums = len(_map(node).bias)
    tables = {
        source: columns
        for source, columns in columns_of.items()
        if isinstance(source, Node) and isinstance(source.module, kinds) and len(columns) > sums
        if not isinstance(source.module, CategoryTable) or torch.isfinite(source.module.rows).all()
    }
    if not tables:
        return
    looked_up = [_multiplied_table(node, table, at, trainable) for table, at in tables.items()]
    folded = {at for columns in tables.values() for at in columns}
    rest = [at for at in range(len(node.inputs)) if at not in folded]
    if rest:
        every = range(sums)
        module = node.module.select_columns(every, rest, len(node.inputs))
        looked_up.append(Node(module, [node.inputs[at] for at in rest], node.name, node.rejects, node.origin))
    else:
        first: CategoryTable = looked_up[0].module  # type: ignore[assignment]
        looked_up[0].module = CategoryTable(first.rows + _map(node).bias.detach(), trainable)
    at = wiring.nodes.index(node)
    wiring.nodes[at:at] = looked_up
    node.module, node.rejects = SumGroups(len(looked_up)), ()
    node.inputs = [(table, column) for table in looked_up for column in range(sums)]


def _multiplied_table(node: Node, table: Node, at: list[int], trainable: bool) -> Node:
    """The node of a table multiplied by the weights of its columns."""
    module: CategoryTable | OneHot = table.module  # type: ignore[assignment]
    columns, weight = [node.inputs[position][1] for position in at], _map(node).weight.detach()
    sums = module.times(columns, _center(node)[at], weight.double()[:, at])
    product = CategoryTable(sums.to(weight.dtype), trainable)
    return Node(product, list(table.inputs), table.name, (), table.origin)


def _map(node: Node) -> Linear | Projection:
    module: Linear | Projection = node.module  # type: ignore[assignment]
    return module


def _center(node: Node) -> Tensor:
    module, none = _map(node), torch.zeros(len(node.inputs), dtype=torch.float64)
    return module.center.double().clone() if isinstance(module, Projection) else none


def _drop_unread(wiring: Wiring) -> None:
    """Remove tables that no node reads."""
    users = wiring.users()
    wiring.nodes = [
        node
        for node in wiring.nodes
        if node in users or node.rejects or node.rejects_finite() or node is wiring.nodes[-1]
    ]
