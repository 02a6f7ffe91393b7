"""Splits a small and a full program into two stages: the second reuses what the first has computed."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

from torch import Tensor

from windtunnel.compiler.backends import native_engine
from windtunnel.compiler.native.engine import NativeEngine
from windtunnel.encode import CategoryColumn
from windtunnel.modules.linear.linear import Linear
from windtunnel.modules.tables.category_table import Identity
from windtunnel.modules.tables.tfidf import TermSums
from windtunnel.pipeline.host_step import HostStep
from windtunnel.program.head import Head
from windtunnel.program.program import IDS, NUMBERS
from windtunnel.program.records.origin import Origin
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.program.wiring import Node, Place, Wiring
from windtunnel.serving.cascade.separate_sums import counting_host, counting_hosts, separate_sums
from windtunnel.serving.cascade.sources import CountSums, HostFeatures
from windtunnel.serving.cascade.stage import Stage

MOST_SHARED_COUNTS = 256
"""Of a host step whose counts a step other than a sum reads, at most so many are handed on; more are counted again."""


@dataclass(eq=False)
class Model:
    """A net as a wiring whose sums over term counts are separate.

    Attributes
    ----------
    ends : list of Place
        The outputs of the method.
    finish : callable
        From these to predictions.
    counts : dict
        See ``counting_hosts``.
    """

    net: TranslatedPipeline
    wiring: Wiring
    ends: list[Place]
    finish: Callable[[Tensor], Tensor]
    counts: dict[int, HostStep]

    @classmethod
    def of(cls, net: TranslatedPipeline, method: str) -> Model:
        """A net, and the method that the cascade takes from it."""
        wiring, counts = Wiring.of(net.program, net.origins), counting_hosts(net.encoder, net.hosts)
        separate_sums(wiring, counts)
        end = wiring.method_nodes.get(method, wiring.nodes[-1])
        width = wiring.widths(net.encoder)[end]
        finish: Callable[[Tensor], Tensor] = net.head.predicted if method == "predict" else net.head.probabilities
        if method in wiring.method_nodes:
            finish = _flat if method == "predict" and net.head.flat else _as_it_is
        return cls(net, wiring, [(end, column) for column in range(width)], finish, counts)

    def sums_host(self, node: Node) -> HostStep | None:
        """The host step of whose counts a node computes sums, and nothing else."""
        return counting_host(node, self.counts) if type(node.module) in (Linear, TermSums) else None

    def host_column(self, position: int) -> tuple[HostStep, int] | None:
        """The host step of a number, and the position in its output; None for a raw column."""
        column = self.net.encoder.numbers[position]
        for host in self.net.hosts:
            if column in range(host.columns[0], host.columns[-1] + 1):
                return host, column - host.columns[0]
        return None

    def guards(self) -> list[Node]:
        """Nodes that only reject rows."""
        users = self.wiring.users()
        return [node for node in self.wiring.nodes[:-1] if node not in users and node.rejects]


def split(small: TranslatedPipeline, full: TranslatedPipeline, method: str) -> tuple[Stage, Stage] | None:
    """Both stages of a cascade; None if the second has nothing to reuse, or a net runs on an engine of another kind."""
    if not all(map(_splits, (small, full))):
        return None
    first, second = Model.of(small, method), Model.of(full, method)
    keys = _Keys()
    computed = {keys.node(first, node): node for node in first.wiring.nodes}
    same_hosts = {theirs: ours for theirs in full.hosts for ours in small.hosts if same_step(ours, theirs)}
    one, two = _StageBuilder(first), _StageBuilder(second)

    def reused(place: Place) -> Any:
        """Where the first stage computes a column of the full model; None if it does not."""
        source, column = place
        if isinstance(source, Node):
            if (match := computed.get(keys.node(second, source))) is not None:
                return one.place((match, column))
            if (host := second.sums_host(source)) is not None and host in same_hosts:
                return one.sums(same_hosts[host], second, source)[column]
        elif source == NUMBERS and (found := second.host_column(column)) and (ours := same_hosts.get(found[0])):
            if found[0].tokens is None or len(found[0].columns) <= MOST_SHARED_COUNTS:
                return one.host(ours, found[1])
        return None

    two.reused = reused
    ends = [one.place(place) for place in first.ends]
    one.guard()
    final = [two.place(place) for place in second.ends]
    two.guard()
    if not two.shared:
        return None
    return one.stage([*ends, *two.shared.values()], len(ends)), two.stage(final, len(final))


def single_stage(net: TranslatedPipeline, method: str) -> Stage | None:
    """A net with steps on the host as a stage, whose sums over term counts go through no zeros; None for others."""
    if not net.hosts or not _splits(net):
        return None
    builder = _StageBuilder(Model.of(net, method))
    ends = [builder.place(place) for place in builder.model.ends]
    builder.guard()
    return builder.stage(ends, len(ends))


def _splits(net: TranslatedPipeline) -> bool:
    native = net.engine is None or isinstance(net.engine, NativeEngine)
    return native and net.encoder.dtype == "float64" and net.device().type == "cpu" and not net.program.needs_all_rows()


def same_step(ours: HostStep, theirs: HostStep) -> bool:
    """Whether two host steps compute the same from raw rows."""
    if ours.name != theirs.name:
        return False
    if ours.step.estimator is theirs.step.estimator is not None:
        return True
    facts = [{**host.facts(), "columns": None} for host in (ours, theirs)]
    return facts[0]["counter"] is not None and facts[0] == facts[1]


@dataclass(eq=False)
class _Keys:
    """A key per node and column; equal keys are equal computations on equal inputs."""

    nodes: dict[Node, int] = field(default_factory=dict)
    known: dict[Hashable, int] = field(default_factory=dict)
    categories: list[CategoryColumn] = field(default_factory=list)
    hosts: list[HostStep] = field(default_factory=list)

    def node(self, model: Model, node: Node) -> int:
        """The key of a node."""
        if node not in self.nodes:
            inputs = tuple(self.place(model, place) for place in node.inputs)
            facts = json.dumps(node.module.facts(), sort_keys=True, default=str)
            key = (type(node.module), facts, _digest(node.module.state_dict()), inputs)
            self.nodes[node] = self.known.setdefault(key, len(self.known))
        return self.nodes[node]

    def place(self, model: Model, place: Place) -> Hashable:
        """The key of a column."""
        source, column = place
        if isinstance(source, Node):
            return self.node(model, source), column
        if source == IDS:
            return "id", _position(self.categories, model.net.encoder.categories[column], CategoryColumn.__eq__)
        if (found := model.host_column(column)) is not None:
            return "host", _position(self.hosts, found[0], same_step), found[1]
        return "raw", model.net.encoder.numbers[column]


def _position(items: list[Any], item: Any, equal: Callable[[Any, Any], Any]) -> int:
    for position, other in enumerate(items):
        if other is item or equal(other, item):
            return position
    items.append(item)
    return len(items) - 1


def _digest(tensors: Mapping[str, Tensor]) -> bytes:
    digest = blake2b()
    for name, tensor in tensors.items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().contiguous().numpy().tobytes())
    return digest.digest()


@dataclass(eq=False)
class _StageBuilder:
    """Collects the nodes and inputs of a stage; its numbers get their positions at the end.

    Until then a place in the numbers is a key: a raw column, a column or sum of a host step, or a shared column.
    """

    model: Model
    reused: Callable[[Place], Any] = field(default=lambda place: None)
    nodes: dict[Node, Node] = field(default_factory=dict)
    hosts: dict[HostStep, HostFeatures] = field(default_factory=dict)
    raw: dict[int, None] = field(default_factory=dict)
    summed: dict[Node, list[Any]] = field(default_factory=dict)
    shared: dict[Any, Any] = field(default_factory=dict)

    def place(self, place: Place) -> Any:
        """The place of a column of the model in this stage."""
        source, column = place
        if place in self.shared:
            return "shared", place
        if source not in self.nodes and (earlier := self.reused(place)) is not None:
            self.shared[place] = earlier
            return "shared", place
        if source == IDS:
            return place
        if not isinstance(source, Node):
            found = self.model.host_column(column)
            if found is not None:
                return self.host(*found)
            self.raw[self.model.net.encoder.numbers[column]] = None
            return "raw", self.model.net.encoder.numbers[column]
        if (host := self.model.sums_host(source)) is not None:
            return self.sums(host, self.model, source)[column]
        return self.node(source), column

    def node(self, node: Node) -> Node:
        """The node of this stage for one of the model."""
        if node not in self.nodes:
            self.nodes[node] = replace(node, inputs=[self.place(place) for place in node.inputs])
            self.nodes[node] = self.nodes.pop(node)  # after those that it reads
        return self.nodes[node]

    def host(self, host: HostStep, position: int) -> Any:
        """The place of an output column of a host step."""
        features = self.hosts.setdefault(host, HostFeatures(host))
        if position not in features.columns:
            features.columns.append(position)
        return "host", host, position

    def sums(self, host: HostStep, model: Model, node: Node) -> list[Any]:
        """The places of sums over the counts of a host step."""
        if node not in self.summed:
            features = self.hosts.setdefault(host, HostFeatures(host))
            encoder, module = model.net.encoder, node.module
            assert isinstance(module, Linear | TermSums)
            read = replace(encoder, numbers=[encoder.numbers[column] for _, column in node.inputs], categories=[])
            theirs = counting_host(node, model.counts)
            assert theirs is not None
            number = len(features.sums)
            features.sums.append(CountSums(theirs.columns[0], read, module))
            self.summed[node] = [("sum", host, number, column) for column in range(len(module.bias))]
        return self.summed[node]

    def guard(self) -> None:
        """Keep the nodes that only reject rows; counts are always finite."""
        for node in self.model.guards():
            inputs = [place for place in node.inputs if place[0] != NUMBERS or place[1] not in self.model.counts]
            if inputs and type(node.module) is Identity:
                self.nodes[node] = replace(node, inputs=[self.place(place) for place in inputs])

    def stage(self, outputs: Iterable[Any], count: int) -> Stage:
        """The stage that computes some places; the first ``count`` are the model's."""
        positions = self._positions()
        end = Node(Identity(), list(outputs), "outputs of the stage", (), Origin("outputs of the stage", ""))
        nodes = [*self.nodes.values(), end]
        for node in nodes:
            node.inputs = [self._numbered(place, positions) for place in node.inputs]
        program, origins = Wiring(nodes, {}).program()
        encoder = self.model.net.encoder
        computed = range(encoder.width, encoder.width + len(positions) - len(self.raw))
        encoder = replace(encoder, numbers=[*sorted(self.raw), *computed])
        net = TranslatedPipeline(program, encoder, Head("transform"), origins)
        net.requires_grad_(False)
        net.configure(engine=native_engine(net), batch_size=self.model.net.batch_size)
        return Stage(net, list(self.hosts.values()), len(self.shared), count, self.model.finish)

    def _positions(self) -> dict[Any, int]:
        """The position of each key among the numbers."""
        keys: list[Any] = [("raw", column) for column in sorted(self.raw)]
        for host, features in self.hosts.items():
            keys += [("host", host, position) for position in features.columns]
            widths = [len(sums.module.bias) for sums in features.sums]
            keys += [("sum", host, number, at) for number, width in enumerate(widths) for at in range(width)]
        keys += [("shared", place) for place in self.shared]
        return {key: position for position, key in enumerate(keys)}

    def _numbered(self, place: Any, positions: Mapping[Any, int]) -> Place:
        return (NUMBERS, positions[place]) if isinstance(place[0], str) else place


def _flat(values: Tensor) -> Tensor:
    return values.double()[:, 0]


def _as_it_is(values: Tensor) -> Tensor:
    return values.double()
