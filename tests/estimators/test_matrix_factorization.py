"""The factor model of users and items."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

import windtunnel
from windtunnel import MatrixFactorization
from windtunnel.errors import BadInput, InvalidOption


def ratings(rows: int = 400, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """What 12 users make of 9 films, by two hidden tastes."""
    random = np.random.default_rng(0)
    tastes, kinds = random.normal(size=(12, 2)), random.normal(size=(9, 2))
    random = np.random.default_rng(seed)
    user, film = random.integers(12, size=rows), random.integers(9, size=rows)
    frame = pd.DataFrame(
        {"user": user * 10, "film": [f"film {letter}" for letter in np.array(list("ABCDEFGHI"))[film]]}
    )
    return frame, 3 + (tastes[user] * kinds[film]).sum(axis=1) + 0.1 * random.normal(size=rows)


def test_it_predicts_ratings() -> None:
    X, y = ratings()
    model = MatrixFactorization(2, regularization=1e-3, epochs=60, random_state=0).fit(X, y)
    assert model.score(*ratings(seed=1)) > 0.9
    assert model.n_features_in_ == 2 and model.feature_names_in_.tolist() == ["user", "film"]
    assert model.user_factors_.shape == (12, 2) and model.item_factors_.shape == (9, 2)


def test_the_same_seed_gives_the_same_model() -> None:
    X, y = ratings()
    state = torch.random.get_rng_state()
    first = MatrixFactorization(2, epochs=2, random_state=7).fit(X, y)
    again = clone(first).fit(X.to_numpy(), y)
    np.testing.assert_array_equal(first.predict(X), again.predict(X.to_numpy()))
    other = clone(first).set_params(random_state=8).fit(X, y)
    assert not np.array_equal(first.predict(X), other.predict(X))
    assert torch.equal(torch.random.get_rng_state(), state)


def test_unknown_and_missing_categories_have_zeros() -> None:
    X, y = ratings()
    holes = X.copy()
    holes.loc[:20, "film"] = None
    model = MatrixFactorization(2, epochs=2, random_state=0).fit(holes, y)
    rows = pd.DataFrame({"user": [999, 10, 999], "film": ["film A", None, "Brazil"]})
    known = model.item_biases_[model.items_.index("film A")], model.user_biases_[model.users_.index(10)]
    np.testing.assert_allclose(model.predict(rows), model.mean_ + np.array([*known, 0.0]))
    np.testing.assert_allclose(windtunnel.compile(model).predict(rows), model.predict(rows), rtol=1e-9)


def test_the_translation_is_two_tables_that_train() -> None:
    X, y = ratings()
    model = MatrixFactorization(2, epochs=1, random_state=0).fit(X, y)
    net = windtunnel.translate(model, calibrate=X)
    before = np.mean((net.predict(X) - y) ** 2)
    net.fit((X, y), (X, y), recipe="joint", epochs=3)
    assert np.mean((net.predict(X) - y) ** 2) < before
    shapes = {name.split(".")[-1]: tuple(one.shape) for name, one in net.named_parameters()}
    assert shapes == {"mean": (1,), "users": (13, 3), "items": (10, 3)}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_factors": 0}, "n_factors=0; give a whole number from 1 up"),
        ({"epochs": -1, "learning_rate": 0}, "epochs=-1; .*learning_rate=0; "),
        ({"regularization": -1}, "regularization=-1; "),
    ],
)
def test_bad_options_are_rejected(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        MatrixFactorization(**options).fit(*ratings(50))


def test_other_columns_are_rejected() -> None:
    X, y = ratings(50)
    with pytest.raises(BadInput, match="got 1 columns; it reads 2"):
        MatrixFactorization().fit(X[["user"]], y)
