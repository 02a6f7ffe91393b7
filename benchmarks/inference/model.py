"""What a model is to the benchmark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Model:
    """A source, the rows that it scores, and by which method.

    Attributes
    ----------
    fitted : function
        Gives the source, fitted on rows that it makes.
    rows : function
        As many rows, from a seed: a NumPy array of float64 numbers that float32 holds, so that every engine is given
        the same, or a DataFrame.
    method : str
        "predict", "predict_proba" or "transform".
    peers : tuple of str
        The other engines that take such models.
    """

    fitted: Callable[[], Any]
    rows: Callable[[int, int], Any]
    method: str
    peers: tuple[str, ...]
