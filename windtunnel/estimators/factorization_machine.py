"""Factorization machines as scikit-learn estimators: linear models with factored products of columns."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from windtunnel.errors import BadInput
from windtunnel.estimators.options import check_options


class _FactorizationMachine(BaseEstimator):
    """Options, training and raw scores of the classifier and the regressor."""

    def __init__(
        self,
        n_factors: int = 20,
        *,
        learning_rate: float = 1e-3,
        epochs: int = 30,
        batch_size: int | None = None,
        regularization: float = 1e-6,
        random_state: Any = None,
    ) -> None:
        self.n_factors = n_factors
        self.learning_rate = learning_rate
        self.epochs = epochs
        self.batch_size = batch_size
        self.regularization = regularization
        self.random_state = random_state

    def _fit_machine(self, X: Any, target: NDArray[Any], outputs: int, bias: float, loss: str) -> None:
        """Fit ``intercept_`` [K], ``coef_`` [K, width] and ``factors_`` [K, width, n_factors] by Adam."""
        import torch  # here, so that the other estimators load without it

        from windtunnel.estimators.factorization_training import fit_machine
        from windtunnel.modules.linear.factorization_machine import FactorizationMachine

        seed = int(check_random_state(self.random_state).randint(2**31))
        shape = (outputs, X.shape[1], self.n_factors)
        draws = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        machine = FactorizationMachine(
            weight=torch.zeros(shape[:2], dtype=torch.float64),
            bias=torch.full(shape[:1], bias, dtype=torch.float64),
            factors=draws * 0.01,
        )
        self.loss_curve_ = fit_machine(
            machine,
            X,
            target,
            loss=loss,
            epochs=int(self.epochs),
            learning_rate=float(self.learning_rate),
            weight_decay=float(self.regularization),
            batch_size=None if self.batch_size is None else int(self.batch_size),
            seed=seed,
        )
        self.intercept_, self.coef_, self.factors_ = (
            parameter.detach().numpy().copy() for parameter in (machine.bias, machine.weight, machine.factors)
        )

    def _scores(self, X: Any) -> NDArray[np.float64]:
        """Raw scores float64 [rows, K]."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        linear = X @ self.coef_.T + self.intercept_
        for k, factors in enumerate(self.factors_):
            diagonal = (X.multiply(X) if sparse.issparse(X) else X * X) @ (factors * factors).sum(axis=1)
            linear[:, k] += 0.5 * (np.square(X @ factors).sum(axis=1) - diagonal)
        scores: NDArray[np.float64] = linear
        return scores

    def _check_options(self) -> None:
        check_options(self, {"n_factors": 1, "epochs": 1, "batch_size": 1}, optional=("batch_size",))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class FactorizationMachineClassifier(ClassifierMixin, _FactorizationMachine):
    """Classify by a factorization machine of second order over numbers, such as one-hot categories.

        s_k = b_k + sum_i w_ki x_i + sum over i < j of <v_ki, v_kj> x_i x_j

    One score, the log-odds, for two classes, else one per class and a softmax; fitted on the log loss.

    Parameters
    ----------
    n_factors : int, default 20
        F, the length of the factors of a column.
    learning_rate : float, default 1e-3
        Step size of Adam.
    epochs : int, default 30
        Passes over the rows. Leaves of trees fitted on the same rows (``LeafEncoder``) need one or two; more overfit.
    batch_size : int or None, default None
        Rows per step; None is 4096, or less so that an epoch has 20 steps.
    regularization : float, default 1e-6
        Weight decay of Adam, on all coefficients.
    random_state : int, RandomState or None, default None
        Seed of the initial factors and of the order of the rows; with an int, fits are reproducible.

    Attributes
    ----------
    classes_ : array [classes]
    intercept_ : float64 array [K]
    coef_ : float64 array [K, width]
    factors_ : float64 array [K, width, n_factors]
    loss_curve_ : list of float
        Mean loss of each epoch.
    n_features_in_, feature_names_in_
        As usual.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0, 0], [0, 1], [1, 0], [1, 1]] * 20, dtype=float) * 2 - 1
    >>> y = X[:, 0] * X[:, 1] > 0
    >>> FactorizationMachineClassifier(2, learning_rate=0.05, batch_size=16, random_state=0).fit(X, y).score(X, y)
    1.0
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from rows [rows, width], dense or sparse, and a label for each."""
        self._check_options()
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64)
        check_classification_targets(y)
        self.classes_, target = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise BadInput(
                f"labels of one class, {self.classes_[0]!r}; a classifier needs rows of at least two classes."
            )
        if len(self.classes_) == 2:
            self._fit_machine(X, target, 1, bias=0.0, loss="logistic")
        else:
            self._fit_machine(X, target, len(self.classes_), bias=0.0, loss="softmax")
        return self

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Log-odds [rows] of the second of two classes, else a score per class [rows, classes]."""
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities float64 [rows, classes]."""
        scores = self._scores(X)
        if scores.shape[1] == 1:
            scores = np.concatenate([np.zeros_like(scores), scores], axis=1)
        probabilities: NDArray[np.float64] = softmax(scores, axis=1)
        return probabilities

    def predict(self, X: Any) -> NDArray[Any]:
        """The label of the greatest score [rows]."""
        scores = self._scores(X)
        best = (scores[:, 0] > 0).astype(int) if scores.shape[1] == 1 else scores.argmax(axis=1)
        labels: NDArray[Any] = self.classes_[best]
        return labels


class FactorizationMachineRegressor(RegressorMixin, _FactorizationMachine):
    """Predict a number by a factorization machine of second order over numbers, such as one-hot categories.

        y = b + sum_i w_i x_i + sum over i < j of <v_i, v_j> x_i x_j

    Minimises the squared error; the initial bias is the mean of the targets.

    Parameters are those of ``FactorizationMachineClassifier``.

    Attributes
    ----------
    intercept_ : float64 array [1]
    coef_ : float64 array [1, width]
    factors_ : float64 array [1, width, n_factors]
    loss_curve_ : list of float
        Mean loss of each epoch.
    n_features_in_, feature_names_in_
        As usual.
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from rows [rows, width], dense or sparse, and a number for each."""
        self._check_options()
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, y_numeric=True)
        target = np.asarray(y, dtype=np.float64)
        self._fit_machine(X, target, 1, bias=float(target.mean()), loss="squared")
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """The number expected for each row, float64 [rows]."""
        return self._scores(X)[:, 0]
