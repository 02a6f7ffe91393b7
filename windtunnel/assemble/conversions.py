"""What the readers make of fitted estimators, each read once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.base import Module
from windtunnel.pipeline.graph import Expression, Step
from windtunnel.translators.registry import (
    CategoryEncoding,
    CategoryRecoding,
    Composite,
    HashedColumns,
    Predictor,
    Selection,
    TokenCounts,
    Transformer,
    convert,
    entry,
)


class Readings:
    """Reads the steps of a graph.

    Parameters
    ----------
    dtype : torch.dtype
        What the modules compute in.
    exact : bool
        True where steps that end the gradient are read as well.
    """

    def __init__(self, dtype: torch.dtype, *, exact: bool) -> None:
        self._dtype = dtype
        self._exact = exact
        self._of: dict[Step, Any] = {}

    def of(self, step: Step) -> Any:
        """What the reader makes of a step, its modules cast to the type that is computed in; read once."""
        if step not in self._of:
            try:
                reading = convert(step.estimator)
                data = isinstance(reading, CategoryEncoding | CategoryRecoding | Selection | TokenCounts)
                smooth = entry(step.estimator).differentiable and getattr(reading, "differentiable", True)
                if not (self._exact or data or smooth):
                    raise UnsupportedEstimator(
                        f"{type(step.estimator).__name__} has no differentiable form; windtunnel.compile gives its "
                        "exact answers"
                    )
                for module in modules(reading):
                    module.cast(self._dtype)
                    module.make_contiguous()
            except UnsupportedEstimator as error:
                raise UnsupportedEstimator(f"step {step.name!r}: {error}") from error
            self._of[step] = reading
        return self._of[step]

    def get(self, expression: Expression) -> Any:
        """What was made of a step; None of what is none, or could not be read."""
        return self._of.get(expression) if isinstance(expression, Step) else None


def predicts(reading: Any) -> bool:
    """Whether a reading is that of a predictor."""
    if isinstance(reading, Composite):
        return isinstance(reading.then, Predictor) or hasattr(reading.then, "predict")
    return isinstance(reading, Predictor)


def modules(reading: Any) -> Iterator[Module]:
    """Every module of a reading."""
    match reading:
        case Module():
            yield reading
        case Predictor():
            yield from (reading.scores, *reading.methods.values(), *reading.column_methods.values())
            yield from _statistics_of(reading.hashed)
        case CategoryRecoding(number=Module() as number):
            yield number
        case TokenCounts(then=Module() as then):
            yield then
        case Transformer(module=module, column_methods=others):
            yield from (module, *others.values())
            yield from _statistics_of(reading.hashed)
        case Composite(then=then, methods=answers):
            yield from modules(then)
            for answer in answers.values():
                yield from modules(answer)


def _statistics_of(hashed: HashedColumns | None) -> list[Module]:
    return [] if hashed is None or hashed.statistics is None else [hashed.borders, hashed.statistics]
