"""Collects what a stage of a cascade computes, and which numbers it needs for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from torch import Tensor

from windtunnel.compiler.backends import native_engine
from windtunnel.compiler.passes.fold import fold
from windtunnel.compiler.passes.separate_sums import separate_sums
from windtunnel.modules.tables.category_table import Identity
from windtunnel.pipeline.host_step import HostStep
from windtunnel.program.head import Head
from windtunnel.program.program import IDS, NUMBERS
from windtunnel.program.records.origin import Origin
from windtunnel.program.summed_counts import CountSums, counting_hosts, summed_host
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.program.wiring import Node, NodeColumn, Wiring
from windtunnel.serving.cascade.host_features import HostFeatures
from windtunnel.serving.cascade.stage import Stage


@dataclass(frozen=True)
class RawColumn:
    """A raw column of numbers."""

    column: int


@dataclass(frozen=True)
class HostColumn:
    """An output column of a host step."""

    host: HostStep
    position: int


@dataclass(frozen=True)
class HostSum:
    """A weighted sum of the term counts of a host step: an output column of one of its ``CountSums``."""

    host: HostStep
    sums: int
    column: int


@dataclass(frozen=True)
class Shared:
    """A column of the model that an earlier stage has computed."""

    place: NodeColumn


Number = RawColumn | HostColumn | HostSum | Shared
"""A number that a stage reads; its position among all of them is known when the stage is complete."""
StageInput = Number | NodeColumn
"""An input of a node of a stage: a number, an id, or a column of a node of the model."""


@dataclass(eq=False)
class WiredModel:
    """A net as a wiring whose sums over term counts are separate."""

    net: TranslatedPipeline
    wiring: Wiring
    outputs: list[NodeColumn]  # the outputs of the method
    finish: Callable[[Tensor], Tensor]  # turns these into predictions
    counts: dict[int, HostStep]  # see ``counting_hosts``

    @classmethod
    def of(cls, net: TranslatedPipeline, method: str) -> WiredModel:
        """A net, and the method that the cascade takes from it."""
        wiring, counts = Wiring.of(net.program, net.origins), counting_hosts(net.encoder, net.hosts)
        separate_sums(wiring, counts)
        fold(wiring)
        end = wiring.method_nodes.get(method, wiring.nodes[-1])
        width = wiring.widths(net.encoder)[end]
        finish: Callable[[Tensor], Tensor] = net.head.predicted if method == "predict" else net.head.probabilities
        if method in wiring.method_nodes:
            finish = _flat if method == "predict" and net.head.flat else Tensor.double
        return cls(net, wiring, [(end, column) for column in range(width)], finish, counts)

    def host_column(self, position: int) -> tuple[HostStep, int] | None:
        """The host step of a number, and the position in its output; None for a raw column."""
        column = self.net.encoder.numbers[position]
        for host in self.net.hosts:
            if column in range(host.columns[0], host.columns[-1] + 1):
                return host, column - host.columns[0]
        return None


@dataclass(eq=False)
class StageBuilder:
    """Collects the nodes and numbers of a stage, from the outputs back to the rows."""

    model: WiredModel
    # the input of an earlier stage that holds a column of the model; None for those that this stage computes
    reused: Callable[[NodeColumn], StageInput | None] = field(default=lambda place: None)
    # the columns of the model that an earlier stage computes, and its inputs that hold them
    shared: dict[NodeColumn, StageInput] = field(default_factory=dict)
    _nodes: dict[Node, list[StageInput]] = field(default_factory=dict)
    _hosts: dict[HostStep, HostFeatures] = field(default_factory=dict)
    _raw: set[int] = field(default_factory=set)
    _sums: dict[Node, list[HostSum]] = field(default_factory=dict)

    def input_of(self, place: NodeColumn) -> StageInput:
        """The input of this stage for a column of the model; collects the nodes that compute it."""
        source, column = place
        if place in self.shared:
            return Shared(place)
        if source not in self._nodes and (earlier := self.reused(place)) is not None:
            self.shared[place] = earlier
            return Shared(place)
        if source == IDS:
            return place
        if isinstance(source, Node):
            if (host := summed_host(source, self.model.counts)) is not None:
                return self.sums(host, self.model, source)[column]
            if source not in self._nodes:
                inputs = [self.input_of(read) for read in source.inputs]  # the nodes that it reads come first
                self._nodes[source] = inputs
            return place
        if (host_column := self.model.host_column(column)) is not None:
            return self.host(*host_column)
        self._raw.add(self.model.net.encoder.numbers[column])
        return RawColumn(self.model.net.encoder.numbers[column])

    def host(self, host: HostStep, position: int) -> HostColumn:
        """An output column of a host step."""
        features = self._hosts.setdefault(host, HostFeatures(host))
        if position not in features.columns:
            features.columns.append(position)
        return HostColumn(host, position)

    def sums(self, host: HostStep, model: WiredModel, node: Node) -> list[HostSum]:
        """The sums over the counts of a host step that a node of a model computes."""
        if node not in self._sums:
            features = self._hosts.setdefault(host, HostFeatures(host))
            counting = summed_host(node, model.counts)
            assert counting is not None
            sums = CountSums.of(node, counting, model.net.encoder)
            self._sums[node] = [HostSum(host, len(features.sums), column) for column in range(sums.width)]
            features.sums.append(sums)
        return self._sums[node]

    def guard(self) -> None:
        """Collect the nodes that only reject rows; counts are always finite."""
        for node in self.model.wiring.guards():
            inputs = [place for place in node.inputs if place[0] != NUMBERS or place[1] not in self.model.counts]
            if inputs:
                self._nodes[node] = [self.input_of(place) for place in inputs]

    def stage(self, outputs: Sequence[StageInput], count: int) -> Stage:
        """The stage that computes some sources; the first ``count`` are the model's outputs."""
        numbers, copies = self._numbers(), dict[Node, Node]()
        positions = {number: position for position, number in enumerate(numbers)}

        def place(source: StageInput) -> NodeColumn:
            if isinstance(source, Number):
                return NUMBERS, positions[source]
            return (copies[source[0]] if isinstance(source[0], Node) else source[0]), source[1]

        for node, inputs in self._nodes.items():
            copies[node] = replace(node, inputs=[place(source) for source in inputs])
        name = "outputs of the stage"
        end = Node(Identity(), [place(source) for source in outputs], name, (), Origin(name, ""))
        program, origins = Wiring([*copies.values(), end], {}).program()
        encoder = self.model.net.encoder
        computed = range(encoder.width, encoder.width + len(numbers) - len(self._raw))
        encoder = replace(encoder, numbers=[*sorted(self._raw), *computed])
        net = TranslatedPipeline(program, encoder, Head("transform"), origins)
        net.requires_grad_(False)
        net.configure(engine=native_engine(net), batch_size=self.model.net.batch_size)
        return Stage(net, list(self._hosts.values()), len(self.shared), count, self.model.finish)

    def _numbers(self) -> list[Number]:
        """All numbers in their order: raw columns, those of each host step, shared ones."""
        numbers: list[Number] = [RawColumn(column) for column in sorted(self._raw)]
        for host, features in self._hosts.items():
            numbers += [HostColumn(host, position) for position in features.columns]
            widths = [sums.width for sums in features.sums]
            numbers += [HostSum(host, at, column) for at, width in enumerate(widths) for column in range(width)]
        return numbers + [Shared(place) for place in self.shared]


def _flat(values: Tensor) -> Tensor:
    return values.double()[:, 0]
