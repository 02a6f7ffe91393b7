"""The nodes of the DAG of a fitted pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False)
class Raw:
    """The input rows of the pipeline."""


@dataclass(frozen=True, eq=False)
class Step:
    """The output of one fitted estimator.

    ``name`` is its path in the pipeline, such as ``"columns.city.encoder"``; ``width`` the number of its columns, where
    the steps around it tell.
    """

    name: str
    estimator: Any
    inputs: Expression
    width: int | None = None

    @property
    def estimator_name(self) -> str:
        """The class of the estimator."""
        return type(self.estimator).__name__


@dataclass(frozen=True, eq=False)
class Columns:
    """Some columns, by position; ``flat`` if the source reads one column without a second dimension."""

    inputs: Expression
    positions: tuple[int, ...]
    flat: bool = False


@dataclass(frozen=True, eq=False)
class Weighted:
    """All columns multiplied by one number (``transformer_weights``)."""

    name: str
    inputs: Expression
    weight: float


@dataclass(frozen=True, eq=False)
class Concatenated:
    """Concatenated columns; ``composite`` is the fitted estimator, if any, that computes them from ``inputs``."""

    parts: tuple[Expression, ...]
    composite: Any
    inputs: Expression


@dataclass(frozen=True, eq=False)
class MethodOutput:
    """The output of a method of a fitted estimator inside another one; ``columns`` selects columns of it.

    ``method`` is that of ``windtunnel.translators.registry.Part``.
    """

    inputs: Expression
    method: str
    columns: tuple[int, ...] | None = None


Expression = Raw | Step | Columns | Weighted | Concatenated | MethodOutput
