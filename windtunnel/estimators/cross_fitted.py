"""Cross-fitted ensembles: members fitted on all but one fold each, their mean, and out-of-fold predictions."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, is_classifier
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold
from sklearn.utils import _safe_indexing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _num_samples, check_consistent_length, check_is_fitted, column_or_1d, validate_data

from windtunnel.errors import BadInput, InvalidOption, UnsupportedEstimator, is_whole_number
from windtunnel.estimators.fitting import check_needs_no_queries, clone_for_refit, fit_estimator, last_step
from windtunnel.estimators.takes_sequence import takes_sequence
from windtunnel.modules.ensembles.log_pool import LEAST_PROBABILITY


def _check_groups_and_time(groups: Any, time: Any) -> None:
    """Raise ``BadInput`` for the name of a column in the place of its values, and for missing values."""
    for name, values in (("groups", groups), ("time", time)):
        if isinstance(values, str):
            raise BadInput(f"{name}={values!r} is a text; give a value per row, such as {name}=X[{values!r}]")
        if values is not None and (missing := int(pd.isna(np.asarray(values)).sum())):
            raise BadInput(f"{name}= has {missing} missing values; drop these rows, or give them a value")


class _CrossFitted(BaseEstimator):
    """Folds, members and out-of-fold predictions of the classifier and the regressor."""

    def __init__(self, estimator: Any, *, folds: int = 5, random_state: int | None = 0) -> None:
        self.estimator = estimator
        self.folds = folds
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None, time: Any = None) -> Self:
        """Fit one member per fold, on the rows of all other folds.

        Parameters
        ----------
        X : rows
            DataFrame, array, or anything that the estimator takes.
        y : array of shape (rows,)
        sample_weight : array of shape (rows,), optional
            Weights for the estimator, or for the last step of a pipeline.
        groups : array of shape (rows,), optional
            Rows of one group stay together in one fold.
        time : array of shape (rows,), optional
            Folds are blocks of neighbouring rows in the order of these values.
        """
        check_needs_no_queries(self.estimator)
        validate_data(self, X, skip_check_array=True)  # names and number of columns
        y = column_or_1d(y, warn=True)
        _check_groups_and_time(groups, time)
        check_consistent_length(X, y, sample_weight, groups, time)
        if is_classifier(self):
            check_classification_targets(y)
            self.classes_ = np.unique(y)
        self.fold_ = self._fold(X, y, groups, time)
        self.estimators_ = []
        for fold in range(self.folds):
            rows = np.flatnonzero(self.fold_ != fold)
            self._check_labels(y[rows], fold)
            weight = None if sample_weight is None else np.asarray(sample_weight)[rows]
            member = fit_estimator(clone_for_refit(self.estimator), _safe_indexing(X, rows), y[rows], weight)
            self._check_member(member)
            self.estimators_.append(member)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = not takes_sequence(self.estimator)  # a vectorizer takes texts
        return tags

    def _fold(self, X: Any, y: NDArray[Any], groups: Any, time: Any) -> NDArray[np.int64]:
        """The fold of each row, int64 [rows]."""
        count = _num_samples(X)
        if not is_whole_number(self.folds, 2) or self.folds > count:
            raise InvalidOption(f"folds={self.folds!r} must be a whole number from 2 to the number of rows, {count}")
        if groups is not None and time is not None:
            raise InvalidOption("groups and time are both given; give one of them")
        groups, time = check_column("groups", groups), check_column("time", time)
        if groups is not None and (group_count := len(np.unique(groups))) < self.folds:
            raise InvalidOption(f"folds={self.folds} and {group_count} groups; give at most as many folds as groups")
        if groups is not None:
            parts: Any = GroupKFold(self.folds).split(y, y, groups)
        elif time is not None:
            order = np.argsort(time, kind="stable")
            parts = ((None, order[held_out]) for _, held_out in KFold(self.folds).split(order))
        elif is_classifier(self) and np.unique(y, return_counts=True)[1].min() >= self.folds:
            parts = StratifiedKFold(self.folds, shuffle=True, random_state=self.random_state).split(y, y)
        else:
            parts = KFold(self.folds, shuffle=True, random_state=self.random_state).split(y)
        fold = np.empty(count, dtype=np.int64)
        for number, (_, held_out) in enumerate(parts):
            fold[held_out] = number
        return fold

    def _check_labels(self, y: NDArray[Any], fold: int) -> None:
        if is_classifier(self) and (missing := sorted(set(self.classes_.tolist()) - set(y.tolist()))):
            raise BadInput(
                f"the rows outside of fold {fold} hold no row of class {missing[0]!r}; every member needs rows of "
                "every class: take fewer folds, random ones, or drop the class"
            )

    def out_of_fold(self, X: Any) -> NDArray[np.float64]:
        """Predict each training row by the member that was not fitted on it, [rows, ...].

        Probabilities of a classifier, values of a regressor. X must be the rows that ``fit`` got, in the same order.
        """
        check_is_fitted(self)
        check_consistent_length(X, self.fold_)
        outputs: NDArray[np.float64] | None = None
        for fold, member in enumerate(self.estimators_):
            rows = np.flatnonzero(self.fold_ == fold)
            output = np.asarray(self._predict_member(member, _safe_indexing(X, rows)), dtype=np.float64)
            if outputs is None:
                outputs = np.empty((len(self.fold_), *output.shape[1:]))
            outputs[rows] = output
        assert outputs is not None
        return outputs

    def _check_member(self, member: Any) -> None:
        """Raise ``UnsupportedEstimator`` for a fitted member that cannot predict what is averaged."""

    def _predict_member(self, member: Any, X: Any) -> Any:
        raise NotImplementedError


class CrossFittedClassifier(ClassifierMixin, _CrossFitted):
    """Classify by the logarithmic mean of members that were fitted on all but one fold of the rows each.

        p_k(x) proportional to exp(mean over members m of log p_mk(x)),    p_mk >= 1e-7

    ``out_of_fold`` predicts each training row by the one member that was not fitted on it.

    Parameters
    ----------
    estimator : classifier or Pipeline with predict_proba
        Cloned. If it is fitted and stopped early, members get as many trees as it has.
    folds : int, default 5
    random_state : int or None, default 0
        Seed of the folds.

    Attributes
    ----------
    estimators_ : list of fitted members
    fold_ : int64 [rows]
        The fold of each training row: the number of the member that did not see it.
    classes_ : labels
    """

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities, one column per class."""
        check_is_fitted(self)
        pooled = np.mean([log_probabilities(member.predict_proba(X)) for member in self.estimators_], axis=0)
        probabilities: NDArray[np.float64] = softmax(pooled, axis=1)
        return probabilities

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable label."""
        labels: NDArray[Any] = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return labels

    def _check_member(self, member: Any) -> None:
        if not hasattr(member, "predict_proba"):
            raise UnsupportedEstimator(
                f"{type(last_step(member)).__name__} has no predict_proba, and cross-fitting takes the mean of the "
                "members' probabilities; wrap it in CalibratedClassifierCV, or translate the pipeline and call fit, "
                "which needs no probabilities"
            )

    def _predict_member(self, member: Any, X: Any) -> Any:
        return member.predict_proba(X)


class CrossFittedRegressor(RegressorMixin, _CrossFitted):
    """Predict by the mean of members that were fitted on all but one fold of the rows each.

    Parameters and attributes are those of ``CrossFittedClassifier``, without labels.
    """

    def predict(self, X: Any) -> NDArray[np.float64]:
        """The mean of what the members predict."""
        check_is_fitted(self)
        mean: NDArray[np.float64] = np.mean([member.predict(X) for member in self.estimators_], axis=0)
        return mean

    def _predict_member(self, member: Any, X: Any) -> Any:
        return member.predict(X)


def log_probabilities(probabilities: Any) -> NDArray[np.float64]:
    """The logarithm of probabilities, kept above ``LEAST_PROBABILITY``."""
    logs: NDArray[np.float64] = np.log(np.maximum(np.asarray(probabilities, dtype=np.float64), LEAST_PROBABILITY))
    return logs


def check_column(name: str, values: Any) -> NDArray[Any] | None:
    """The groups or times of rows, ``[rows]``; ``BadInput`` for several columns, and for times that are texts."""
    if values is None:
        return None
    column = np.asarray(values)
    if column.ndim == 2 and column.shape[1] == 1:
        column = column[:, 0]
    if column.ndim != 1:
        raise BadInput(f"{name}= has the shape {column.shape}; give one value per row")
    if name == "time" and (texts := [each for each in column if isinstance(each, str)]):
        raise BadInput(
            f"time= holds texts such as {texts[0]!r}, whose order is that of letters; give numbers or dates, such as "
            "pd.to_datetime(...)"
        )
    return column
