"""A program as a graph of nodes, which passes can add and remove."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from windtunnel.encode import RowEncoder
from windtunnel.modules.base import Module
from windtunnel.modules.tables.category_table import Identity
from windtunnel.program.program import IDS, NUMBERS, Program, ProgramStep, slot_of, takes_of
from windtunnel.program.records.origin import Origin

NO_ORIGIN = Origin("", "")


@dataclass(eq=False)
class Node:
    """A program step: its module, its input columns, and the kinds of values that it rejects."""

    module: Module
    inputs: list[NodeColumn]
    name: str
    rejects: tuple[str, ...]
    origin: Origin

    def rejects_finite(self) -> bool:
        """Whether the source may reject finite numbers, as Box-Cox rejects negative ones."""
        return self.module.rejects_by_itself()


Source = Node | int
"""Where columns come from: a node, or a block of the batch, ``NUMBERS`` or ``IDS``."""
NodeColumn = tuple[Source, int]
"""A source and the position of a column in it."""


@dataclass
class Wiring:
    """Nodes in the order of computation, the last for the scores, and a node per method that has its own step."""

    nodes: list[Node]
    method_nodes: dict[str, Node]

    @classmethod
    def of(cls, program: Program, origins: Sequence[Origin] | None = None) -> Wiring:
        """The wiring of a program; its steps may lack origins."""
        sources: list[Source] = [NUMBERS, IDS]
        origins = [NO_ORIGIN] * len(program.steps) if origins is None else origins
        for step, origin in zip(program.steps, origins, strict=True):
            sources.append(_node(step, origin, sources))
        method_nodes = {method: _node(step, NO_ORIGIN, sources) for method, step in program.method_steps.items()}
        return cls([source for source in sources if isinstance(source, Node)], method_nodes)

    def all_nodes(self) -> list[Node]:
        """All nodes, those of methods last."""
        return [*self.nodes, *self.method_nodes.values()]

    def users(self) -> dict[Source, set[Node]]:
        """The nodes that read each source."""
        users: dict[Source, set[Node]] = defaultdict(set)
        for node in self.all_nodes():
            for source, _ in node.inputs:
                users[source].add(node)
        return users

    def guards(self) -> list[Node]:
        """Identities that nothing reads: they only reject rows."""
        users = self.users()
        return [
            node for node in self.nodes[:-1] if node.rejects and type(node.module) is Identity and node not in users
        ]

    def upstream(self, node: Node) -> set[Node]:
        """The nodes that a node depends on."""
        reached: set[Node] = set()
        new = [node]
        while new:
            sources = {source for source, _ in new.pop().inputs}
            fresh = {source for source in sources if isinstance(source, Node)} - reached
            reached |= fresh
            new += fresh
        return reached

    def widths(self, encoder: RowEncoder) -> dict[Source, int]:
        """The number of columns of each source."""
        program, _ = self.program()
        values = [*encoder.zeros(2)]
        with torch.no_grad():
            for step in program.steps:
                values.append(step(values))
            outputs = [step(values) for step in program.method_steps.values()]
        sources: list[Source] = [NUMBERS, IDS, *self.nodes, *self.method_nodes.values()]
        return {
            source: value.reshape(2, -1).shape[1] for source, value in zip(sources, [*values, *outputs], strict=True)
        }

    def program(self) -> tuple[Program, list[Origin]]:
        """The program of the nodes, and the origins of its steps."""
        slots: dict[Source, int] = {NUMBERS: NUMBERS, IDS: IDS}
        slots |= {node: slot_of(position) for position, node in enumerate(self.nodes)}
        steps = [_step(node, slots) for node in self.nodes]
        method_steps = {method: _step(node, slots) for method, node in self.method_nodes.items()}
        return Program(steps, method_steps), [node.origin for node in self.nodes]


def _node(step: ProgramStep, origin: Origin, sources: Sequence[Source]) -> Node:
    inputs = [(sources[slot], column) for slot, column in step.places()]
    return Node(step.module, inputs, step.name, step.rejects, origin)


def _step(node: Node, slots: Mapping[Source, int]) -> ProgramStep:
    takes = takes_of((slots[source], column) for source, column in node.inputs)
    return ProgramStep(node.module, takes, node.name, node.rejects)
