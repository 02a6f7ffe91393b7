"""Rows with their targets, as callers give them: ``(X, y)`` or ``(X, y, weight)``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from windtunnel.encode.batch import Batch
from windtunnel.errors import BadInput


def is_loader(data: Any) -> bool:
    """Whether data are given batch by batch, and are no rows."""
    return isinstance(data, Iterable) and not isinstance(data, (str, dict)) and not hasattr(data, "columns")


def rows_with_targets(subject: str, data: Any, accepted: str = "give (X, y) or (X, y, weight)") -> tuple[Any, Any, Any]:
    """Rows, targets and weights of a tuple or list of two or three; the weights are None where it has none.

    ``BadInput`` for anything else, and for None in the place of targets: "``subject`` a DataFrame; ``accepted``".
    """
    if not isinstance(data, tuple | list) or isinstance(data, Batch):
        raise BadInput(f"{subject} a {type(data).__name__}; {accepted}")
    if len(data) not in (2, 3):
        raise BadInput(f"{subject} a {type(data).__name__} of {len(data)}; {accepted}")
    X, y, weight = (*data, None)[:3]
    if y is None:
        raise BadInput(f"{subject} a {type(data).__name__} with None in the place of targets; {accepted}")
    return X, y, weight
