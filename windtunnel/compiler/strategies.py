"""How trees are run: walked node by node, as perfect trees, or as matrix products."""

from __future__ import annotations

from collections.abc import Iterator

from windtunnel.errors import UnfaithfulOption
from windtunnel.modules.program import Program, ProgramStep
from windtunnel.modules.trees.gemm import GemmTrees
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.modules.trees.perfect import PerfectTrees

STRATEGIES = ("auto", "gemm", "tree_traversal", "perfect_tree_traversal")
FORMS: dict[str, type[HardTrees]] = {
    "gemm": GemmTrees,
    "tree_traversal": HardTrees,
    "perfect_tree_traversal": PerfectTrees,
}
MANY_TREES = 100
"""From so many trees on, arithmetic in the place of a look-up of the children pays for the layout by depth."""
HOLLOW = 8
"""How many times more leaves perfect trees may have than the trees that they stand for."""


def choose(program: Program, strategy: str) -> None:
    """Put each tree ensemble of a program into the form that the strategy names; all forms give the same bits.

    "tree_traversal" takes one step down every tree at a time; "perfect_tree_traversal" does so in trees that are
    completed to perfect ones, up to a depth of 10; "gemm" asks every node at once and multiplies, for few leaves.
    "auto" takes perfect trees where there are ``MANY_TREES``, none deeper than 10 and none but little to complete,
    and walks otherwise: measured on a CPU, matrix products were slower at every size but for single rows. Trees that
    tell their leaves (``apply``) or that have linear models in them are always walked.

    Raises
    ------
    UnfaithfulOption
        Trees are too deep, or have too many leaves, for the strategy.
    """
    forms: dict[HardTrees, HardTrees] = {}
    for step in _steps(program):
        for parent in list(step.modules()):
            for name, module in list(parent.named_children()):
                if isinstance(module, HardTrees) and type(module) in FORMS.values():
                    if module not in forms:
                        forms[module] = _formed(module, strategy, step.name)
                    setattr(parent, name, forms[module])


def _steps(program: Program) -> Iterator[ProgramStep]:
    yield from (*program.steps, *program.answers.values())


def _formed(trees: HardTrees, strategy: str, step: str) -> HardTrees:
    form = _automatic(trees) if strategy == "auto" else FORMS[strategy]
    if type(trees) is form:
        return trees
    try:
        return form.rebuild(trees.state_dict(), trees.facts())
    except UnfaithfulOption as error:
        raise UnfaithfulOption(f"step {step!r}: {error}") from error


def _automatic(trees: HardTrees) -> type[HardTrees]:
    count = len(trees.root)
    if count < MANY_TREES or trees.depth > PerfectTrees.DEEPEST:
        return HardTrees
    hollow = count << trees.depth > HOLLOW * len(trees.leaf_value)
    return HardTrees if hollow else PerfectTrees
