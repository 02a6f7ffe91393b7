"""Feature selection, injected and pushed down: nothing is computed that no answer and no rejection is made of.

Backwards from the scores and the methods, each step is narrowed to the columns that are wanted of it, and says which
columns it needs for them. Weights of zero and features that no tree reads start what selections do in the source
(Hummingbird, section 5.2).

What the source rejects in a column that goes unread is rejected further up, where it comes from: NaN in a product is
NaN in one of its factors, and what is infinite behind an imputer and a scaler was infinite in the rows. What cannot be
told further up, such as a number beyond float32 behind a scaler, is computed as before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain

from windtunnel.modules.tables.category_table import Identity
from windtunnel.program.non_finite import NOT_FINITE, Guard, NonFiniteTracer
from windtunnel.program.origin import Origin
from windtunnel.program.wiring import Node, Place, Source, Wiring


def narrow(wiring: Wiring, widths: Mapping[Source, int], always_finite: Iterable[int] = ()) -> None:
    """Narrow every node to what is wanted of it, and take out those of which nothing is.

    Parameters
    ----------
    wiring : Wiring
        Changed in place.
    widths : mapping of Source to int
        How many columns each source gives.
    always_finite : iterable of int
        Columns of the numbers that hold neither NaN nor infinity, such as counts of tokens.
    """
    _Narrowing(wiring, widths, NonFiniteTracer(wiring, always_finite)).run()


class _Narrowing:
    """What is known on the way from the answers to the rows."""

    def __init__(self, wiring: Wiring, widths: Mapping[Source, int], tracer: NonFiniteTracer) -> None:
        self.wiring, self.widths, self.tracer = wiring, widths, tracer
        self.rejected_anyway = _rejected_anyway(wiring, tracer)
        self.ends = {wiring.nodes[-1], *wiring.method_nodes.values()}
        self.wanted: dict[Source, set[int]] = defaultdict(set)
        self.passed: dict[Place, Place] = {}
        """Columns of nodes that are gone -> those that they passed on."""
        self.renumbered: dict[Place, Place] = {}
        self.guards: dict[Guard, Node] = {}
        self.held: set[Guard] = set()
        """What nodes that are kept reject by themselves."""

    def run(self) -> None:
        for end in self.ends:
            self.wanted[end].update(range(self.widths[end]))
        kept: set[Node] = set()
        for node in reversed(self.wiring.everything()):
            if not self._dissolve(node):
                self._cut(node)
                kept.add(node)
        for node in kept:
            node.given = [self._now(place) for place in node.given]
        self.wiring.nodes = [node for node in self.wiring.nodes if node in kept]
        self.wiring.nodes[-1:-1] = self._guarding()

    def _dissolve(self, node: Node) -> bool:
        """Do without a node that nobody reads or that passes columns on, if what it rejects is rejected elsewhere."""
        wanted = self.wanted[node]
        if node in self.ends or node.bounded() or (wanted and not isinstance(node.module, Identity)):
            return False
        if not self._guarded(node, self.tracer.rejected(node)):
            return False
        self.passed |= {(node, column): node.given[column] for column in wanted}
        self._want(node.given[column] for column in wanted)
        return True

    def _cut(self, node: Node) -> None:
        """Narrow a node to what is wanted of it, if what it rejects in the other columns is rejected elsewhere."""
        wanted, needed = self._columns(node)
        width = len(node.given)
        unread = set(range(width)) - set(needed)
        less = bool(unread) or len(wanted) < self.widths[node]
        # What it still reads it still rejects.
        guards = self.tracer.rejected(node, unread) - self.tracer.rejected(node, needed)
        if less and self._guarded(node, guards):
            node.module = node.module.select_columns(wanted, needed, width)
            node.given = [node.given[column] for column in needed]
            self.renumbered |= {(node, old): (node, new) for new, old in enumerate(wanted)}
        self.held |= self.tracer.rejected(node)
        self._want(node.given)

    def _columns(self, node: Node) -> tuple[Sequence[int], Sequence[int]]:
        """The columns that a node may give, and those that it needs for them; ascending."""
        width, every = len(node.given), range(self.widths[node])
        if node.bounded():
            return every, range(width)
        for wanted in (sorted(self.wanted[node]), every):
            needed = node.module.required_columns(wanted, width) if wanted else None
            if needed is not None:
                # One column at least tells how many rows there are.
                return wanted, sorted(self._mixed_in(node, set(needed))) or [0]
        return every, range(width)

    def _mixed_in(self, node: Node, needed: set[int]) -> set[int]:
        """Columns without weight too, where what is missing or infinite in them shows in no other: 0 NaN is NaN."""
        if not node.module.MIXES_COLUMNS:
            return needed
        kinds = NOT_FINITE.union(node.rejects)
        guards = ((column, self.tracer.guards(place, kinds)) for column, place in enumerate(node.given))
        own = {column: some for column, some in guards if some}
        shown = set[Guard]().union(*(some for column, some in own.items() if column in needed))
        for column in sorted(own.keys() - needed, key=lambda column: (len(own[column]), column)):
            if not own[column] <= shown:
                needed.add(column)
                shown |= own[column]
        return needed

    def _guarded(self, node: Node, guards: Iterable[Guard]) -> bool:
        """Have guards stand for what a node rejects; False where they would reject more than the source does."""
        guards = {stronger for guard in guards for stronger in self._further_up(guard)}
        # Guards stand before the last node, so that they cannot read it.
        if any(
            place[0] is self.wiring.nodes[-1] or not self.rejected_anyway((place, kinds)) for place, kinds in guards
        ):
            return False
        for guard in guards:
            self.guards.setdefault(guard, node)
        self._want(place for place, _ in guards)
        return True

    def _further_up(self, guard: Guard) -> Iterable[Guard]:
        """A product is infinite only where one of its factors is NaN or infinite, which others may reject anyway."""
        place, kinds = guard
        roots = self.tracer.causes(place).roots
        told = kinds <= NOT_FINITE and all(map(self.rejected_anyway, roots))
        return roots if told else [guard]

    def _guarding(self) -> list[Node]:
        """A node for each kind of guards, but for those that other nodes make needless."""
        # What a method is not made of is not asked for it.
        held: dict[Place, frozenset[str]] = defaultdict(frozenset)
        for place, kinds in self.held if not self.wiring.method_nodes else ():
            held[place] |= kinds
        together: dict[frozenset[str], dict[Place, Node]] = defaultdict(dict)
        for (place, kinds), node in self.guards.items():
            if not kinds <= held[place]:
                together[kinds].setdefault(self._now(place), node)
        order: dict[Source, int] = {node: position for position, node in enumerate(self.wiring.nodes)}
        nodes = []
        for kinds, asking in together.items():
            name = next(iter(asking.values())).name
            places = sorted(asking, key=lambda place: (order.get(place[0], -1), place[1]))
            nodes.append(Node(Identity(), places, name, tuple(sorted(kinds)), Origin(name, "")))
        return nodes

    def _want(self, places: Iterable[Place]) -> None:
        for source, column in places:
            self.wanted[source].add(column)

    def _now(self, place: Place) -> Place:
        """Where a column stands now."""
        while place in self.passed:
            place = self.passed[place]
        return self.renumbered.get(place, place)


def _rejected_anyway(wiring: Wiring, tracer: NonFiniteTracer) -> Callable[[Guard], bool]:
    """Whether all that can be asked, the scores and each method, reject what a guard would reject."""
    leading = {source for node in wiring.nodes for source, _ in node.given}
    standing = {node for node in wiring.nodes[:-1] if node not in leading}
    asked: list[Iterable[Node]] = [wiring.nodes]
    asked += [{node, *wiring.upstream(node), *standing} for node in wiring.method_nodes.values()]
    rejected = [_by_place(tracer.rejected(node) for node in nodes) for nodes in asked]

    def everywhere(guard: Guard) -> bool:
        place, kinds = guard
        return all(any(kinds <= one for one in held[place]) for held in rejected)

    return everywhere


def _by_place(guards: Iterable[Iterable[Guard]]) -> dict[Place, set[frozenset[str]]]:
    places: dict[Place, set[frozenset[str]]] = defaultdict(set)
    for place, kinds in chain.from_iterable(guards):
        places[place].add(kinds)
    return places
