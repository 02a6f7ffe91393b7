"""
Tune to another objective
=========================

The same pipeline tuned to other objectives: a loss over pairs of rows, and rows that weigh more than others.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from torch import Tensor
from torch.nn.functional import softplus

import windtunnel
from windtunnel.clicklog import click_log

X, y = click_log(9_000, seed=0)
train, valid, test = slice(0, 5_000), slice(5_000, 7_000), slice(7_000, None)
encode = make_pipeline(windtunnel.RareCategories(min_count=10), windtunnel.TwoHotEncoder())
columns = ColumnTransformer([("categories", encode, make_column_selector(dtype_exclude="number"))])
pipeline = make_pipeline(columns, LogisticRegression(max_iter=1_000)).fit(X[train], y[train])


def pairwise(scores: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    """log(1 + exp(-(s_i - s_j))) over the pairs of a clicked row i and one j that was not: what AUC counts, smooth."""
    clicked, not_clicked = scores[target == 1], scores[target == 0]
    return softplus(not_clicked.T - clicked).mean()


def tuned(weight: Any = None, **options: Any) -> windtunnel.Translation:
    """Translate anew and fine-tune; the epoch with the best AUC on the validation rows is kept."""
    net = windtunnel.translate(pipeline)
    rows = (X[train], y[train]) if weight is None else (X[train], y[train], weight)
    return net.fit(rows, (X[valid], y[valid]), epochs=15, batch_size=500, learning_rate=3e-3, progress=False, **options)


models = {
    "source": pipeline,
    "log loss": tuned(),
    "pairwise loss": tuned(loss=pairwise),
    "clicks weigh 4": tuned(weight=np.where(y[train] == 1, 4.0, 1.0)),  # as if there were 50 % of them, not 20 %
}
for name, model in models.items():
    probability = model.predict_proba(X[test])[:, 1]
    print(f"{name:15s} AUC {roc_auc_score(y[test], probability):.4f}, mean probability {probability.mean():.2f}")
