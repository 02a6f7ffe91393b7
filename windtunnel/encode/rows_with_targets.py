"""Rows with their targets, as callers give them: ``(X, y)`` or ``(X, y, weight)``."""

from __future__ import annotations

from typing import Any

from windtunnel.encode.batch import Batch
from windtunnel.errors import BadInput


def rows_with_targets(
    subject: str, given: Any, accepted: str = "give (X, y) or (X, y, weight)"
) -> tuple[Any, Any, Any]:
    """Rows, targets and weights of a tuple or list of two or three; the weights are None where it has none.

    ``BadInput`` for anything else, and for None in the place of targets: "``subject`` a DataFrame; ``accepted``".
    """
    if not isinstance(given, tuple | list) or isinstance(given, Batch):
        raise BadInput(f"{subject} a {type(given).__name__}; {accepted}")
    if len(given) not in (2, 3):
        raise BadInput(f"{subject} a {type(given).__name__} of {len(given)}; {accepted}")
    X, y, weight = (*given, None)[:3]
    if y is None:
        raise BadInput(f"{subject} a {type(given).__name__} with None in the place of targets; {accepted}")
    return X, y, weight
