"""Trace NaN and infinities of a column back to the columns upstream that cause them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from windtunnel.modules.outputs.finite import Finite
from windtunnel.program.program import IDS, NUMBERS, Program, slot_of
from windtunnel.program.wiring import Node, NodeColumn, Source, Wiring

NOT_FINITE = frozenset(("nan", "inf"))
OUTSIDE = -1
"""Stands for a column that says where a step rejects rows."""
Guard = tuple[NodeColumn, frozenset[str]]
"""A column, and the kinds of values ("nan", "inf", "huge") for which a row is rejected."""


@dataclass(frozen=True)
class Causes:
    """The columns that cause NaN and infinities of a column."""

    roots: frozenset[Guard]
    """The column is NaN or infinite exactly where one of these columns holds one of these kinds. Without roots it is
    always finite."""
    same_kind: bool = True
    """Whether a NaN of the only root stays NaN, and an infinity stays an infinity; also true without roots."""


NEVER = Causes(frozenset())


def takes_missing(program: Program, always_finite: Iterable[int] = ()) -> bool:
    """Whether no step rejects a row for a missing number or an unknown category."""
    wiring, tracer = _tracer(program, always_finite)
    return not any(map(tracer.rejects_missing, wiring.all_nodes()))


def cleared_by_scores(program: Program, always_finite: Iterable[int] = ()) -> frozenset[int]:
    """The positions of steps that need no check if the scores are finite, because rejected values reach the scores."""
    wiring, tracer = _tracer(program, always_finite)
    end = wiring.nodes[-1]
    visible: dict[NodeColumn, frozenset[str]] = {}
    for column in range(len(end.module.finite_inputs(len(end.inputs)))):
        for place, kinds in tracer.causes((end, column)).roots:
            visible[place] = visible.get(place, frozenset()) | kinds

    def is_visible(node: Node) -> bool:
        return not node.rejects_finite() and all(
            kinds <= visible.get(place, frozenset()) for place, kinds in tracer.rejected(node)
        )

    return frozenset(position for position, node in enumerate(wiring.nodes) if is_visible(node))


def slot_guards(program: Program, method: str) -> dict[tuple[int, int], frozenset[str]]:
    """The kinds of values that a method rejects in each column, by slot (0: the numbers) and place in it.

    Checks of single columns do not find all rows that a step with custom rules rejects, nor those of a step that reads
    computed columns, where finite numbers may overflow. Such a step has the key (its slot, ``OUTSIDE``) and the kind
    "outside".
    """
    wiring, tracer = _tracer(program, ())
    nodes = [*wiring.nodes, *(node for name, node in wiring.method_nodes.items() if name == method)]
    checked = [nodes[position] for position in program.rejecting_steps(method)] + nodes[len(wiring.nodes) :]
    slots: dict[Source, int] = {NUMBERS: NUMBERS, IDS: IDS}
    slots |= {node: slot_of(position) for position, node in enumerate(nodes)}
    guards: dict[tuple[int, int], frozenset[str]] = {}
    for node in checked:
        may_overflow = bool(node.rejects) and any(isinstance(source, Node) for source, _ in node.inputs)
        if node.rejects_finite() or may_overflow:
            guards[slots[node], OUTSIDE] = frozenset(("outside",))
            continue
        for (source, column), kinds in tracer.rejected(node):
            place = slots[source], column
            guards[place] = guards.get(place, frozenset()) | kinds
    return guards


def _tracer(program: Program, always_finite: Iterable[int]) -> tuple[Wiring, NonFiniteTracer]:
    wiring = Wiring.of(program)
    return wiring, NonFiniteTracer(wiring, always_finite)


class NonFiniteTracer:
    """The causes of NaN and infinities in every column of a wiring.

    The columns ``always_finite`` of the numbers hold neither NaN nor infinity, such as counts of tokens.
    """

    def __init__(self, wiring: Wiring, always_finite: Iterable[int] = ()) -> None:
        self._finite = frozenset(always_finite)
        self._causes: dict[Source, list[Causes | None]] = {}
        for node in wiring.nodes:
            finite = node.module.finite_inputs(len(node.inputs))
            traced = {rule: self._trace(rule, node.inputs) for rule in set(finite) if rule is not None}
            self._causes[node] = [None if rule is None else traced[rule] for rule in finite]

    def guards(self, place: NodeColumn, kinds: Iterable[str]) -> frozenset[Guard]:
        """The upstream columns and kinds to reject instead of these kinds in this column."""
        causes = self.causes(place)
        if not causes.roots or not (kinds := frozenset(kinds)):
            return frozenset()
        if "huge" in kinds or (kinds != NOT_FINITE and not causes.same_kind):
            return frozenset([(place, kinds)])
        return frozenset((root, possible & kinds) for root, possible in causes.roots if possible & kinds)

    def causes(self, place: NodeColumn) -> Causes:
        """The causes of a column; the column itself if they cannot be traced. Ids are always finite."""
        source, column = place
        if source == IDS or (source == NUMBERS and column in self._finite):
            return NEVER
        columns = self._causes.get(source, ())
        causes = columns[column] if column < len(columns) else None
        return Causes(frozenset([(place, NOT_FINITE)])) if causes is None else causes

    def rejected(self, node: Node, columns: Iterable[int] | None = None) -> frozenset[Guard]:
        """The guards of a node for its input columns, or for some of them."""
        if not node.rejects:
            return frozenset()
        places = node.inputs if columns is None else [node.inputs[column] for column in columns]
        return frozenset(guard for place in places for guard in self.guards(place, node.rejects))

    def rejects_missing(self, node: Node) -> bool:
        """Whether a node may reject a row for a missing number or an unknown category."""
        if node.rejects_finite():
            return True
        inputs = [self.causes(place) for place in node.inputs] if node.rejects else []
        # The NaN of a column that cannot be traced to the rows may come from a missing number.
        return any(
            root[0] != NUMBERS or ("nan" in kinds and ("nan" in node.rejects or not causes.same_kind))
            for causes in inputs
            for root, kinds in causes.roots
        )

    def _trace(self, finite: Finite, places: Sequence[NodeColumn]) -> Causes | None:
        inputs = [self.causes(places[column]) for column in finite.columns]
        if not finite.sure:
            return None if any(causes.roots for causes in inputs) else NEVER
        same_kind = len(inputs) <= 1 and all(causes.same_kind for causes in inputs)
        if not NOT_FINITE <= set(finite.kinds) and not same_kind:
            return None  # 0 times infinity is NaN, so infinity may become NaN
        roots = ((root, kinds.intersection(finite.kinds)) for causes in inputs for root, kinds in causes.roots)
        return Causes(frozenset((root, kinds) for root, kinds in roots if kinds), same_kind)
