"""A data set as the models take it: three parts, what is asked, and which columns are categories."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import log_loss, roc_auc_score, root_mean_squared_error

from benchmarks.sets import DataSet

MOST_ROWS = 100_000
"""Training rows that a set may have; of larger ones so many are drawn, with seed 0."""
METRICS = {"binary": "auc", "multiclass": "log_loss", "regression": "rmse"}
"""What is compared, by what is asked."""


class Rows(NamedTuple):
    """Raw rows and their target."""

    X: pd.DataFrame
    y: NDArray[Any]


@dataclass(frozen=True, eq=False)
class Task:
    """What every model gets.

    Attributes
    ----------
    name : str
    kind : str
        "binary" (target 0 or 1), "multiclass" (0 .. K - 1) or "regression".
    train, valid, test : Rows
    note : str
        What was left out of the set, if anything.
    """

    name: str
    kind: str
    train: Rows
    valid: Rows
    test: Rows
    note: str = ""

    @property
    def categories(self) -> list[str]:
        """The columns that are no numbers."""
        return [str(name) for name, dtype in self.train.X.dtypes.items() if not pd.api.types.is_numeric_dtype(dtype)]

    @property
    def numbers(self) -> list[str]:
        """The columns of numbers."""
        return [str(name) for name in self.train.X if name not in self.categories]

    def as_categories(self) -> Task:
        """The same with pandas' category dtype: the categories of the training rows, any other missing."""
        known = {name: sorted(self.train.X[name].dropna().unique()) for name in self.categories}

        def form(X: pd.DataFrame) -> pd.DataFrame:
            return X.assign(
                **{
                    name: X[name].where(X[name].isin(values)).astype(pd.CategoricalDtype(values))
                    for name, values in known.items()
                }
            )

        return self._with(*(form(part.X) for part in (self.train, self.valid, self.test)))

    def as_text(self) -> Task:
        """The same with Python's strings for categories, "NA" where they are missing."""
        names = self.categories
        parts = (self.train.X, self.valid.X, self.test.X)
        return self._with(*(X.assign(**{name: X[name].astype(object).fillna("NA") for name in names}) for X in parts))

    def _with(self, train: pd.DataFrame, valid: pd.DataFrame, test: pd.DataFrame) -> Task:
        return replace(
            self, train=Rows(train, self.train.y), valid=Rows(valid, self.valid.y), test=Rows(test, self.test.y)
        )

    def predictions(self, model: Any, X: pd.DataFrame) -> NDArray[np.float64]:
        """What a fitted model says of rows: probabilities, [rows] of class 1 or [rows, classes], or numbers [rows]."""
        if self.kind == "regression":
            return np.asarray(model.predict(X), dtype=np.float64).reshape(-1)
        chances = np.asarray(model.predict_proba(X), dtype=np.float64)
        # Made in float32, they may miss a sum of 1 by more than log loss lets pass.
        return chances[:, 1] if self.kind == "binary" else chances / chances.sum(axis=1, keepdims=True)

    def score(self, y: NDArray[Any], predictions: NDArray[np.float64]) -> float:
        """Area under the ROC curve, log loss or root mean squared error, as ``METRICS`` says."""
        if self.kind == "binary":
            return float(roc_auc_score(y, predictions))
        if self.kind == "multiclass":
            return self.log_loss(y, predictions)
        return float(root_mean_squared_error(y, predictions))

    def log_loss(self, y: NDArray[Any], predictions: NDArray[np.float64]) -> float:
        """Mean negative log of the probability that the true class got."""
        return float(log_loss(y, predictions, labels=np.unique(self.train.y)))


def prepare(data: DataSet, most_rows: int = MOST_ROWS) -> Task:
    """Tell what is asked from the target (two values, floats, others), and draw from the training rows if many."""
    train, note = Rows(*data.part("train")), ""
    if len(train.y) > most_rows:
        note = f"{data.name}: {most_rows:,} of {len(train.y):,} training rows, drawn at random with seed 0"
        taken = np.sort(np.random.default_rng(0).choice(len(train.y), most_rows, replace=False))
        train = Rows(train.X.iloc[taken].reset_index(drop=True), train.y[taken])
    kind = "binary" if len(np.unique(data.y)) == 2 else "regression" if data.y.dtype.kind == "f" else "multiclass"
    return Task(data.name, kind, train, Rows(*data.part("valid")), Rows(*data.part("test")), note)
