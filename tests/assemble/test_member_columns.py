"""Members that were fitted on the columns of a table in different orders."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import StackingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import windtunnel
from windtunnel.errors import UnsupportedEstimator

X = pd.DataFrame(np.random.default_rng(0).normal(size=(300, 3)), columns=list("abc"))
Y = (X.a + 2 * X.b > 0).astype(int)


def stack(*orders: str, passthrough: bool) -> Any:
    """A stack of models of the columns "a" and "b", fitted on the columns in these orders."""
    members = [
        (
            f"member {at}",
            make_pipeline(make_column_transformer((StandardScaler(), ["a", "b"])), LogisticRegression()).fit(
                X[[*order]], Y
            ),
        )
        for at, order in enumerate(orders)
    ]
    return StackingClassifier(members, LogisticRegression(), cv="prefit", passthrough=passthrough).fit(X, Y)


@pytest.mark.parametrize("make", [windtunnel.compile, windtunnel.translate])
@pytest.mark.parametrize("passthrough", [False, True])
def test_members_of_a_stack_have_one_order_of_columns(passthrough: bool, make: Any) -> None:
    with pytest.raises(UnsupportedEstimator, match=r"fitted on the columns 'a', 'b', 'c' and on 'c', 'b', 'a'"):
        make(stack("abc", "cba", passthrough=passthrough))
    source = stack("abc", "abc", passthrough=passthrough)
    np.testing.assert_allclose(make(source).predict_proba(X), source.predict_proba(X), atol=1e-12)
