"""
Tune to another objective
=========================

A pipeline was fitted for the log loss. Fine-tuning can have another objective: here a loss over pairs of rows, which
is what AUC counts, and rows that weigh more than others.
"""

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from torch.nn.functional import softplus

import windtunnel
from windtunnel.clicklog import click_log

X, y = click_log(9_000, seed=0)
X = X.drop(columns="recency")  # has missing values, which a linear model does not take
train, valid, test = slice(0, 5_000), slice(5_000, 7_000), slice(7_000, None)
encoder = make_pipeline(windtunnel.RareCategories(min_count=10), windtunnel.TwoHotEncoder())
pipeline = make_pipeline(encoder, LogisticRegression(max_iter=2_000)).fit(X[train], y[train])

# %%
# A loss takes raw scores, targets and weights, and returns a number.


def pairwise(scores, target, weight):
    """log(1 + exp(-(s_i - s_j))) over the pairs of a clicked row i and a row j that was not clicked."""
    clicked, not_clicked = scores[target == 1], scores[target == 0]
    return softplus(not_clicked.T - clicked).mean()


# %%
# ``residual=False`` trains the weights of the pipeline itself.


def tuned(*rows, **options):
    """The pipeline translated anew and fine-tuned; the best epoch on the validation rows is kept."""
    options |= {"residual": False, "epochs": 10, "batch_size": 500, "learning_rate": 3e-3, "progress": False}
    return windtunnel.translate(pipeline).fit(rows, (X[valid], y[valid]), metric="auroc", **options)


models = {
    "pipeline": pipeline,
    "log loss": tuned(X[train], y[train]),
    "pairwise loss": tuned(X[train], y[train], loss=pairwise),
    "clicks weigh 4": tuned(
        X[train], y[train], np.where(y[train] == 1, 4.0, 1.0)
    ),  # as if half of the rows were clicks
}
result = []
for name, model in models.items():
    probability = model.predict_proba(X[test])[:, 1]
    result.append({"tuned to": name, "test AUC": roc_auc_score(y[test], probability), "mean": probability.mean()})
pd.DataFrame(result).set_index("tuned to").round(4)

# %%
# The pairwise loss ranks rows and knows no probabilities: their mean is arbitrary. Weights move the mean to that of the
# weighted rows.
