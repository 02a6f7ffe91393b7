"""Dropout of the trainable steps of a pipeline."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from lightgbm import LGBMClassifier
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, TargetEncoder

import windtunnel
from windtunnel.estimators import TwoHotEncoder
from windtunnel.modules.columns.affine import Affine
from windtunnel.modules.tables.category_table import CategoryTable
from windtunnel.trainers.loop.dropout import DropToMean, dropout_at, dropped_modules

RANDOM = np.random.default_rng(0)
X = pd.DataFrame({"c": RANDOM.choice(list("abcdefgh"), 300), "d": RANDOM.choice(list("xyz"), 300)})
X["n"] = RANDOM.normal(size=300)
Y = (X["n"] + (X["c"] < "d") > 0.5).astype(int).to_numpy()
TREES = {"n_estimators": 5, "verbosity": -1, "n_jobs": 1}


def translated(model: Any) -> windtunnel.Translation:
    columns = make_column_transformer((TwoHotEncoder(), ["c"]), (TargetEncoder(), ["d"]), (StandardScaler(), ["n"]))
    return windtunnel.translate(make_pipeline(columns, model).fit(X, Y), calibrate=X).soften()


@pytest.mark.parametrize("model", [LGBMClassifier(**TREES), LogisticRegression()])
def test_every_trainable_step_but_the_last_drops(model: Any) -> None:
    net = translated(model)
    dropped = [type(module) for module in dropped_modules(net.program)]
    assert dropped.count(CategoryTable) == 2 and dropped.count(Affine) == 1
    assert net.program.steps[-1].module not in dropped_modules(net.program)
    batch = net.encode(X)
    with torch.no_grad():
        before = net(*batch)
        with dropout_at(net, net.program, 0.5):
            assert not torch.equal(net.train()(*batch), before)
            assert torch.equal(net.eval()(*batch), before)
        assert torch.equal(net.train()(*batch), before)


def test_a_dropped_entry_is_the_mean_of_its_column() -> None:
    rows = torch.tensor([[1.0, 10.0], [3.0, float("nan")], [5.0, 20.0]])
    everything = DropToMean(1.0)(torch.nn.Identity(), (), rows)
    assert everything.tolist() == [[3.0, 15.0]] * 3
