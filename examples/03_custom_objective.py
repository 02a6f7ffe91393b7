"""The same pipeline tuned to other objectives: a loss over pairs of rows, and rows that weigh more than others."""

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


def auc(model: Any, rows: Any = True) -> float:
    """Area under the ROC curve on some of the test rows."""
    chosen = np.broadcast_to(rows, len(y[test]))
    return float(roc_auc_score(y[test][chosen], model.predict_proba(X[test])[chosen, 1]))


# Suppose that the impressions which are mostly in view are the ones that are paid for.
paid = (X["viewable"] > 0.6).to_numpy()
models = {
    "source": pipeline,
    "log loss": tuned(),
    "pairwise loss": tuned(loss=pairwise),
    "paid rows weigh 5": tuned(weight=np.where(paid[train], 5.0, 1.0)),
}
for name, model in models.items():
    print(f"{name:18s} AUC {auc(model):.4f}, on paid rows {auc(model, paid[test]):.4f}")
