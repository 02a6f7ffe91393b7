"""Separates sums over the term counts of several host steps, so that each part can be computed by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from torch import Tensor

from windtunnel.compiler.passes.fold import fold
from windtunnel.encode import RowEncoder
from windtunnel.modules.linear.linear import Linear
from windtunnel.modules.linear.projection import Projection
from windtunnel.modules.tables.category_table import SumGroups
from windtunnel.pipeline.host_step import HostStep
from windtunnel.program.program import NUMBERS
from windtunnel.program.wiring import Node, Place, Wiring

FEWEST_COUNTS = 64
"""Fewer counts than these are summed like other columns."""


def counting_hosts(encoder: RowEncoder, hosts: Sequence[HostStep]) -> dict[int, HostStep]:
    """The position in a batch's numbers -> the host step whose counts of terms it holds."""
    columns = {column: host for host in hosts if host.tokens and host.tokens.finite for column in host.columns}
    return {position: columns[column] for position, column in enumerate(encoder.numbers) if column in columns}


def separate_sums(wiring: Wiring, counts: dict[int, HostStep]) -> None:
    """Make a linear map over the counts of several host steps, and over other columns, a sum of linear maps, in place.

    A part reads the counts of one host step, or no counts. Weighting by rarity and norm are then folded into the part.

    Parameters
    ----------
    counts : dict
        See ``counting_hosts``.
    """
    counted: dict[Node, HostStep | None] = {}
    for node in wiring.nodes:
        counted[node] = counting_host(node, counts, counted)
    for node in list(wiring.nodes):
        if type(node.module) not in (Linear, Projection) or counted[node] is not None:
            continue
        parts: dict[HostStep | None, list[int]] = {}
        for at, (source, column) in enumerate(node.inputs):
            host = counted[source] if isinstance(source, Node) else counts.get(column) if source == NUMBERS else None
            parts.setdefault(host, []).append(at)
        rest = [at for host, columns in parts.items() if host is None or len(columns) < FEWEST_COUNTS for at in columns]
        sums = [columns for host, columns in parts.items() if host is not None and len(columns) >= FEWEST_COUNTS]
        if len(sums) + bool(rest) > 1:
            _separate(wiring, node, [*sums, sorted(rest)] if rest else sums)
    fold(wiring)


def counting_host(
    node: Node, counts: Mapping[int, HostStep], earlier: Mapping[Node, HostStep | None] = MappingProxyType({})
) -> HostStep | None:
    """The host step of whose counts alone a node's inputs are made; None if there is none.

    Parameters
    ----------
    counts : mapping
        See ``counting_hosts``.
    earlier : mapping
        The same for earlier nodes; without it, a node that reads others has none.
    """
    hosts = {
        earlier.get(source) if isinstance(source, Node) else counts.get(column) if source == NUMBERS else None
        for source, column in node.inputs
    }
    return hosts.pop() if len(hosts) == 1 else None


def _separate(wiring: Wiring, node: Node, parts: Sequence[Sequence[int]]) -> None:
    linear: Linear | Projection = node.module  # type: ignore[assignment]
    bias = linear.bias.detach()
    at = wiring.nodes.index(node)
    nodes = [_part(node, columns, bias if number == 0 else bias * 0) for number, columns in enumerate(parts)]
    wiring.nodes[at:at] = nodes
    summed: list[Place] = [(part, column) for part in nodes for column in range(len(bias))]
    node.module, node.inputs, node.rejects = SumGroups(len(nodes)), summed, ()


def _part(node: Node, columns: Sequence[int], bias: Tensor) -> Node:
    """The sums of some columns; those of a projection keep their centers, unless all are 0."""
    linear: Linear | Projection = node.module  # type: ignore[assignment]
    weight = linear.weight.detach()[:, list(columns)].contiguous()
    module: Linear | Projection = Linear(weight, bias)
    if isinstance(linear, Projection) and (center := linear.center[list(columns)]).any():
        module = Projection(weight, bias, center)
    return Node(module, [node.inputs[column] for column in columns], node.name, node.rejects, node.origin)
