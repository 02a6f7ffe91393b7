"""Passes over a program: the same outputs and checks with fewer columns and steps."""

from windtunnel.compiler.passes.fold import look_up_sums
from windtunnel.compiler.passes.simplify import simplify

__all__ = ["look_up_sums", "simplify"]
