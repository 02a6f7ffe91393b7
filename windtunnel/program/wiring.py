"""A program as nodes that can be taken out and put in: columns are named by the node that gives them, not by a slot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from windtunnel.encode import RowEncoder
from windtunnel.modules.base import Module
from windtunnel.program.origin import Origin
from windtunnel.program.program import IDS, NUMBERS, Program, ProgramStep, Take, takes_of


@dataclass(eq=False)
class Node:
    """A step: its module, and the columns that it is given."""

    module: Module
    given: list[Place]
    name: str
    rejects: tuple[str, ...]
    origin: Origin

    def bounded(self) -> bool:
        """Whether the module itself says what its source rejects."""
        return type(self.module).outside is not Module.outside


Source = Node | int
"""What gives columns: a node, or a block of the batch, ``NUMBERS`` or ``IDS``."""
Place = tuple[Source, int]
"""A column of what a source gives."""


@dataclass
class Wiring:
    """Nodes in order, the last of which gives the scores, and a node per method that has its own."""

    nodes: list[Node]
    answers: dict[str, Node]

    @classmethod
    def of(cls, program: Program, origins: Sequence[Origin]) -> Wiring:
        """Read a program."""
        sources: list[Source] = [NUMBERS, IDS]
        for step, origin in zip(program.steps, origins, strict=True):
            sources.append(_node(step, origin, sources))
        answers = {method: _node(step, Origin("", ""), sources) for method, step in program.answers.items()}
        return cls([source for source in sources if isinstance(source, Node)], answers)

    def everything(self) -> list[Node]:
        """All nodes, those of methods behind the others."""
        return [*self.nodes, *self.answers.values()]

    def users(self) -> dict[Source, set[Node]]:
        """Who is given columns of a source."""
        users: dict[Source, set[Node]] = defaultdict(set)
        for node in self.everything():
            for source, _ in node.given:
                users[source].add(node)
        return users

    def before(self, node: Node) -> set[Node]:
        """The nodes that a node's answer is made of."""
        found: set[Node] = set()
        new = [node]
        while new:
            sources = {source for source, _ in new.pop().given}
            fresh = {source for source in sources if isinstance(source, Node)} - found
            found |= fresh
            new += fresh
        return found

    def widths(self, encoder: RowEncoder) -> dict[Source, int]:
        """How many columns each source gives."""
        numbers = torch.zeros(2, len(encoder.numbers), dtype=getattr(torch, encoder.dtype))
        program, _ = self.program()
        values = [numbers, torch.zeros(2, len(encoder.categories), dtype=torch.int64)]
        with torch.no_grad():
            for step in program.steps:
                values.append(step(values))
            ends = [step(values) for step in program.answers.values()]
        sources: list[Source] = [NUMBERS, IDS, *self.nodes, *self.answers.values()]
        return {one: value.reshape(2, -1).shape[1] for one, value in zip(sources, [*values, *ends], strict=True)}

    def program(self) -> tuple[Program, list[Origin]]:
        """The program of the nodes, and where its steps come from."""
        slots: dict[Source, int] = {NUMBERS: NUMBERS, IDS: IDS}
        slots |= {node: 2 + position for position, node in enumerate(self.nodes)}
        steps = [_step(node, slots) for node in self.nodes]
        answers = {method: _step(node, slots) for method, node in self.answers.items()}
        return Program(steps, answers), [node.origin for node in self.nodes]


def _node(step: nn.Module, origin: Origin, sources: Sequence[Source]) -> Node:
    assert isinstance(step, ProgramStep)
    takes: Sequence[Take] = step.takes  # type: ignore[assignment]
    given = [(sources[take.slot], column) for take in takes for column in take.columns.tolist()]
    return Node(step.module, given, step.name, step.rejects, origin)


def _step(node: Node, slots: Mapping[Source, int]) -> ProgramStep:
    takes = takes_of((slots[source], column) for source, column in node.given)
    return ProgramStep(node.module, takes, node.name, node.rejects)
