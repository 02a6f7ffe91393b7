"""Explanations: contributions of raw columns and interactions to the raw scores of a translation."""

from windtunnel.explain.explain import explain
from windtunnel.explain.explanation import Explanation

__all__ = ["Explanation", "explain"]
