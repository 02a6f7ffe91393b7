"""
Train from a DataLoader
=======================

``fit`` takes any iterable of batches of raw rows, such as a PyTorch ``DataLoader`` over a data base or a queue. Rows
that fit in memory are read once and encoded once.
"""

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
train, valid = slice(0, 6_000), slice(6_000, None)
pipeline = make_pipeline(windtunnel.TwoHotEncoder(), LogisticRegression(max_iter=2_000)).fit(X[train], y[train])


class Rows(Dataset):
    """One raw row and its target."""

    def __len__(self):
        """Count the rows."""
        return 6_000

    def __getitem__(self, index):
        """A row and its target; it could as well come from a data base."""
        return X.iloc[index], int(y[index])


def collate(items):
    """A batch of raw rows, as the pipeline takes them."""
    rows, target = zip(*items, strict=True)
    return pd.DataFrame(rows).infer_objects(), np.array(target)


# %%
net = windtunnel.translate(pipeline)
net.fit(DataLoader(Rows(), batch_size=500, shuffle=True, collate_fn=collate), (X[valid], y[valid]), progress=False)
print(net.history)

# %%
# If the rows are a DataFrame already, ``windtunnel.loader`` encodes them at once and yields slices.

again = windtunnel.translate(pipeline)
again.fit(windtunnel.loader(again, X[train], y[train], batch_size=500), (X[valid], y[valid]), progress=False)
for name, model in {"pipeline": pipeline, "DataLoader": net, "windtunnel.loader": again}.items():
    print(f"{name:18s} validation AUC {roc_auc_score(y[valid], model.predict_proba(X[valid])[:, 1]):.4f}")
