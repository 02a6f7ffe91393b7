"""The conversions of the steps of a graph, each converted once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.base import Module
from windtunnel.pipeline.expressions import Expression, Step
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.translators.conversions import (
    CategoryEncoding,
    CategoryRecoding,
    Composite,
    InputColumns,
    Predictor,
    Selection,
    TokenCounts,
    Transformer,
)
from windtunnel.translators.registry import convert, is_differentiable
from windtunnel.translators.untranslated import public_name


class Conversions:
    """Converts the steps of a graph."""

    def __init__(self, dtype: torch.dtype, *, exact: bool) -> None:
        self.exact = exact  # whether steps that end the gradient are accepted as well
        self._dtype = dtype  # what the modules compute in
        self._cached: dict[Step, Any] = {}

    def of_step(self, step: Step) -> Any:
        """The conversion of a step, its modules cast to the dtype; a translation inside of others is its own."""
        if step not in self._cached:
            if (translation := translation_in(step.estimator)) is not None:
                self._cached[step] = translation
                return translation
            try:
                conversion = convert(step.estimator)
                data = isinstance(conversion, CategoryEncoding | CategoryRecoding | Selection | TokenCounts)
                smooth = is_differentiable(step.estimator) and getattr(conversion, "differentiable", True)
                if not (self.exact or data or smooth):
                    raise UnsupportedEstimator(
                        f"{step.estimator_name} has no differentiable form; windtunnel.compile gives its exact outputs"
                    )
                for module in _modules(conversion):
                    module.cast(self._dtype)
                    module.make_contiguous()
            except UnsupportedEstimator as error:
                raise UnsupportedEstimator(f"step {step.name!r}: {error}") from error
            self._cached[step] = conversion
        return self._cached[step]

    def find(self, step: Step) -> Any:
        """The conversion of a step; None for a step without one, which stays on the host."""
        try:
            return self.of_step(step)
        except UnsupportedEstimator:
            return None

    def get(self, expression: Expression) -> Any:
        """The conversion of a step if it was converted, else None."""
        return self._cached.get(expression) if isinstance(expression, Step) else None


def translation_in(estimator: Any) -> TranslatedPipeline | None:
    """A translation, also that of a fitted ``WindTunnelClassifier`` or ``WindTunnelRegressor``, or None.

    None for an instance of a subclass, which may override methods.
    """
    name = public_name(type(estimator))
    if name in ("windtunnel.WindTunnelClassifier", "windtunnel.WindTunnelRegressor"):
        return getattr(estimator, "translation_", None)
    return estimator if name == "windtunnel.Translation" else None


def predicts(conversion: Any) -> bool:
    """Whether a conversion is that of a predictor."""
    if isinstance(conversion, TranslatedPipeline):
        return conversion.head.task != "transform"
    if isinstance(conversion, Composite):
        return isinstance(conversion.then, Predictor) or hasattr(conversion.then, "predict")
    return isinstance(conversion, Predictor)


def _modules(conversion: Any) -> Iterator[Module]:
    match conversion:
        case Module():
            yield conversion
        case Predictor(scores=module, methods=methods, column_methods=column_methods, reads=reads):
            yield from (module, *methods.values(), *column_methods.values(), *_statistics_modules(reads))
        case Transformer(module=module, column_methods=column_methods, reads=reads):
            yield from (module, *column_methods.values(), *_statistics_modules(reads))
        case CategoryRecoding(number=Module() as module) | TokenCounts(then=Module() as module):
            yield module
        case Composite(then=then, methods=methods):
            yield from _modules(then)
            for composite in methods.values():
                yield from _modules(composite)


def _statistics_modules(reads: InputColumns) -> list[Module]:
    hashed = reads.hashed
    return [] if hashed is None or hashed.statistics is None else [hashed.borders, hashed.statistics]
