"""
Translate, fine-tune, predict
=============================

A fitted pipeline becomes a neural network, is fine-tuned, and predicts from the same raw rows.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch and LightGBM: see the README on OpenMP

from lightgbm import LGBMClassifier
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import Pipeline, make_pipeline

import windtunnel
from windtunnel.clicklog import click_log

X, y = click_log(16_000, seed=0)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=3_000, random_state=0)
X_train, X_valid, y_train, y_valid = train_test_split(X_train, y_train, test_size=3_000, random_state=0)

encode = make_pipeline(windtunnel.RareCategories(min_count=10), windtunnel.TwoHotEncoder())
columns = ColumnTransformer(
    [
        ("categories", encode, make_column_selector(dtype_exclude="number")),
        ("numbers", "passthrough", make_column_selector(dtype_include="number")),
    ]
)
pipeline = Pipeline([("columns", columns), ("trees", LGBMClassifier(n_estimators=20, num_leaves=31, verbosity=-1))])
pipeline.fit(X_train, y_train)
print(f"source      {roc_auc_score(y_test, pipeline.predict_proba(X_test)[:, 1]):.4f}")

net = windtunnel.translate(pipeline, level="L4", calibrate=X_train)
print(f"warm start  {roc_auc_score(y_test, net.predict_proba(X_test)[:, 1]):.4f}")

net.fit((X_train, y_train), (X_valid, y_valid), epochs=6, batch_size=512, progress=False)
print(f"fine-tuned  {roc_auc_score(y_test, net.predict_proba(X_test)[:, 1]):.4f}")
print(net.history)
print(net.predict(X_test.head(3)), "for the first three rows")
