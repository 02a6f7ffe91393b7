"""Condensing: a soft translation made small and fast for inference, and what that changes."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from windtunnel.errors import BadInput, UnfaithfulOption
from windtunnel.hardened import Judgement, judged, parts
from windtunnel.modules.trees import SoftTrees
from windtunnel.modules.trees.soft.condense import Folded, dropped, fold, gather_bound, moments, packed, rounding_bound
from windtunnel.modules.trees.soft.condensed import CondensedTrees

if TYPE_CHECKING:
    from windtunnel.translation import Translation

PREFIX = "condensed_"
"""Under which ``Translation.faithful`` keeps the numbers, so that they are saved with the rest."""
PRECISIONS: dict[str, tuple[torch.dtype, ...]] = {
    "auto": (torch.float32, torch.bfloat16),
    "float32": (torch.float32,),
    "bfloat16": (torch.bfloat16,),
}
SHARE = 0.7
"""The part of the tolerance that is for leaves and nodes; the rest is for rounding and gathering."""
MOST, HALVINGS = 4, 6
"""Errors of leaves partly cancel: budgets up to so many times what is allowed are tried, in so many halvings."""
MOST_ROWS = 4096
"""Rows that decide what is dropped and that are timed."""
TURNS = 5


@dataclass(frozen=True)
class Condensing:
    """What ``condense`` has dropped, and what that changes.

    Attributes
    ----------
    leaves, of_leaves, nodes, of_nodes : int
        What is left, and what there was.
    largest : float
        The largest change of a raw score on the rows, in the unit of the score.
    bound : float
        What no row's score can change by more, in the same unit: over everything dropped and rounded at its worst at
        the same time, so far above what happens. Where nodes were brought back to one column each it holds for rows
        within the range of those that were given.
    judgement : Judgement
        The root mean square of the change and, with targets, the metric and the loss.
    """

    leaves: int
    of_leaves: int
    nodes: int
    of_nodes: int
    largest: float
    bound: float
    judgement: Judgement

    def __str__(self) -> str:
        return (
            f"{self.leaves:,} of {self.of_leaves:,} leaves and {self.nodes:,} of {self.of_nodes:,} nodes left; largest "
            f"change of a score {self.largest:.3g}, for any row at most {self.bound:.3g}; {self.judgement}"
        )

    @classmethod
    def read(cls, net: Translation) -> Condensing | None:
        """What stands in ``net.faithful``; None where nothing was condensed."""
        judgement = Judgement.read(net, PREFIX)
        if judgement is None:
            return None
        held = {name: net.faithful[PREFIX + name] for name in cls.__annotations__ if name != "judgement"}
        leaves, of_leaves, nodes, of_nodes = (int(held[name]) for name in ("leaves", "of_leaves", "nodes", "of_nodes"))
        return cls(leaves, of_leaves, nodes, of_nodes, held["largest"], held["bound"], judgement)


def condense(net: Translation, rows: Any, tolerance: float = 0.02, precision: str = "auto") -> Translation:
    """A copy whose soft trees are ``CondensedTrees``: for inference only, and faster.

    Everything constant is folded into the two layers. Leaves that hardly vary over the rows become constants, and so
    do nodes that then move no leaf. Where the weights that L3 and L4 have given to other columns hardly matter, a node
    reads its own column only; where bfloat16 is near enough, the second layer is held in it. Of the forms whose scores
    on the rows stay within the tolerance, the one that is fastest here is taken.

    Parameters
    ----------
    net : Translation
        Left as it is.
    rows : rows, (rows, target) or (rows, target, weight)
        A few thousand, such as validation rows.
    tolerance : float
        Root mean square of the change of the scores of the trees, over their standard deviation; 0.02 keeps
        R squared at 0.9996.
    precision : "auto", "float32" or "bfloat16"
        Of the second layer.

    Raises
    ------
    BadInput
        No rows.
    UnfaithfulOption
        An argument is none of the accepted values, no step has soft trees with values, or bfloat16 is asked for and
        not within the tolerance.
    """
    if not 0 <= tolerance < 1 or precision not in PRECISIONS:
        raise UnfaithfulOption(
            f"condense got tolerance={tolerance!r}, precision={precision!r}; accepted are numbers from 0 up to 1, and "
            f"{', '.join(map(repr, PRECISIONS))}."
        )
    given, target, weight = parts(net, rows)
    if given is None:
        raise BadInput("condense needs rows, on which it measures what matters; give a few thousand validation rows.")
    small = copy.deepcopy(net).cpu().eval().requires_grad_(False)
    numbers: dict[str, float] = {}
    for position, step in enumerate(small.program.steps):
        if isinstance(step.module, SoftTrees):
            x = small._in_slices(partial(small.program.inputs_of, position), given)
            with torch.no_grad():
                step.module, found = _condensed(step.module, _spaced(x), tolerance, PRECISIONS[precision])
            for name, value in found.items():
                numbers[PREFIX + name] = numbers.get(PREFIX + name, 0.0) + value
    if not numbers:
        raise UnfaithfulOption(
            "no step of this translation has soft trees with values, which is what condense makes smaller; hard trees "
            "are fast as they are."
        )
    small.exact = {}
    small.mark_start()
    numbers[f"{PREFIX}largest"] = float((small.scores(given) - net.scores(given)).abs().max())
    small.faithful = {**net.faithful, **numbers, **judged(net, small, given, target, weight).numbers(PREFIX)}
    return small


def _spaced(x: Tensor) -> Tensor:
    """At most ``MOST_ROWS`` of the rows, from all over."""
    return x[torch.linspace(0, len(x) - 1, min(len(x), MOST_ROWS)).long()]


def _condensed(
    soft: SoftTrees, x: Tensor, tolerance: float, dtypes: tuple[torch.dtype, ...]
) -> tuple[CondensedTrees, dict[str, float]]:
    exact = soft(x)
    allowed = tolerance * float((exact - exact.mean(dim=0)).square().mean().sqrt())
    whole = fold(soft)
    folded = _cut(whole, x, exact, allowed)
    forms, bounds = {}, {}
    for dtype in dtypes:
        for gathers in (False, True):
            form = packed(folded, gathers=gathers, dtype=dtype)
            if _moved(form, x, exact) <= max(allowed, 1e-5 * float(exact.abs().max())):
                forms[gathers, dtype] = form
                rounds = rounding_bound(folded) if dtype == torch.bfloat16 else 0.0
                bounds[gathers, dtype] = folded.dropped + rounds + (gather_bound(folded, x) if gathers else 0.0)
    if not forms:
        raise UnfaithfulOption(
            f"no form with a second layer in {' or '.join(map(str, dtypes))} keeps the scores within "
            f"tolerance={tolerance:g} of their standard deviation; give a larger tolerance, or precision='float32'."
        )
    best = _fastest(forms, x)
    return forms[best], {
        "leaves": float(folded.leaves.sum()),
        "of_leaves": float(whole.leaves.sum()),
        "nodes": float(folded.nodes.sum()),
        "of_nodes": float(whole.nodes.sum()),
        "bound": bounds[best],
    }


def _cut(whole: Folded, x: Tensor, exact: Tensor, allowed: float) -> Folded:
    """Without as much as stays within ``SHARE`` of what is allowed.

    Leaves of one tree vary together, so that what comes of a budget is measured, and the largest is searched for.
    """
    best, low, high = whole, 0.0, MOST * SHARE * allowed
    if allowed == 0:
        return whole
    over = moments(whole, x)
    for _ in range(HALVINGS):
        budget = (low + high) / 2
        folded = dropped(whole, over, budget)
        error = exact - packed(folded, gathers=False, dtype=torch.float32)(x)
        if float((error - error.mean(dim=0)).square().mean().sqrt()) <= SHARE * allowed:
            best, low = replace(folded, base=folded.base + error.mean(dim=0)), budget
        else:
            high = budget
    return best


def _moved(form: CondensedTrees, x: Tensor, exact: Tensor) -> float:
    return float((form(x) - exact).square().mean().sqrt())


def _fastest(forms: Mapping[Any, CondensedTrees], x: Tensor) -> Any:
    """The key of the form with the least time, measured in turns; other work on the machine only ever adds to it."""
    seconds: dict[Any, list[float]] = {key: [] for key in forms}
    for _ in range(TURNS if len(forms) > 1 else 0):
        for key, form in forms.items():
            start = time.perf_counter()
            form(x)
            seconds[key].append(time.perf_counter() - start)
    return min(forms, key=lambda key: min(seconds[key], default=0.0))
