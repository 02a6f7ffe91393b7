"""
The paper in one page
=====================

`WindTunnel <https://doi.org/10.14778/3485450.3485452>`_ (VLDB 2022) translates the whole pipeline into one neural
network and trains all of it, trees included: *joint training*. This page does so, step by step, and compares with the
default of ``fit``, which the paper does not have.
"""

import pandas as pd
from lightgbm import LGBMClassifier
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline

import windtunnel
from windtunnel.clicklog import click_log

X, y = click_log(12_000)
train, valid, test = slice(0, 6_000), slice(6_000, 9_000), slice(9_000, None)
rows = {"train": (X[train], y[train]), "valid": (X[valid], y[valid])}

# %%
# The paper's pipelines have an encoder of categories, here its two-hot encoding, and boosted trees.

trees = LGBMClassifier(n_estimators=20, num_leaves=16, learning_rate=0.25, verbosity=-1)
pipeline = make_pipeline(windtunnel.RareCategories(min_count=10), windtunnel.TwoHotEncoder(), trees)
pipeline.fit(*rows["train"])

# %%
# **Warm start.** The translation begins as the pipeline: the encoder as embedding tables, the trees as two layers of
# tanh each, steep enough to predict nearly what the trees predict.

net = windtunnel.translate(pipeline, level="L4", calibrate=X[train].head(2000))
net.soften()
net.report()

# %%
# **Cold start.** The same network with random weights has nothing of the pipeline.

cold = windtunnel.translate(pipeline, level="L4", calibrate=X[train].head(2000), start="cold")

# %%
# **Joint training** moves all weights by the gradient of the final loss.

options = {"recipe": "joint", "max_steps": 400, "val_check_interval": 50, "progress": False}
net.fit(rows["train"], rows["valid"], **options)
cold.fit(rows["train"], rows["valid"], **options)
print(net.history)

# %%
# **The default** leaves the pipeline as it is and trains a residual model on top.

default = windtunnel.translate(pipeline)
default.fit(rows["train"], rows["valid"], progress=False)

models = {"pipeline": pipeline, "cold start": cold, "warm start, joint": net, "default": default}
result = {name: roc_auc_score(y[test], model.predict_proba(X[test])[:, 1]) for name, model in models.items()}
pd.Series(result).round(4).to_frame("test AUC")

# %%
# Single runs on small data say little. :doc:`Joint training </joint_training>` has the paper's tables on its data.
