"""The nodes of the DAG of a fitted pipeline."""

from __future__ import annotations

from collections.abc import Iterator
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
    """A selection of columns, by position; ``flat`` if the source reads one column without a second dimension."""

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

    ``method`` is that of ``windtunnel.translators.conversions.Part``.
    """

    inputs: Expression
    method: str
    columns: tuple[int, ...] | None = None


Expression = Raw | Step | Columns | Weighted | Concatenated | MethodOutput


def steps_of(expression: Expression) -> Iterator[Step]:
    """The steps of an expression, each after those that it reads."""
    match expression:
        case Raw():
            return
        case Concatenated(parts=parts):
            for part in parts:
                yield from steps_of(part)
        case Step(inputs=inputs) | Columns(inputs=inputs) | Weighted(inputs=inputs) | MethodOutput(inputs=inputs):
            yield from steps_of(inputs)
            if isinstance(expression, Step):
                yield expression


def columns_read(expression: Expression) -> set[int] | None:
    """The raw columns that an expression reads; None for all."""
    match expression:
        case Raw():
            return None
        case Columns(inputs=Raw(), positions=positions):
            return set(positions)
        case Concatenated(parts=parts):
            read = [columns_read(part) for part in parts]
            return None if None in read else set().union(*(part for part in read if part is not None))
        case Columns(inputs=inputs) | Step(inputs=inputs) | Weighted(inputs=inputs) | MethodOutput(inputs=inputs):
            return columns_read(inputs)
