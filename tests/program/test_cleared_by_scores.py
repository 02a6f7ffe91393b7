"""Finite scores tell that some steps reject no row, and say nothing of others."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestRegressor
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MaxAbsScaler, PowerTransformer, SplineTransformer, StandardScaler

import windtunnel
from windtunnel.errors import BadInput
from windtunnel.program.non_finite import cleared_by_scores
from windtunnel.program.program import Program

X = np.random.default_rng(0).normal(size=(200, 3)) ** 2
Y = X[:, 0] + X[:, 1] * X[:, 2]


def logarithm() -> FunctionTransformer:
    return FunctionTransformer(np.log)


CLEARED: dict[str, tuple[Callable[[], Any], bool]] = {
    "sums": (lambda: make_pipeline(logarithm(), Ridge()), True),
    "scaled, projected": (lambda: make_pipeline(logarithm(), StandardScaler(), PCA(2), Ridge()), True),
    "filled": (lambda: make_pipeline(logarithm(), SimpleImputer(), Ridge()), True),  # missing values, not infinities
    # A tree has an output for infinite numbers.
    "trees": (lambda: make_pipeline(logarithm(), RandomForestRegressor(3, max_depth=3)), False),
}


@pytest.mark.parametrize("name", CLEARED)
def test_steps_that_finite_scores_do_not_clear_are_checked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, cleared = CLEARED[name]
    source = make().fit(X, Y)
    net = windtunnel.compile(source)
    rejecting = {at for at, step in enumerate(net.program.steps) if step.rejects}
    assert rejecting and (rejecting <= cleared_by_scores(net.program)) == cleared
    np.testing.assert_allclose(net.predict(X), source.predict(X))
    rows = X.copy()
    rows[5, 1] = 0  # whose logarithm is infinite
    with np.errstate(divide="ignore"), pytest.raises(ValueError, match="infinity"):
        source.predict(rows)
    with pytest.raises(BadInput, match="1 of 200 rows"):
        net.predict(rows)
    passed: list[object] = []
    before = Program.rejected
    monkeypatch.setattr(Program, "rejected", lambda *args: passed.append(args[4]) or before(*args))
    net.predict(X)
    assert all((rejecting <= set(steps)) == cleared for steps in passed) and passed


def test_steps_whose_module_rejects_are_checked() -> None:
    source = make_pipeline(PowerTransformer("box-cox"), RandomForestRegressor(3)).fit(X, Y)
    net, rows = windtunnel.compile(source), -X
    assert 0 not in cleared_by_scores(net.program)
    with pytest.raises(ValueError, match="strictly positive"):
        source.predict(rows)
    with pytest.raises(BadInput):
        net.predict(rows)


def test_methods_check_the_steps_of_columns_that_a_selection_leaves_out() -> None:
    rows = np.column_stack([X[:, 0], np.ones(len(X))])
    columns = make_column_transformer((SplineTransformer(), [1]), remainder="passthrough", sparse_threshold=0)
    source = make_pipeline(columns, MaxAbsScaler(), VarianceThreshold(), GaussianMixture(2, random_state=0)).fit(rows)
    net = windtunnel.compile(source)
    np.testing.assert_allclose(net.score_samples(rows), source.score_samples(rows))
    rows[5, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        source.score_samples(rows)
    with pytest.raises(BadInput, match="1 of 200 rows"):
        net.score_samples(rows)
