"""Passes over a compiled program: the same answers and refusals, of fewer columns and steps."""

from windtunnel.compiler.passes.simplify import Simplified, simplify

__all__ = ["Simplified", "simplify"]
