"""Sums over the term counts of host steps, computed without going through zeros.

A host step counts terms: a sparse matrix with a column per term. A linear model reads sums of these counts. Here the
host step gives the sums, a few columns, and the program that reads them is shorter::

    texts -> host step: counts [B, 20,000] -> TermSums [B, 1] -> ...
    texts -> host step: counts, summed [B, 1] ->              -> ...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from windtunnel.encode import RowEncoder
from windtunnel.modules.linear.linear import Linear
from windtunnel.modules.tables.category_table import Identity
from windtunnel.modules.tables.tfidf import TermSums
from windtunnel.pipeline.host_step import HostStep
from windtunnel.program.program import NUMBERS, Program
from windtunnel.program.wiring import Node, Wiring


def counting_hosts(encoder: RowEncoder, hosts: Sequence[HostStep]) -> dict[int, HostStep]:
    """The position in a batch's numbers -> the host step whose counts of terms it holds; they are always finite."""
    columns = {column: host for host in hosts if host.tokens and host.tokens.finite for column in host.columns}
    return {position: columns[column] for position, column in enumerate(encoder.numbers) if column in columns}


def summed_host(node: Node, counts: Mapping[int, HostStep]) -> HostStep | None:
    """The host step whose counts a node sums, if it does nothing else; ``counts`` are those of ``counting_hosts``."""
    hosts = {counts.get(column) if source == NUMBERS else None for source, column in node.inputs}
    sums = type(node.module) in (Linear, TermSums) and len({*node.inputs}) == len(node.inputs)
    return hosts.pop() if sums and len(hosts) == 1 else None


@dataclass(frozen=True, eq=False)
class CountSums:
    """Weighted sums of the term counts of a host step."""

    first: int  # the column of the host step's first count
    encoder: RowEncoder  # the counts that are summed, in the order of the weights
    module: Linear | TermSums  # the weights

    @classmethod
    def of(cls, node: Node, host: HostStep, encoder: RowEncoder) -> CountSums:
        """The sums of a node over the counts of ``summed_host``."""
        assert isinstance(node.module, Linear | TermSums)
        numbers = [encoder.numbers[column] for _, column in node.inputs]
        return cls(host.columns[0], replace(encoder, numbers=numbers, categories=[]), node.module)

    @property
    def width(self) -> int:
        """The number of sums."""
        return len(self.module.bias)

    def compute(self, counts: sparse.coo_array) -> NDArray[Any]:
        """The sums, ``[B, K]`` in the type of the encoder."""
        with torch.inference_mode():
            return self.module.of_sparse(self.encoder.sparse_counts(self.first, counts)).numpy()


@dataclass(frozen=True, eq=False)
class SummingHost(HostStep):
    """A host step that gives sums over its counts; ``columns`` are those of the sums."""

    host: HostStep | None = None  # the step that counts
    sums: Sequence[CountSums] = ()

    @classmethod
    def of(cls, host: HostStep, sums: Sequence[CountSums], first: int) -> SummingHost:
        """Sums over the counts of a host step, as columns from ``first`` on."""
        columns = range(first, first + sum(part.width for part in sums))
        return cls(host.step, tuple(columns), host.reason, host.tokens, source=host.source, host=host, sums=sums)

    def count(self, rows: Any) -> NDArray[Any]:
        """The sums ``[B, columns]``."""
        assert self.host is not None
        counts = self.host.count(rows)
        return np.hstack([part.compute(counts) for part in self.sums])


class SummedCounts(NamedTuple):
    """A program that reads sums over counts where another one reads the counts; it shares that one's modules."""

    program: Program
    encoder: RowEncoder
    hosts: list[HostStep]

    @classmethod
    def of(cls, program: Program, encoder: RowEncoder, hosts: Sequence[HostStep]) -> SummedCounts | None:
        """The program with sums for the counts of every host step that nothing but sums reads; None without any."""
        if not (counts := counting_hosts(encoder, hosts)):
            return None
        wiring = Wiring.of(program)
        _remove_checks_of_counts(wiring, counts)
        summed = _summed_nodes(wiring, counts)
        kept = [position for position in range(len(encoder.numbers)) if counts.get(position) not in summed]
        numbers, places = [encoder.numbers[position] for position in kept], {at: to for to, at in enumerate(kept)}
        sums = {host: [CountSums.of(node, host, encoder) for node in nodes] for host, nodes in summed.items()}
        for node in set(wiring.all_nodes()).difference(*summed.values()):
            node.inputs = [(source, places[at] if source == NUMBERS else at) for source, at in node.inputs]
        summing: dict[HostStep, HostStep] = {}
        first = 1 + max(host.columns[-1] for host in hosts)
        for host, nodes in summed.items():
            summing[host] = SummingHost.of(host, sums[host], first)
            for node, part in zip(nodes, sums[host], strict=True):
                node.inputs = [(NUMBERS, len(numbers) + at) for at in range(part.width)]
                node.module, node.rejects = Identity(), ()
                numbers += range(first, first + part.width)
                first += part.width
        if not summing:
            return None
        return cls(wiring.program()[0], replace(encoder, numbers=numbers), [summing.get(host, host) for host in hosts])


def _remove_checks_of_counts(wiring: Wiring, counts: Mapping[int, HostStep]) -> None:
    """Take the counts out of the nodes that only check their inputs, as counts always pass."""
    for node in wiring.guards():
        node.inputs = [place for place in node.inputs if place[0] != NUMBERS or place[1] not in counts]
        if not node.inputs:
            wiring.nodes.remove(node)


def _summed_nodes(wiring: Wiring, counts: Mapping[int, HostStep]) -> dict[HostStep, list[Node]]:
    """The nodes that sum the counts of each host step, where no other node reads them."""
    summed: dict[HostStep, list[Node]] = {}
    others: set[HostStep] = set()
    for node in wiring.all_nodes():
        host = summed_host(node, counts)
        if host is not None and node in wiring.nodes:
            summed.setdefault(host, []).append(node)
        else:
            others |= {counts[at] for source, at in node.inputs if source == NUMBERS and at in counts}
    return {host: nodes for host, nodes in summed.items() if host not in others}
