"""Selection of columns, pushed down from the outputs to the rows (Hummingbird, section 5.2).

The pass goes backwards from the scores and the methods. It keeps of each step the columns that later steps use, and
asks the step which inputs it requires for them. Weights of zero and features that no tree reads drop columns even if
the source pipeline has no feature selection.

The program still rejects all rows that the source rejects. If a dropped column was checked for NaN or infinity, the
check moves upstream to the columns that it was computed from. A check that has no upstream form, such as one for
numbers beyond float32 after a scaler, keeps its column.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain

from windtunnel.modules.linear.residual_model import ResidualSum
from windtunnel.modules.tables.category_table import Identity
from windtunnel.program.non_finite import NOT_FINITE, Guard, NonFiniteTracer
from windtunnel.program.records.origin import Origin
from windtunnel.program.wiring import Node, NodeColumn, Source, Wiring


def select_columns(wiring: Wiring, widths: Mapping[Source, int], always_finite: Iterable[int] = ()) -> None:
    """Keep the columns of every node that later nodes use, and remove nodes without used columns, in place.

    ``widths`` has the number of columns of each source. ``always_finite`` are the columns of the numbers that hold
    neither NaN nor infinity, such as counts of tokens.
    """
    _ColumnSelection(wiring, widths, NonFiniteTracer(wiring, always_finite)).run()


class _ColumnSelection:
    """The state of the pass on its way from the outputs to the rows."""

    def __init__(self, wiring: Wiring, widths: Mapping[Source, int], tracer: NonFiniteTracer) -> None:
        self.wiring, self.widths, self.tracer = wiring, widths, tracer
        self.rejected_anyway = _rejected_anyway(wiring, tracer)
        self.output_nodes = {wiring.nodes[-1], *wiring.method_nodes.values()}
        # A residual model is added to the output of one node, which stays, also if it only joins the scores of others.
        sums = [node for node in wiring.nodes if isinstance(node.module, ResidualSum)]
        self.joined_scores = {source for node in sums for source, _ in node.inputs}
        self.used: dict[Source, set[int]] = defaultdict(set)
        self.passed_on: dict[NodeColumn, NodeColumn] = {}
        """Columns of removed nodes -> the columns that they passed on."""
        self.renumbered: dict[NodeColumn, NodeColumn] = {}
        self.guards: dict[Guard, Node] = {}
        self.checks: set[Guard] = set()
        """The checks of the nodes that remain."""

    def run(self) -> None:
        for node in self.output_nodes:
            self.used[node].update(range(self.widths[node]))
        remaining: set[Node] = set()
        for node in reversed(self.wiring.all_nodes()):
            if not self._remove(node):
                self._reduce(node)
                remaining.add(node)
        for node in remaining:
            node.inputs = [self._new_place(place) for place in node.inputs]
        self.wiring.nodes = [node for node in self.wiring.nodes if node in remaining]
        self._insert(self._guard_nodes())

    def _insert(self, guards: Iterable[Node]) -> None:
        """Put each guard behind the last node that it reads: the steps of a residual model have to stay the last ones.

        Guards never read the last node, and so do not become the last one.
        """
        nodes = self.wiring.nodes
        for guard in guards:
            read = {source for source, _ in guard.inputs}
            behind = [position for position, node in enumerate(nodes) if node in read]
            nodes.insert(1 + max(behind, default=-1), guard)

    def _remove(self, node: Node) -> bool:
        """Remove a node that is unused or an identity, if other nodes can make its checks; whether it was removed."""
        used = self.used[node]
        passes_on = isinstance(node.module, Identity) and node not in self.joined_scores
        if node in self.output_nodes or node.rejects_finite() or (used and not passes_on):
            return False
        if not self._move_checks(node, self.tracer.rejected(node)):
            return False
        self.passed_on |= {(node, column): node.inputs[column] for column in used}
        self._use(node.inputs[column] for column in used)
        return True

    def _reduce(self, node: Node) -> None:
        """Drop the unused columns of a node, if other nodes can make its checks of them."""
        used, needed = self._columns(node)
        width = len(node.inputs)
        unread = set(range(width)) - set(needed)
        smaller = bool(unread) or len(used) < self.widths[node]
        # The node still checks the columns that it reads.
        guards = self.tracer.rejected(node, unread) - self.tracer.rejected(node, needed)
        if smaller and self._move_checks(node, guards):
            node.module = node.module.select_columns(used, needed, width)
            node.inputs = [node.inputs[column] for column in needed]
            self.renumbered |= {(node, old): (node, new) for new, old in enumerate(used)}
        self.checks |= self.tracer.rejected(node)
        self._use(node.inputs)

    def _columns(self, node: Node) -> tuple[Sequence[int], Sequence[int]]:
        """The output columns that a node keeps, and the inputs that it requires for them; ascending."""
        width, every = len(node.inputs), range(self.widths[node])
        if node.rejects_finite():
            return every, range(width)
        for used in (sorted(self.used[node]), every):
            needed = node.module.required_columns(used, width) if used else None
            if needed is not None:
                # At least one column, for the number of rows.
                return used, sorted(self._mixed_in(node, set(needed))) or [0]
        return every, range(width)

    def _mixed_in(self, node: Node, needed: set[int]) -> set[int]:
        """Add columns of weight 0 whose NaN or infinity no needed column shares: 0 times NaN is NaN."""
        if not node.module.MIXES_COLUMNS:
            return needed
        kinds = NOT_FINITE.union(node.rejects)
        guards = ((column, self.tracer.guards(place, kinds)) for column, place in enumerate(node.inputs))
        column_guards = {column: checks for column, checks in guards if checks}
        covered = set[Guard]().union(*(checks for column, checks in column_guards.items() if column in needed))
        for column in sorted(column_guards.keys() - needed, key=lambda column: (len(column_guards[column]), column)):
            if not column_guards[column] <= covered:
                needed.add(column)
                covered |= column_guards[column]
        return needed

    def _move_checks(self, node: Node, guards: Iterable[Guard]) -> bool:
        """Let other nodes make the checks of a node; False if these would reject more rows than the source does.

        Then nothing is changed.
        """
        guards = {root for guard in guards for root in self._upstream(guard)}
        # Guards come before the last node, so that they cannot read it.
        if any(
            place[0] is self.wiring.nodes[-1] or not self.rejected_anyway((place, kinds)) for place, kinds in guards
        ):
            return False
        for guard in guards:
            self.guards.setdefault(guard, node)
        self._use(place for place, _ in guards)
        return True

    def _upstream(self, guard: Guard) -> Iterable[Guard]:
        """The guards of a column's roots if every output checks the roots anyway, else the guard itself.

        A product is infinite only if a factor is.
        """
        place, kinds = guard
        roots = self.tracer.causes(place).roots
        checked = kinds <= NOT_FINITE and all(map(self.rejected_anyway, roots))
        return roots if checked else [guard]

    def _guard_nodes(self) -> list[Node]:
        """One node per set of kinds, with the guards that no remaining node makes redundant."""
        # With methods, checks of remaining nodes do not count: a method checks rows by its own nodes alone.
        checked: dict[NodeColumn, frozenset[str]] = defaultdict(frozenset)
        for place, kinds in self.checks if not self.wiring.method_nodes else ():
            checked[place] |= kinds
        by_kinds: dict[frozenset[str], dict[NodeColumn, Node]] = defaultdict(dict)
        for (place, kinds), node in self.guards.items():
            if not kinds <= checked[place]:
                by_kinds[kinds].setdefault(self._new_place(place), node)
        order: dict[Source, int] = {node: position for position, node in enumerate(self.wiring.nodes)}
        nodes = []
        for kinds, owners in by_kinds.items():
            name = next(iter(owners.values())).name
            places = sorted(owners, key=lambda place: (order.get(place[0], -1), place[1]))
            nodes.append(Node(Identity(), places, name, tuple(sorted(kinds)), Origin(name, "")))
        return nodes

    def _use(self, places: Iterable[NodeColumn]) -> None:
        for source, column in places:
            self.used[source].add(column)

    def _new_place(self, place: NodeColumn) -> NodeColumn:
        """The new place of a column."""
        while place in self.passed_on:
            place = self.passed_on[place]
        return self.renumbered.get(place, place)


def _rejected_anyway(wiring: Wiring, tracer: NonFiniteTracer) -> Callable[[Guard], bool]:
    """The function that tells whether the scores and every method make the check of a guard anyway."""
    sources = {source for node in wiring.nodes for source, _ in node.inputs}
    unused = {node for node in wiring.nodes[:-1] if node not in sources}
    outputs: list[Iterable[Node]] = [wiring.nodes]
    outputs += [{node, *wiring.upstream(node), *unused} for node in wiring.method_nodes.values()]
    rejected = [_by_place(tracer.rejected(node) for node in nodes) for nodes in outputs]

    def everywhere(guard: Guard) -> bool:
        place, kinds = guard
        return all(any(kinds <= other for other in checks[place]) for checks in rejected)

    return everywhere


def _by_place(guards: Iterable[Iterable[Guard]]) -> dict[NodeColumn, set[frozenset[str]]]:
    places: dict[NodeColumn, set[frozenset[str]]] = defaultdict(set)
    for place, kinds in chain.from_iterable(guards):
        places[place].add(kinds)
    return places
