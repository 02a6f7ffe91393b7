"""scikit-learn's scorers as metrics of a translation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.metrics import get_scorer
from sklearn.utils import Tags

from windtunnel.errors import InvalidOption
from windtunnel.program.head import Head

Array = NDArray[Any]
ScorerFunction = Callable[..., float]
"""``scorer(estimator, X, y, sample_weight=)`` to a number that is greater for better models."""


@dataclass(frozen=True)
class Scorer:
    """A scorer of scikit-learn for models with a head, over the outputs of the one method that it calls."""

    name: str
    function: ScorerFunction
    head: Head
    method: str  # one of ``HEAD_METHODS``

    @classmethod
    def of(cls, metric: str | ScorerFunction, head: Head, methods: Sequence[str]) -> Scorer:
        """The scorer of this name, or this one, for a model with this head and these methods.

        Raises
        ------
        InvalidOption
            For a function that is no scorer, and for a scorer that needs another method.
        """
        function = get_scorer(metric) if isinstance(metric, str) else metric
        name = metric if isinstance(metric, str) else scorer_name(metric)
        return cls(name, function, head, _called_method(name, function, head, methods))

    def score(self, values: Array, target: Array, weight: Array) -> float:
        """The scorer over rows: outputs of the method ``[B, ...]``, encoded targets and weights ``[B]``.

        Raises
        ------
        InvalidOption
            If the scorer fails, with its error.
        """
        y = target
        if self.head.classes is not None:
            y = self.head.labels(target)
            values = self.head.labels(values) if self.method == "predict" else values
        model = _Model(self.head, [self.method], lambda method, outputs: outputs)
        options = {} if (weight == weight[0]).all() else {"sample_weight": weight}
        try:
            return float(self.function(model, values, y, **options))
        except Exception as error:
            reason = "; it has to take sample_weight, as the rows have weights" if options else ""
            raise InvalidOption(
                f"metric={self.name!r} fails on the validation rows ({type(error).__name__}: {error}){reason}"
            ) from error


def scorer_name(scorer: ScorerFunction) -> str:
    """The name of the function that a scorer is made of; "scorer" for a lambda, and for "loss", which is ours."""
    function = getattr(scorer, "_score_func", scorer)
    name = str(getattr(function, "__name__", type(function).__name__))
    return name if name.isidentifier() and name != "loss" else "scorer"


class _Model(BaseEstimator):
    """What a scorer takes for a fitted model: each of its methods returns what ``answer(method, rows)`` does."""

    def __init__(self, head: Head, methods: Sequence[str], answer: Callable[[str, Any], Any]) -> None:
        self.head, self.methods, self.answer = head, methods, answer
        if head.classes is not None:
            self.classes_ = head.classes
        for method in methods:
            function = partial(answer, method)
            function.__name__ = method  # type: ignore[attr-defined]  # scorers read it
            setattr(self, method, function)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.estimator_type = "regressor" if self.head.classes is None else "classifier"
        return tags


class _Called(Exception):
    """Raised instead of an output by the method that a scorer calls; holds its name."""


def _called_method(name: str, function: ScorerFunction, head: Head, methods: Sequence[str]) -> str:
    """The method that a scorer calls first, among those of the model."""

    def raise_called(method: str, rows: Any) -> NoReturn:
        raise _Called(method)

    y = head.labels([0, len(head.labels_in_order) - 1]) if head.labels_in_order else np.zeros(2)
    accepted = "give a scorer of scikit-learn, such as sklearn.metrics.make_scorer(function, response_method='predict')"
    try:
        function(_Model(head, methods, raise_called), np.zeros((2, 1)), y)
    except _Called as call:
        return str(call)
    except Exception as error:
        raise InvalidOption(
            f"metric={name!r} does not score this {head.task} model by its {', '.join(methods)} "
            f"({type(error).__name__}: {error}); {accepted}"
        ) from error
    raise InvalidOption(f"metric={name!r} calls none of {', '.join(methods)}; {accepted}")
