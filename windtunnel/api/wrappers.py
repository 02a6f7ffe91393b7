"""scikit-learn estimators that fit a pipeline, translate it and fine-tune it."""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import fields
from inspect import signature
from numbers import Integral, Number
from os import PathLike
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, is_classifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import _safe_indexing, check_random_state, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from windtunnel.api.crossfit import crossfit
from windtunnel.api.report import Report
from windtunnel.api.translate import translate
from windtunnel.api.translation import Translation
from windtunnel.encode import Rows, as_column, indexable
from windtunnel.encode.row_values import check_length, check_no_missing
from windtunnel.encode.rows import count_rows
from windtunnel.encode.rows_with_targets import rows_with_targets
from windtunnel.errors import BadInput, InvalidOption, join_some
from windtunnel.estimators.fitting import (
    check_needs_no_queries,
    clone_for_refit,
    clone_unfitted,
    early_stopping_options,
    fit_estimator,
    last_step,
)
from windtunnel.estimators.takes_sequence import takes_sequence
from windtunnel.explain.explanation import Explanation
from windtunnel.export import Format
from windtunnel.program.records.history import History
from windtunnel.program.translate_options import MAX_CALIBRATION_ROWS, check_options
from windtunnel.trainers.data.hold_out import can_hold_out, hold_out_mask
from windtunnel.trainers.recipe import Recipe, reject_unknown

RECIPE = "recipe__"
"""Prefix of the options of the recipe among the parameters."""


class _WindTunnel(BaseEstimator):
    """Base of the classifier and the regressor; ``__init__`` stores options unchanged and ``fit`` checks them."""

    def __new__(cls, *_: Any, **options: Any) -> Self:
        """Reject unknown options with a suggestion; scikit-learn wants ``__init__`` to name all options."""
        names = cls._get_param_names()
        reject_unknown({name: value for name, value in options.items() if name not in names}, cls.__name__, names)
        return super().__new__(cls)  # type: ignore[no-any-return]

    def __init__(
        self,
        pipeline: Any = None,
        *,
        level: Any = "L4",
        start: str = "warm",
        temperature: float | str = "auto",
        untranslated: str = "cache",
        recipe: Recipe | str | None = None,
        validation_fraction: float | None = None,
        folds: Any = "auto",
        random_state: Any = None,
        progress: bool = False,
    ) -> None:
        self.pipeline = pipeline
        self.level = level
        self.start = start
        self.temperature = temperature
        self.untranslated = untranslated
        self.recipe = recipe
        self.validation_fraction = validation_fraction
        self.folds = folds
        self.random_state = random_state
        self.progress = progress

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The options by name; with ``deep`` also those of the pipeline and, as ``recipe__epochs``, of the recipe."""
        params: dict[str, Any] = super().get_params(deep)
        if deep:
            with suppress(InvalidOption):  # ``fit`` rejects it
                recipe = Recipe.resolve(self.recipe, {})
                params |= {f"{RECIPE}{field.name}": getattr(recipe, field.name) for field in fields(Recipe)}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set options by name, such as ``recipe__epochs=3``, which replaces the recipe by a changed one."""
        changes = {name.removeprefix(RECIPE): params.pop(name) for name in [*params] if name.startswith(RECIPE)}
        super().set_params(**params)
        if changes:
            self.recipe = Recipe.resolve(self.recipe, changes)
        return self

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, eval_set: Any = None) -> Self:
        """Fit the pipeline on the training part of the rows, translate it and fine-tune it.

        The other rows are the validation rows, on which ``fit`` selects and tests changes.

        With folds, each member is fitted on all but one fold of the training part: see ``windtunnel.crossfit``.

        Parameters
        ----------
        X : rows
            DataFrame, array, or what the pipeline takes.
        y : array of shape (rows,)
        sample_weight : array of shape (rows,), optional
            Row weights for the pipeline's last step and for the loss.
        eval_set : (X, y), (X, y, weight), or a list with one of these, optional
            Validation rows in the place of those that are held out.

        Raises
        ------
        BadInput
            Missing labels, or rows that are not given as above.
        InvalidOption
            A wrong option, or a pipeline that is a translation already.
        """
        if _are_rows_with_targets(X) or _are_rows_with_targets(sample_weight):
            raise BadInput("an estimator is fitted by fit(X, y, sample_weight); validation rows are eval_set=(X, y)")
        before = dict(self.__dict__)
        try:
            self._fit(X, y, sample_weight, eval_set)
        except BaseException:
            if self.__dict__.get("translation_") is before.get("translation_"):
                self.__dict__.clear()
                self.__dict__.update(before)
            raise
        return self

    def _fit(self, X: Any, y: Any, sample_weight: Any, eval_set: Any) -> None:
        check_options(self.level, self.start, self.temperature, self.untranslated)
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        X = self._rows(X)
        # Names and number of columns. The pipeline checks the values.
        validate_data(self, X, y=y, skip_check_array=True)
        y = column_or_1d(y, warn=True)
        check_no_missing(y)
        check_consistent_length(X, y)
        weight = None if sample_weight is None else _check_sample_weight(sample_weight, X)
        options = {"validation_fraction": self.validation_fraction, "seed": self._seed()}
        recipe = Recipe.resolve(self.recipe, {name: value for name, value in options.items() if value is not None})

        def part(rows: NDArray[np.int64]) -> tuple[Any, Any, Any]:
            return _safe_indexing(X, rows), y[rows], None if weight is None else weight[rows]

        train_rows = np.arange(len(y))
        train = X, y, weight
        valid = None if eval_set is None else self._validation(eval_set, y)
        if eval_set is None and (split := self._split(y, weight, recipe)) is not None:
            train_rows, valid_rows = split
            train, valid = part(train_rows), part(valid_rows)
        if self.folds in ("auto", None):
            calibration = np.sort(np.random.default_rng(recipe.seed).permutation(train_rows)[:MAX_CALIBRATION_ROWS])
            self._fit_pipeline(train, valid, _safe_indexing(X, calibration), recipe)
        else:
            self._fit_members(train, valid, recipe)

    def _fit_pipeline(self, train: Any, valid: Any, calibrate: Any, recipe: Recipe) -> None:
        source = fit_estimator(self._source(train[0]), *train, validation=valid)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="calibrate= has")  # there are no more rows to give
            net = translate(
                source,
                level=self.level,
                start=self.start,
                temperature=self.temperature,
                calibrate=calibrate,
                untranslated=self.untranslated,
            )
        try:
            net.fit(train, valid, recipe=recipe, progress=self.progress)
        finally:
            if net.history is not None:  # after an interrupt that of the best model so far
                self.pipeline_ = source
                self._keep(net)

    def _fit_members(self, train: Any, valid: Any, recipe: Recipe) -> None:
        source = self._source(train[0])
        if early_stopping_options(last_step(source)):  # members get the number of trees at which it stops
            source = clone_for_refit(fit_estimator(source, *train, validation=valid))
        net = crossfit(
            source, *train, valid=valid, folds=self.folds, recipe=recipe, seed=recipe.seed, progress=self.progress
        )
        self._keep(net)
        if hasattr(self, "pipeline_"):  # of an earlier fit without folds
            del self.pipeline_

    def _keep(self, net: Translation) -> None:
        self.translation_ = net
        if is_classifier(self):
            self.classes_ = net.classes_

    def _validation(self, eval_set: Any, y: NDArray[Any]) -> tuple[Any, Any, Any]:
        """The validation rows, in the form that ``Translation.fit`` takes; ``y`` are the targets of the training rows.

        They are checked, as a booster that stops early reads them first.
        """
        sets = eval_set if isinstance(eval_set, list) and all(isinstance(part, tuple) for part in eval_set) else []
        if len(sets) > 1:
            raise BadInput(f"eval_set has {len(sets)} sets of rows; give one, that of the validation rows")
        parts = sets[0] if sets else eval_set
        accepted = "give (X, y), (X, y, weight), or a list with one of these"
        rows, target, weight = rows_with_targets("eval_set is", parts, accepted)
        rows, target = self._rows(rows), column_or_1d(target)
        check_length("y of eval_set", target, count_rows(rows))
        check_no_missing(target)
        if is_classifier(self) and (unknown := sorted(map(repr, {*target.tolist()} - {*y.tolist()}))):
            raise BadInput(f"eval_set has the labels {join_some(unknown)}, which the training rows have not")
        return rows, target, weight

    def _seed(self) -> int | None:
        """``random_state`` as a whole number, drawn if it is a generator."""
        if self.random_state is None:
            return None
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _split(
        self, y: NDArray[Any], weight: NDArray[Any] | None, recipe: Recipe
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """Training and validation rows, by class for a classifier; None if too few rows can be held out."""
        if is_classifier(self):
            check_classification_targets(y)
            target = torch.from_numpy(np.unique(y, return_inverse=True)[1])
        else:
            target = torch.zeros(len(y))  # one stratum
        weights = None if weight is None else torch.tensor(weight)
        held_out = hold_out_mask(target, weights, recipe.validation_fraction, recipe.seed)
        if not can_hold_out(held_out, target, weights):
            return None
        return np.flatnonzero(~held_out), np.flatnonzero(held_out)

    def _source(self, X: Any) -> Any:
        """An unfitted copy of the pipeline, or the default one for such rows."""
        if isinstance(self._pipeline(), Translation):
            raise InvalidOption(
                "pipeline is a translation, which holds no pipeline to fit; give the pipeline, or call fit((X, y), "
                "valid) of the translation"
            )
        # To center sparse rows would make them dense. A table has the accessor if all of its columns are sparse.
        is_sparse = issparse(X) or hasattr(X, "sparse")
        source = self._default(centered=not is_sparse) if self.pipeline is None else clone_unfitted(self.pipeline)
        check_needs_no_queries(source)
        if is_classifier(source) != is_classifier(self):
            wanted, other = ("classifier", "Regressor") if is_classifier(self) else ("regressor", "Classifier")
            raise InvalidOption(
                f"{type(self).__name__} takes a pipeline that ends in a {wanted}, which {type(source).__name__} does "
                f"not; use WindTunnel{other}, or change the last step."
            )
        return source

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        source = self._pipeline()
        if hasattr(source, "__sklearn_tags__"):
            of_source = get_tags(source).input_tags
            for name in ("sparse", "allow_nan", "string", "categorical"):
                setattr(tags.input_tags, name, getattr(of_source, name))
        tags.input_tags.sparse |= self.pipeline is None
        tags.input_tags.two_d_array = not takes_sequence(source)
        return tags

    def _pipeline(self) -> Any:
        return self._default() if self.pipeline is None else self.pipeline

    def _default(self, *, centered: bool = True) -> Pipeline:
        raise NotImplementedError

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict labels of a classifier, values of a regressor."""
        return self._call("predict", X)  # type: ignore[no-any-return]

    def _call(self, method: str, X: Any, *arguments: Any, **options: Any) -> Any:
        """Call a method of the translation for raw rows, which have the columns of the rows of ``fit``."""
        X = self._rows(X)
        check_is_fitted(self)
        validate_data(self, X, reset=False, skip_check_array=True)
        return getattr(self.translation_, method)(X, *arguments, **options)

    def _rows(self, X: Any) -> Any:
        """Rows that can be indexed; one column of objects for a pipeline that takes texts or the like."""
        return indexable(as_column(X)) if takes_sequence(self._pipeline()) else _table(X)

    def explain(self, X: Any, background: Any = None, *, samples: int = 50) -> Explanation:
        """The contributions of raw columns to the raw scores of rows; see ``Translation.explain``."""
        return self._call("explain", X, background, samples=samples)  # type: ignore[no-any-return]

    def report(self, test: tuple[Any, ...] | None = None, *, source: Any = None) -> Report:
        """The report of the translation; see ``Translation.report``."""
        check_is_fitted(self)
        return self.translation_.report(test, source=source)

    def save(self, path: str | PathLike[str]) -> None:
        """Save the translation, which ``windtunnel.load`` reads; the wrapper's options are not in the file."""
        check_is_fitted(self)
        self.translation_.save(path)

    def export(self, path: str | PathLike[str], format: Format | None = None, *, example: Rows | None = None) -> None:
        """Write one file that scores without windtunnel; see ``Translation.export``."""
        check_is_fitted(self)
        self.translation_.export(path, format, example=example)

    @property
    def history_(self) -> History:
        """The record of fine-tuning, with its epochs."""
        check_is_fitted(self)
        history = self.translation_.history
        assert history is not None  # ``fit`` records one
        return history


# inspect.signature of the class looks at ``__new__`` first.
_WindTunnel.__new__.__signature__ = signature(_WindTunnel.__init__)  # type: ignore[attr-defined]


def _are_rows_with_targets(argument: Any) -> bool:
    """Whether an argument is ``(X, y)`` or ``(X, y, weight)``, as ``Translation.fit`` takes them."""
    return isinstance(argument, tuple) and len(argument) in (2, 3) and len(getattr(argument[0], "shape", ())) == 2


def _table(X: Any) -> Any:
    """Rows that can be indexed: tables as they are, sparse matrices as CSR, everything else as an array.

    Raises
    ------
    ValueError
        For anything but two dimensions.
    TypeError
        For arrays of objects that are neither text nor numbers.
    """
    if issparse(X):
        return X.tocsr()
    if hasattr(X, "iloc") or hasattr(X, "to_pandas"):
        return X
    array = np.asarray(X)
    if array.ndim != 2:
        raise ValueError(f"rows with {array.ndim} dimensions. Reshape your data: X.reshape(1, -1) is a single row.")
    if array.dtype == object:
        types = {type(value).__name__ for value in array.ravel() if not isinstance(value, (str, Number, type(None)))}
        if types - {"NAType"}:
            kinds = ", ".join(sorted(types))
            raise TypeError(f"an argument must be a string or a number in every cell of the rows, not {kinds}.")
    return array


def _translation_has(method: str) -> Any:
    def check(estimator: Any) -> bool:
        if hasattr(estimator, "translation_"):
            return hasattr(estimator.translation_, method)
        return hasattr(estimator._pipeline(), method)

    return check


class WindTunnelClassifier(ClassifierMixin, _WindTunnel):
    """A classification pipeline, fitted, translated and fine-tuned as one estimator.

    Parameters
    ----------
    pipeline : estimator, default None
        Unfitted Pipeline or classifier, which ``fit`` clones; None is a StandardScaler and a LogisticRegression. The
        scaler does not center sparse rows.
    level, start, temperature, untranslated
        See ``windtunnel.translate``. They have no effect with ``folds``, whose members stay as they are.
    recipe : Recipe, str or None
        All options of fine-tuning, such as ``windtunnel.Recipe(epochs=5)``. A search takes whole recipes, or single
        options: ``{"recipe__epochs": [3, 6]}``.
    validation_fraction : float or None, default None
        Fraction of the rows for validation; None is that of the recipe, 0.1. LightGBM, XGBoost
        or CatBoost as the last step, with early stopping among its options, stops by these rows too.
    folds : int, "auto" or None
        Members of ``windtunnel.crossfit``: more accurate, and as many times slower to score. "auto" and None are one
        model.
    random_state : int, RandomState or None, default None
        Seed of the hold-out, the calibration rows, the folds and fine-tuning; None is that of the recipe, 0.
    progress : bool, default False
        Whether to show a progress bar.

    Attributes
    ----------
    pipeline_ : the fitted source, where it is one model
    translation_ : Translation
    classes_ : labels
    history_ : History
    """

    def _default(self, *, centered: bool = True) -> Pipeline:
        return make_pipeline(StandardScaler(with_mean=centered), LogisticRegression())

    @available_if(_translation_has("predict_proba"))
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities, one column per class."""
        return self._call("predict_proba", X)  # type: ignore[no-any-return]

    @available_if(_translation_has("predict_log_proba"))
    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """Logarithms of the probabilities, one column per class."""
        return self._call("predict_log_proba", X)  # type: ignore[no-any-return]

    @available_if(_translation_has("decision_function"))
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Raw scores."""
        return self._call("decision_function", X)  # type: ignore[no-any-return]


class WindTunnelRegressor(RegressorMixin, _WindTunnel):
    """A regression pipeline, fitted, translated and fine-tuned as one estimator.

    Parameters and attributes are those of ``WindTunnelClassifier``, without labels; the default pipeline is a
    StandardScaler and a Ridge.
    """

    def _default(self, *, centered: bool = True) -> Pipeline:
        return make_pipeline(StandardScaler(with_mean=centered), Ridge())
