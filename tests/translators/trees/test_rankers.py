"""Rankers: fine-tuned on the relevance of single rows, with a warning; fitted only by themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from catboost import CatBoostRanker
from lightgbm import LGBMRanker
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from xgboost import XGBRanker

import windtunnel
from windtunnel import BadInput, WindTunnelRegressor

X = np.random.default_rng(0).normal(size=(200, 3))
RELEVANCE = np.digitize(X[:, 0] + np.sin(3 * X[:, 1]), [-0.5, 0.5, 1.2])
RANKERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "lightgbm": (LGBMRanker(n_estimators=5, verbosity=-1), {"group": [20] * 10}),
    "xgboost": (XGBRanker(n_estimators=5, n_jobs=1), {"group": [20] * 10}),
    "catboost": (
        CatBoostRanker(iterations=5, loss_function="YetiRank", verbose=False, allow_writing_files=False),
        {"group_id": np.repeat(np.arange(10), 20)},
    ),
}
OPTIONS: dict[str, Any] = {"epochs": 1, "progress": False}


@pytest.mark.parametrize("library", RANKERS)
def test_fit_says_once_that_it_knows_of_no_groups(library: str, tmp_path: Path) -> None:
    ranker, groups = RANKERS[library]
    net = windtunnel.translate(ranker.fit(X, RELEVANCE, **groups), calibrate=X)
    net.save(tmp_path / "net")
    for one in (net, windtunnel.load(tmp_path / "net")):
        with pytest.warns(UserWarning, match="fits the relevance of each row by the squared error") as told:
            one.fit((X, RELEVANCE), (X, RELEVANCE), **OPTIONS)
        assert [Path(warning.filename).name for warning in told] == [Path(__file__).name]
        assert one.history is not None and one.history.metric == "rmse"
    net.fit((X, RELEVANCE), (X, RELEVANCE), loss="squared", **OPTIONS)


@pytest.mark.parametrize("library", RANKERS)
def test_what_gives_no_groups_rejects_to_fit_a_ranker(library: str) -> None:
    ranker, _ = RANKERS[library]
    source = make_pipeline(StandardScaler(), ranker)
    with pytest.raises(BadInput, match=f"^{type(ranker).__name__} is fitted on groups of rows .* yourself, and take"):
        windtunnel.crossfit(source, X, RELEVANCE)
    with pytest.raises(BadInput, match=f"^{type(ranker).__name__} is fitted on groups of rows"):
        WindTunnelRegressor(source).fit(X, RELEVANCE)
