"""Finds the computations that two models share, so that each is done once."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from windtunnel.encode import CategoryColumn
from windtunnel.pipeline.host_step import HostStep
from windtunnel.program.program import IDS
from windtunnel.program.weights_digest import weights_digest
from windtunnel.program.wiring import Node, NodeColumn

if TYPE_CHECKING:
    from windtunnel.serving.cascade.stage_builder import WiredModel


def same_step(ours: HostStep, theirs: HostStep) -> bool:
    """Whether two host steps compute the same from raw rows, wherever its columns are."""
    return ours.name == theirs.name and ours.same_fit(replace(theirs, columns=ours.columns))


@dataclass(eq=False)
class ComputationKeys:
    """A number for each node: nodes with equal numbers have equal modules, weights and inputs."""

    _nodes: dict[Node, int] = field(default_factory=dict)
    _numbers: dict[Hashable, int] = field(default_factory=dict)
    _categories: list[CategoryColumn] = field(default_factory=list)
    _hosts: list[HostStep] = field(default_factory=list)

    def node(self, model: WiredModel, node: Node) -> int:
        """The number of a node."""
        if node not in self._nodes:
            inputs = tuple(self._place(model, place) for place in node.inputs)
            facts = json.dumps(node.module.facts(), sort_keys=True, default=str)
            computation = (type(node.module), facts, weights_digest(node.module), inputs)
            self._nodes[node] = self._numbers.setdefault(computation, len(self._numbers))
        return self._nodes[node]

    def _place(self, model: WiredModel, place: NodeColumn) -> Hashable:
        """A column that a node reads: of another node, of the rows, or of a host step."""
        source, column = place
        if isinstance(source, Node):
            return self.node(model, source), column
        if source == IDS:
            return "id", _position(self._categories, model.net.encoder.categories[column], CategoryColumn.__eq__)
        if (host_column := model.host_column(column)) is not None:
            host, position = host_column
            return "host", _position(self._hosts, host, same_step), position
        return "raw", model.net.encoder.numbers[column]


def _position(items: list[Any], item: Any, equal: Callable[[Any, Any], Any]) -> int:
    """The place of an item in a list, to which it is added if no other equals it."""
    for position, other in enumerate(items):
        if other is item or equal(other, item):
            return position
    items.append(item)
    return len(items) - 1
