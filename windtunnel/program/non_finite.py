"""What makes a column missing or infinite: what a step rejects in its own columns, told by columns further up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from windtunnel.modules.outputs.finite import Finite
from windtunnel.program.origin import Origin
from windtunnel.program.program import IDS, NUMBERS, Program
from windtunnel.program.wiring import Node, Place, Source, Wiring

NOT_FINITE = frozenset(("nan", "inf"))
Guard = tuple[Place, frozenset[str]]
"""A column, and the kinds of ``windtunnel.assemble.rejected_inputs.PROBE_VALUES`` that it must not hold."""


@dataclass(frozen=True)
class Odd:
    """Where NaN and infinities of a column come from.

    Attributes
    ----------
    roots : frozenset of Guard
        The column is NaN or infinite exactly where one of these columns holds one of these kinds; with none, never.
    alike : bool
        Whether it is NaN where the one root is, and infinite where that is.
    """

    roots: frozenset[Guard]
    alike: bool = True


NEVER = Odd(frozenset())


def takes_missing(program: Program, always_finite: Iterable[int] = ()) -> bool:
    """Whether no step rejects a row for a missing number in it, or for a category that is not known."""
    wiring, odd = _read(program, always_finite)
    return not any(map(odd.rejects_missing, wiring.everything()))


def cleared_by_scores(program: Program, always_finite: Iterable[int] = ()) -> frozenset[int]:
    """The positions of steps that reject no row whose scores are finite: what they reject is NaN or infinite there."""
    wiring, odd = _read(program, always_finite)
    end = wiring.nodes[-1]
    shown: dict[Place, frozenset[str]] = {}
    for column in range(len(end.module.finite_inputs(len(end.given)))):
        for place, kinds in odd.of((end, column)).roots:
            shown[place] = shown.get(place, frozenset()) | kinds

    def shows(node: Node) -> bool:
        return not node.bounded() and all(kinds <= shown.get(place, frozenset()) for place, kinds in odd.rejected(node))

    return frozenset(position for position, node in enumerate(wiring.nodes) if shows(node))


def _read(program: Program, always_finite: Iterable[int]) -> tuple[Wiring, Oddities]:
    wiring = Wiring.of(program, [Origin("", "")] * len(program.steps))
    return wiring, Oddities(wiring, always_finite)


class Oddities:
    """What is known of every column of a wiring.

    Parameters
    ----------
    wiring : Wiring
    always_finite : iterable of int
        Columns of the numbers that hold neither NaN nor infinity, such as counts of tokens.
    """

    def __init__(self, wiring: Wiring, always_finite: Iterable[int] = ()) -> None:
        self._finite = frozenset(always_finite)
        self._known: dict[Source, list[Odd | None]] = {}
        for node in wiring.nodes:
            finite = node.module.finite_inputs(len(node.given))
            followed = {one: self._followed(one, node.given) for one in set(finite) if one is not None}
            self._known[node] = [None if one is None else followed[one] for one in finite]

    def guards(self, place: Place, kinds: Iterable[str]) -> frozenset[Guard]:
        """What has to be rejected in place of these kinds in this column."""
        odd = self.of(place)
        if not odd.roots or not (kinds := frozenset(kinds)):
            return frozenset()
        if "huge" in kinds or (kinds != NOT_FINITE and not odd.alike):
            return frozenset([(place, kinds)])
        return frozenset((root, own & kinds) for root, own in odd.roots if own & kinds)

    def of(self, place: Place) -> Odd:
        """A column by itself where nothing is known of it; ids are always whole numbers."""
        source, column = place
        if source == IDS or (source == NUMBERS and column in self._finite):
            return NEVER
        known = self._known.get(source, ())
        odd = known[column] if column < len(known) else None
        return Odd(frozenset([(place, NOT_FINITE)])) if odd is None else odd

    def rejected(self, node: Node, columns: Iterable[int] | None = None) -> frozenset[Guard]:
        """What a node rejects in its columns, or in some of them."""
        if not node.rejects:
            return frozenset()
        given = node.given if columns is None else [node.given[column] for column in columns]
        return frozenset(guard for place in given for guard in self.guards(place, node.rejects))

    def rejects_missing(self, node: Node) -> bool:
        """Whether a node may reject a row for a missing number in it, or for a category that is not known."""
        if node.bounded():
            return True
        odds = [self.of(place) for place in node.given] if node.rejects else []
        # What becomes of a missing number in a column of which nothing is known, nobody knows.
        return any(
            root[0] != NUMBERS or ("nan" in kinds and ("nan" in node.rejects or not odd.alike))
            for odd in odds
            for root, kinds in odd.roots
        )

    def _followed(self, finite: Finite, given: Sequence[Place]) -> Odd | None:
        odds = [self.of(given[column]) for column in finite.columns]
        if not finite.sure:
            return None if any(odd.roots for odd in odds) else NEVER
        alike = len(odds) <= 1 and all(odd.alike for odd in odds)
        if not NOT_FINITE <= set(finite.kinds) and not alike:
            return None  # 0 times infinity is NaN, so that nobody knows what comes through
        roots = ((root, kinds.intersection(finite.kinds)) for odd in odds for root, kinds in odd.roots)
        return Odd(frozenset((root, kinds) for root, kinds in roots if kinds), alike)
