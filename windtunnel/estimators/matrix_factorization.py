"""Matrix factorization: predicts ratings by inner products of learned vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted

from windtunnel.errors import BadInput
from windtunnel.estimators.columns import (
    ReadsCategories,
    Table,
    column_at,
    count_categories,
    read_table,
    vocabulary_positions,
)
from windtunnel.estimators.options import check_options

if TYPE_CHECKING:
    from torch import Tensor

BATCHES = 100
"""Steps per epoch; a step has at least 32 and at most 1024 rows."""


class MatrixFactorization(ReadsCategories, RegressorMixin, BaseEstimator):
    """Predict the rating of an item by a user from a learned vector for each.

        y = mean_ + b_u + c_i + <p_u, q_i>

    Fitted by Adam on the mean squared error plus ``regularization`` times the mean over the rows of a batch of
    ``|p_u|^2 + |q_i|^2 + b_u^2 + c_i^2``. A missing user or item, or one that ``fit`` has not seen, has
    a zero vector and a zero bias.

    Parameters
    ----------
    n_factors : int, default 20
        Length of the vectors.
    learning_rate : float, default 0.01
        Step size of Adam.
    epochs : int, default 30
        Passes over the rows.
    regularization : float, default 0.02
        Factor of the squared norms in the loss.
    random_state : int, RandomState or None, default None
        Seed of the initial vectors and of the order of the rows; with an int, fits are reproducible.

    Attributes
    ----------
    users_, items_ : list
        The categories of the first and the second column, sorted.
    mean_ : float
        The mean of the targets.
    user_biases_ : float64 array [users]
    item_biases_ : float64 array [items]
    user_factors_ : float64 array [users, n_factors]
    item_factors_ : float64 array [items, n_factors]
    n_features_in_ : int
        Always 2.
    feature_names_in_ : object array [2]
        Only where ``fit`` got a table whose column names are all strings.

    Examples
    --------
    >>> import pandas as pd
    >>> from windtunnel.estimators import MatrixFactorization
    >>> seen = pd.DataFrame({"user": ["ann", "ann", "bob"], "film": ["Alien", "Brazil", "Alien"]})
    >>> model = MatrixFactorization(n_factors=2, random_state=0).fit(seen, [5.0, 3.0, 1.0])
    >>> model.users_, model.items_
    (['ann', 'bob'], ['Alien', 'Brazil'])
    >>> model.predict(pd.DataFrame({"user": ["eve"], "film": ["Casablanca"]})).tolist()
    [3.0]
    """

    def __init__(
        self,
        n_factors: int = 20,
        *,
        learning_rate: float = 0.01,
        epochs: int = 30,
        regularization: float = 0.02,
        random_state: Any = None,
    ) -> None:
        self.n_factors = n_factors
        self.learning_rate = learning_rate
        self.epochs = epochs
        self.regularization = regularization
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Fit on a table [rows, 2] of users and items, and a rating for each row [rows]."""
        check_options(self, {"n_factors": 1, "epochs": 0})
        table = self._read(X, fitting=True)
        target = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y").reshape(-1)
        check_consistent_length(table, target)
        self.users_, self.items_ = (list(count_categories(table, at)) for at in (0, 1))
        self.mean_ = float(target.mean())
        # Missing values have the last row of a table: zeros that are never trained.
        codes = self._codes(table)
        users, items = _fitted_tables(self, codes, target - self.mean_)
        self.user_biases_, self.user_factors_ = users[:, 0].copy(), users[:, 1:].copy()
        self.item_biases_, self.item_factors_ = items[:, 0].copy(), items[:, 1:].copy()
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return the expected rating of each pair of user and item [rows, 2], float64 [rows]."""
        check_is_fitted(self)
        users, items = self._codes(self._read(X, fitting=False)).T
        biases = _with_zeros(self.user_biases_)[users] + _with_zeros(self.item_biases_)[items]
        matches = (_with_zeros(self.user_factors_)[users] * _with_zeros(self.item_factors_)[items]).sum(axis=1)
        predicted: NDArray[np.float64] = self.mean_ + biases + matches
        return predicted

    def _read(self, X: Any, fitting: bool) -> Table:
        table = read_table(self, X, fitting=fitting)
        if table.shape[1] != 2:
            raise BadInput(
                f"MatrixFactorization got {table.shape[1]} columns; it reads 2, the user and the item. Pick them by "
                "name, or with a ColumnTransformer."
            )
        return table

    def _codes(self, table: Table) -> NDArray[np.int64]:
        """Positions of users and items [rows, 2]; of missing and unknown ones, the number of known ones."""
        columns = []
        for at, known in enumerate((self.users_, self.items_)):
            positions, _ = vocabulary_positions(column_at(table, at), known)
            columns.append(np.where(positions < 0, len(known), positions))
        return np.stack(columns, axis=1)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def _with_zeros(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Append the row of zeros of unknown users or items."""
    return np.concatenate([rows, np.zeros((1, *rows.shape[1:]))])


def _fitted_tables(
    model: MatrixFactorization, codes: NDArray[np.int64], target: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Biases and vectors side by side, float64 [users, 1 + factors] and [items, 1 + factors]."""
    import torch  # here, so that the other estimators load without it

    random = torch.Generator().manual_seed(int(check_random_state(model.random_state).randint(2**31)))
    tables = [_initial_table(len(known), model.n_factors, random) for known in (model.users_, model.items_)]
    optimizer = torch.optim.Adam(tables, lr=model.learning_rate)
    ratings, positions = torch.from_numpy(target), torch.from_numpy(codes)
    size = min(max(len(target) // BATCHES, 32), 1024)
    for _ in range(model.epochs):
        for rows in torch.randperm(len(ratings), generator=random).split(size):  # type: ignore[no-untyped-call]
            optimizer.zero_grad()
            loss = _loss(tables, positions[rows], ratings[rows], model.regularization)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    users, items = (table.detach()[:-1].numpy() for table in tables)
    return users, items


def _initial_table(count: int, factors: int, random: Any) -> Tensor:
    import torch

    table = torch.randn(count + 1, 1 + factors, generator=random, dtype=torch.float64) * 0.1
    table[:, 0] = 0
    table[-1] = 0
    return table.requires_grad_()


def _loss(tables: list[Tensor], positions: Tensor, target: Tensor, regularization: float) -> Tensor:
    from torch.nn.functional import embedding

    # The row of missing ones is padding: no gradient moves it.
    user, item = (embedding(positions[:, at], table, len(table) - 1) for at, table in enumerate(tables))
    predicted = user[:, 0] + item[:, 0] + (user[:, 1:] * item[:, 1:]).sum(dim=1)
    penalty = user.square().sum(dim=1) + item.square().sum(dim=1)
    return ((predicted - target).square() + regularization * penalty).mean()
