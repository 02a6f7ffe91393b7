"""Separates sums over the term counts of several host steps, so that each part can be computed by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from torch import Tensor

from windtunnel.modules.linear.linear import Linear
from windtunnel.modules.linear.projection import Projection
from windtunnel.modules.tables.category_table import SumGroups
from windtunnel.pipeline.host_step import HostStep
from windtunnel.program.program import NUMBERS
from windtunnel.program.wiring import Node, NodeColumn, Wiring

FEWEST_COUNTS = 64
"""Fewer counts of a host step than these are summed like other columns."""


def separate_sums(wiring: Wiring, counts: Mapping[int, HostStep]) -> None:
    """Make a linear map over the counts of several host steps, and over other columns, a sum of linear maps, in place.

    A part reads the counts of one host step (see ``counting_hosts``), or no counts. ``fold`` then merges weighting by
    rarity and norm with the part.
    """
    hosts: dict[Node, HostStep | None] = {}
    sizes = Counter(counts.values())

    def host_of(place: NodeColumn) -> HostStep | None:
        """The host step of whose counts alone a column is made."""
        source, column = place
        return hosts[source] if isinstance(source, Node) else counts.get(column) if source == NUMBERS else None

    for node in list(wiring.nodes):
        parts: dict[HostStep | None, list[int]] = {}
        for at, place in enumerate(node.inputs):
            parts.setdefault(host_of(place), []).append(at)
        hosts[node] = next(iter(parts), None) if len(parts) == 1 else None
        if type(node.module) not in (Linear, Projection) or len(parts) == 1:
            continue
        sums = [columns for host, columns in parts.items() if host is not None and sizes[host] >= FEWEST_COUNTS]
        if rest := sorted({*range(len(node.inputs))}.difference(*sums)):
            sums.append(rest)
        if len(sums) > 1:
            _separate(wiring, node, sums)


def _separate(wiring: Wiring, node: Node, parts: Sequence[Sequence[int]]) -> None:
    linear: Linear | Projection = node.module  # type: ignore[assignment]
    bias = linear.bias.detach()
    at = wiring.nodes.index(node)
    nodes = [_part(node, columns, bias if number == 0 else bias * 0) for number, columns in enumerate(parts)]
    wiring.nodes[at:at] = nodes
    summed: list[NodeColumn] = [(part, column) for part in nodes for column in range(len(bias))]
    node.module, node.inputs, node.rejects = SumGroups(len(nodes)), summed, ()


def _part(node: Node, columns: Sequence[int], bias: Tensor) -> Node:
    """The sums of some columns; those of a projection keep their centers, unless all are 0."""
    linear: Linear | Projection = node.module  # type: ignore[assignment]
    weight = linear.weight.detach()[:, list(columns)].contiguous()
    module: Linear | Projection = Linear(weight, bias)
    if isinstance(linear, Projection) and (center := linear.center[list(columns)]).any():
        module = Projection(weight, bias, center)
    return Node(module, [node.inputs[column] for column in columns], node.name, node.rejects, node.origin)
