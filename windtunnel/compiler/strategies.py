"""How trees are run."""

from __future__ import annotations

from windtunnel.modules.program import Program

STRATEGIES = ("auto", "gemm", "tree_traversal", "perfect_tree_traversal")


def choose(program: Program, strategy: str) -> None:
    """Put each tree ensemble of a program into the form that the strategy names."""
