"""
Explain a prediction
====================

``explain`` returns how much each raw column, and each interaction that ``fit`` found, adds to the raw score (log-odds
for two classes). With the base they add up to the score.
"""

from lightgbm import LGBMClassifier
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import windtunnel
from windtunnel.clicklog import click_log

X, y = click_log(16_000)
train, valid, test = slice(0, 8_000), slice(8_000, 11_000), slice(11_000, None)
encoder = OneHotEncoder(min_frequency=10, handle_unknown="infrequent_if_exist")
columns = make_column_transformer((encoder, make_column_selector(dtype_exclude="number")), remainder="passthrough")
pipeline = make_pipeline(columns, LGBMClassifier(n_estimators=30, num_leaves=16, verbosity=-1)).fit(X[train], y[train])
net = windtunnel.translate(pipeline)
net.fit((X[train], y[train]), (X[valid], y[valid]), progress=False)

explanation = net.explain(X[test].head(200))
explanation

# %%
# One-hot columns are added up: the table speaks of raw columns.

explanation.to_frame().iloc[:5, :8].round(3)

# %%
# The importance of a term is the mean of its absolute contributions.

_ = explanation.plot()

# %%
# How the score of one row comes about.

_ = explanation.plot(row=0)

# %%
# What the residual model has learned, term by term.

for term in net.history.terms[:5]:
    print(term.text(net.head.unit))
