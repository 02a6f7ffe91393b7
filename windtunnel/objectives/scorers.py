"""scikit-learn's scorers as metrics of a translation."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import get_scorer
from sklearn.utils import Tags

from windtunnel.errors import InvalidOption
from windtunnel.program.head import Head
from windtunnel.program.records.fit_record import CandidateResult, Epoch

Array = NDArray[Any]
ScorerFunction = Callable[..., float]
"""``scorer(estimator, X, y, sample_weight=)`` to a number that is greater for better models."""
COLUMNS_OF_HISTORY = {each.name for record in (Epoch, CandidateResult) for each in fields(record)} | {"loss"}


@dataclass
class Scorer:
    """A scorer of scikit-learn for models with a head, over the outputs of the one method that it calls."""

    name: str
    function: ScorerFunction
    head: Head
    method: str  # one of ``HEAD_METHODS``
    error: str = field(default="", init=False)
    """Why the last call gave no number; empty if it gave one."""

    @classmethod
    def of(
        cls, metric: str | ScorerFunction, head: Head, methods: Sequence[str], other_names: Collection[str] = ()
    ) -> Scorer:
        """The scorer of this name, or this one, for a model with this head and these methods.

        One of the caller whose function has one of ``other_names``, or that of a column of the history, is called
        "my_" and that name.

        Raises
        ------
        InvalidOption
            For a function that is no scorer, and for a scorer that needs another method.
        """
        function = get_scorer(metric) if isinstance(metric, str) else metric
        name = metric if isinstance(metric, str) else scorer_name(metric)
        method = _called_method(name, function, head, methods)
        if not isinstance(metric, str) and name in COLUMNS_OF_HISTORY.union(other_names):
            name = f"my_{name}"
        return cls(name, function, head, method)

    def score(self, values: Array, target: Array, weight: Array) -> float:
        """The scorer over rows: outputs of the method ``[B, ...]``, encoded targets and weights ``[B]``.

        NaN where the scorer fails, as for predictions of a candidate that its function does not take; ``error`` has the
        reason.
        """
        y = target
        if self.head.classes is not None:
            y = self.head.labels(target)
            values = self.head.labels(values) if self.method == "predict" else values
        model = _Model(self.head, [self.method], lambda method, rows: values)
        options = {} if (weight == weight[0]).all() else {"sample_weight": weight}
        self.error = ""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UndefinedMetricWarning)  # of small groups of rows that nobody sees
            try:
                score = float(self.function(model, _Unreadable(), y, **options))
            except Exception as error:  # of the caller's function, whatever it is; ``error`` keeps it
                self.error = f"{type(error).__name__}: {error}"
                if options and "sample_weight" in self.error:
                    self.error += (
                        ". It has to take sample_weight, as rows have weights, or the source has class weights, which "
                        "class_weight=None leaves out"
                    )
                return math.nan
        return score if math.isfinite(score) else math.nan


def scorer_name(scorer: ScorerFunction) -> str:
    """The name of the function that a scorer is made of; "scorer" for a lambda."""
    function = getattr(scorer, "_score_func", scorer)
    name = str(getattr(function, "__name__", type(function).__name__))
    return name if name.isidentifier() else "scorer"


def scorer_text(scorer: ScorerFunction) -> str:
    """A scorer with its options, such as "make_scorer(fbeta_score, beta=2)"; without an address in memory."""
    return repr(scorer) if hasattr(scorer, "_score_func") else scorer_name(scorer)


class _Unreadable:
    """What a scorer gets as rows: only the methods of the model take them."""

    def __getattr__(self, name: str) -> NoReturn:
        raise InvalidOption("a scorer that is given as metric= may hand its rows to the model, and not read them")

    def __getitem__(self, key: Any) -> NoReturn:
        self.__getattr__("")


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


class _Called(BaseException):
    """Raised instead of an output by the method that a scorer calls; holds its name. No scorer catches it."""


def _called_method(name: str, function: ScorerFunction, head: Head, methods: Sequence[str]) -> str:
    """The method that a scorer calls first, among those of the model."""

    def raise_called(method: str, rows: Any) -> NoReturn:
        raise _Called(method)

    y = head.labels([0, len(head.labels_in_order) - 1]) if head.labels_in_order else np.zeros(2)
    accepted = "give a scorer of scikit-learn, such as sklearn.metrics.make_scorer(function, response_method='predict')"
    try:
        function(_Model(head, methods, raise_called), _Unreadable(), y)
    except _Called as call:
        return str(call)
    except Exception as error:  # of the caller's function, whatever it is
        reason = f"{type(error).__name__}: {error}".replace("_Model has", "the model has")
        raise InvalidOption(
            f"metric={name!r} does not score this {head.task} model by its {', '.join(methods)} ({reason}); {accepted}"
        ) from error
    raise InvalidOption(f"metric={name!r} calls none of {', '.join(methods)}; {accepted}")
