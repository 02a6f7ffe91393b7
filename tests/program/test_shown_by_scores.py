"""What finite scores say of the steps before them, and what they do not."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, PowerTransformer, StandardScaler

import windtunnel
from windtunnel.errors import BadInput
from windtunnel.program.non_finite import cleared_by_scores
from windtunnel.program.program import Program

X = np.random.default_rng(0).normal(size=(200, 3)) ** 2
Y = X[:, 0] + X[:, 1] * X[:, 2]


def logarithm() -> FunctionTransformer:
    return FunctionTransformer(np.log)


SHOWN: dict[str, tuple[Callable[[], Any], bool]] = {
    "sums": (lambda: make_pipeline(logarithm(), Ridge()), True),
    "scaled, projected": (lambda: make_pipeline(logarithm(), StandardScaler(), PCA(2), Ridge()), True),
    "filled": (lambda: make_pipeline(logarithm(), SimpleImputer(), Ridge()), True),  # what is missing, not infinities
    # A tree has an answer for infinite numbers.
    "trees": (lambda: make_pipeline(logarithm(), RandomForestRegressor(3, max_depth=3)), False),
}


@pytest.mark.parametrize("name", SHOWN)
def test_what_a_step_rejects_shows_in_the_scores_or_is_looked_at(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, shown = SHOWN[name]
    source = make().fit(X, Y)
    net = windtunnel.compile(source)
    asking = {at for at, step in enumerate(net.program.steps) if step.rejects}
    assert asking and (asking <= cleared_by_scores(net.program)) == shown
    np.testing.assert_allclose(net.predict(X), source.predict(X))
    rows = X.copy()
    rows[5, 1] = 0  # whose logarithm is infinite
    with np.errstate(divide="ignore"), pytest.raises(ValueError, match="infinity"):
        source.predict(rows)
    with pytest.raises(BadInput, match="1 of 200 rows"):
        net.predict(rows)
    gathered: list[object] = []
    before = Program.rejected
    monkeypatch.setattr(Program, "rejected", lambda *given: gathered.append(given[4]) or before(*given))
    net.predict(X)
    assert all((asking <= set(cleared)) == shown for cleared in gathered) and gathered


def test_what_a_module_rejects_by_itself_is_looked_at() -> None:
    source = make_pipeline(PowerTransformer("box-cox"), RandomForestRegressor(3)).fit(X, Y)
    net, rows = windtunnel.compile(source), -X
    assert 0 not in cleared_by_scores(net.program)
    with pytest.raises(ValueError, match="strictly positive"):
        source.predict(rows)
    with pytest.raises(BadInput):
        net.predict(rows)
