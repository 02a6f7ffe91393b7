"""Trained weighted sums: float32 in training mode, exact elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler, TargetEncoder

import windtunnel
from windtunnel.estimators import FactorizationMachineClassifier
from windtunnel.modules.tables.category_table import CategoryTable
from windtunnel.program.program import ProgramStep
from windtunnel.trainers.float32_sums import float32_sums

RANDOM = np.random.default_rng(0)
X = pd.DataFrame({"c": RANDOM.choice(list("abcdefgh"), 2000), "n": RANDOM.normal(size=2000)})
Y = (X["n"] + (X["c"] < "d") + RANDOM.normal(size=2000) > 0.5).astype(int).to_numpy()
MODELS = [
    LogisticRegression(),
    MLPClassifier(hidden_layer_sizes=(4,), max_iter=5),
    FactorizationMachineClassifier(epochs=1),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
def test_gradients_are_those_of_float64_but_for_rounding(model: Any) -> None:
    columns = make_column_transformer((OneHotEncoder(), ["c"]), (TargetEncoder(), ["c"]), (StandardScaler(), ["n"]))
    net = windtunnel.translate(make_pipeline(columns, model).fit(X, Y))
    batch, inputs = net.encode(X), []
    net.program.steps[-1].module.register_forward_pre_hook(lambda _, columns: inputs.append(columns[0].dtype))
    with torch.no_grad():
        exact = net(*batch)

    def gradients() -> dict[str, torch.Tensor]:
        net.zero_grad()
        net(*batch).sigmoid().mean().backward()
        return {name: weight.grad for name, weight in net.named_parameters()}

    net.train()
    expected = gradients()
    with float32_sums(net.program):
        tables = [step.module.rows.dtype for step in net.program.steps if isinstance(step.module, CategoryTable)]
        assert sorted(tables, key=str) == [torch.float32, torch.float64]  # 0 and 1; target statistics
        rounded = gradients()
        net.eval()
        with torch.no_grad():
            assert torch.equal(net(*batch), exact)
        net.zero_grad()
    assert inputs == [torch.float64, torch.float64, torch.float32, torch.float64]
    for name, gradient in rounded.items():
        assert not torch.equal(gradient.double(), expected[name])
        torch.testing.assert_close(gradient.double(), expected[name], rtol=1e-4, atol=1e-6)
    assert all(type(step) is ProgramStep for step in net.program.steps)
    assert all(weight.dtype == torch.float64 for weight in net.parameters())
    with torch.no_grad():
        assert torch.equal(net(*batch), exact)


def test_the_history_has_the_numbers_of_predictions() -> None:
    columns = make_column_transformer((OneHotEncoder(), ["c"]), (StandardScaler(), ["n"]))
    source = make_pipeline(columns, LogisticRegression(C=1e-3)).fit(X[:100], Y[:100])
    net = windtunnel.translate(source)
    options: dict[str, Any] = {"recipe": "joint", "epochs": 2, "batch_size": 512, "learning_rate": 0.1}
    net.fit((X, Y), (X, Y), progress=False, accelerator="cpu", **options)
    assert net.history is not None and net.history.kept.name == "joint training"
    assert net.history.start == pytest.approx(roc_auc_score(Y, source.predict_proba(X)[:, 1]), abs=1e-6)
    assert net.history.best == pytest.approx(roc_auc_score(Y, net.predict_proba(X)[:, 1]), abs=1e-6)
