"""Splits a small and a full model into two stages: the second computes only what the first has not.

An example: the small model reads a title, the full one also a price. Titles are counted by the source's own code::

    small model     title -> counts -> A                                  -> probabilities
    full model      title -> counts -> B; price -> scaled; B + 2 * scaled -> probabilities

    first stage     reads title                   computes counts, A and B; A gives the small model's probabilities
    second stage    reads price and is handed B   computes scaled and B + 2 * scaled, for the full model's

The first stage has the counts at hand, so it computes the sum B too, which only the full model needs. From each output
of the full model, ``StageBuilder`` goes back towards the rows. It stops where ``_Overlap`` finds that the first stage
computes a column, or could compute it from the host steps that it runs anyway. These columns are handed on.
"""

from __future__ import annotations

from dataclasses import dataclass

from windtunnel.compiler.native.engine import NativeEngine
from windtunnel.pipeline.host_step import HostStep
from windtunnel.program.program import NUMBERS
from windtunnel.program.summed_counts import summed_host
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.program.wiring import Node, NodeColumn
from windtunnel.serving.cascade.equal_steps import ComputationKeys, same_step
from windtunnel.serving.cascade.stage import Stage
from windtunnel.serving.cascade.stage_builder import StageBuilder, StageInput, WiredModel

MOST_SHARED_COUNTS = 256
"""The most counts of a host step that are handed on, if a step other than a sum reads them; more are counted again."""


def split_cascade(small: TranslatedPipeline, full: TranslatedPipeline, method: str) -> tuple[Stage, Stage] | None:
    """Both stages of a cascade; None if the second has nothing to reuse, or a net runs on an engine of another kind."""
    if not (_splits(small) and _splits(full)):
        return None
    first, full_model = StageBuilder(WiredModel.of(small, method)), WiredModel.of(full, method)
    second = StageBuilder(full_model, _Overlap.of(first, full_model).source)
    outputs = _collect(first)
    full_outputs = _collect(second)
    if not second.shared:
        return None
    return (
        first.stage([*outputs, *second.shared.values()], len(outputs)),
        second.stage(full_outputs, len(full_outputs)),
    )


def single_stage(net: TranslatedPipeline, method: str) -> Stage | None:
    """A net with steps on the host as a stage, whose sums over term counts go through no zeros; None for others."""
    if not net.hosts or not _splits(net):
        return None
    builder = StageBuilder(WiredModel.of(net, method))
    outputs = _collect(builder)
    return builder.stage(outputs, len(outputs))


def _splits(net: TranslatedPipeline) -> bool:
    native = net.engine is None or isinstance(net.engine, NativeEngine)
    return native and net.encoder.dtype == "float64" and net.device().type == "cpu" and not net.program.needs_all_rows()


def _collect(builder: StageBuilder) -> list[StageInput]:
    """Collect all that the outputs of the model need, and return their sources."""
    outputs = [builder.input_of(place) for place in builder.model.outputs]
    builder.guard()
    return outputs


@dataclass(frozen=True, eq=False)
class _Overlap:
    """The computations of the full model that the first stage does, or could do."""

    first: StageBuilder
    full: WiredModel
    nodes: dict[Node, Node]  # node of the full model -> the equal node of the small one
    hosts: dict[HostStep, HostStep]  # host step of the full model -> the equal host step of the small one

    @classmethod
    def of(cls, first: StageBuilder, full: WiredModel) -> _Overlap:
        keys, small = ComputationKeys(), first.model
        computed = {keys.node(small, node): node for node in small.wiring.nodes}
        equal = {node: computed.get(keys.node(full, node)) for node in full.wiring.nodes}
        hosts = {theirs: ours for theirs in full.net.hosts for ours in small.net.hosts if same_step(ours, theirs)}
        return cls(first, full, {node: match for node, match in equal.items() if match is not None}, hosts)

    def source(self, place: NodeColumn) -> StageInput | None:
        """The source in the first stage of a column of the full model; None if the second stage has to compute it."""
        source, column = place
        if isinstance(source, Node):
            if source in self.nodes:
                return self.first.input_of((self.nodes[source], column))
            host = summed_host(source, self.full.counts)
            return self.first.sums(self.hosts[host], self.full, source)[column] if host in self.hosts else None
        if source != NUMBERS or (host_column := self.full.host_column(column)) is None:
            return None
        host, position = host_column
        if host not in self.hosts or (host.tokens is not None and len(host.columns) > MOST_SHARED_COUNTS):
            return None
        return self.first.host(self.hosts[host], position)
