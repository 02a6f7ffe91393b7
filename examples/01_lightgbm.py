"""
Fine-tune LightGBM over categories
==================================

A click log: eight columns of text, some with thousands of values, and four of numbers. LightGBM sees the encoded texts
one column at a time; fine-tuning finds which values matter together.
"""

from lightgbm import LGBMClassifier
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import windtunnel
from windtunnel.clicklog import click_log

X, y = click_log(16_000)
train, valid, test = slice(0, 8_000), slice(8_000, 11_000), slice(11_000, None)
X.head()

# %%
# The source pipeline, fitted as usual.

encoder = OneHotEncoder(min_frequency=10, handle_unknown="infrequent_if_exist")
columns = make_column_transformer((encoder, make_column_selector(dtype_exclude="number")), remainder="passthrough")
pipeline = make_pipeline(columns, LGBMClassifier(n_estimators=30, num_leaves=16, verbosity=-1))
pipeline.fit(X[train], y[train])

# %%
# Its translation predicts the same. The report says what each step became.

net = windtunnel.translate(pipeline, calibrate=X[train].head(2000))
print("largest difference", abs(net.predict_proba(X[test]) - pipeline.predict_proba(X[test])).max())
net.report()

# %%
# ``fit`` needs validation rows that the pipeline has not seen. It tries several candidates and keeps the best one, if
# the gain is larger than chance.

net.fit((X[train], y[train]), (X[valid], y[valid]), progress=False)
print(net.history)

# %%
# Validation rows chose the candidate, so the test rows say what it gained.

for name, model in {"pipeline": pipeline, "fine-tuned": net}.items():
    print(f"{name:11s} test AUC {roc_auc_score(y[test], model.predict_proba(X[test])[:, 1]):.4f}")

# %%
# The same as a picture: losses and the metric by epoch, and the gain of each candidate with its standard error.

_ = net.history.plot()

# %%
# The net takes raw rows, as the pipeline does, and returns the original labels.

net.predict(X[test].head())
