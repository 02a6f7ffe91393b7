"""
Train from a DataLoader
=======================

Training from a DataLoader of raw rows, and from ``windtunnel.loader``, which encodes once and slices.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from torch.utils.data import DataLoader, Dataset

import windtunnel
from windtunnel.clicklog import click_log

X, y = click_log(8_000, seed=0)
X = X.drop(columns="recency")  # has missing values, which a linear model does not take
X_train, y_train, X_valid, y_valid = X[:6_000], y[:6_000], X[6_000:], y[6_000:]
encoder = windtunnel.TwoHotEncoder()
pipeline = make_pipeline(encoder, LogisticRegression(max_iter=1_000)).fit(X_train, y_train)


class Rows(Dataset[tuple[pd.Series, int]]):
    """One raw row and its target; it could as well come from a data base or a queue."""

    def __len__(self) -> int:
        """Count the rows."""
        return len(X_train)

    def __getitem__(self, index: int) -> tuple[pd.Series, int]:
        """Give one row."""
        return X_train.iloc[index], int(y_train[index])


def collate(items: list[tuple[pd.Series, int]]) -> tuple[pd.DataFrame, Any]:
    """Make a batch of raw rows, as the pipeline takes them."""
    rows, target = zip(*items, strict=True)
    return pd.DataFrame(rows).infer_objects(), np.array(target)


def auc(model: Any) -> float:
    """Area under the ROC curve on the validation rows."""
    return float(roc_auc_score(y_valid, model.predict_proba(X_valid)[:, 1]))


print(f"source                      {auc(pipeline):.4f}")
options: dict[str, Any] = {"epochs": 3, "learning_rate": 3e-3, "progress": False}

net = windtunnel.translate(pipeline)
net.fit(DataLoader(Rows(), batch_size=500, shuffle=True, collate_fn=collate), (X_valid, y_valid), **options)
print(f"from a DataLoader           {auc(net):.4f}  in {net.history.seconds:.1f} s")

net = windtunnel.translate(pipeline)
net.fit(windtunnel.loader(net, X_train, y_train, batch_size=500), (X_valid, y_valid), **options)
print(f"from windtunnel.loader      {auc(net):.4f}  in {net.history.seconds:.1f} s")
