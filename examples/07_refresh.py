"""
Refresh every month
===================

New rows come every month, and the world drifts. ``refresh`` moves the values of trees and tables towards the new rows,
and only if validation rows show that this helps. It takes seconds, and the model does not grow.
"""

import numpy as np
import pandas as pd
from lightgbm import LGBMClassifier
from sklearn.compose import make_column_transformer
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import windtunnel


def month(number, rows=4_000):
    """Orders of a month, and whether each was returned. Shops change how they deliver, and new shops open."""
    generator = np.random.default_rng(number)
    shop = generator.integers(0, 30 + 4 * number, rows)
    price = generator.gamma(2, 30, rows).round(2)
    habit = np.sin(shop) + 0.25 * number * np.cos(2 * shop)
    chance = 1 / (1 + np.exp(1.2 - habit - 0.01 * (price - 60)))
    X = pd.DataFrame({"shop": [f"shop {code:02d}" for code in shop], "price": price})
    return X, (generator.random(rows) < chance).astype(int)


X, y = month(0, 8_000)
encoder = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["shop"]), remainder="passthrough")
pipeline = make_pipeline(encoder, LGBMClassifier(n_estimators=40, num_leaves=8, verbosity=-1)).fit(X[:6_000], y[:6_000])
net = windtunnel.translate(pipeline)
net.fit((X[:6_000], y[:6_000]), (X[6_000:], y[6_000:]), progress=False)

# %%
# Each month is first predicted, by the model as it was and by the refreshed one, and then learned.

losses = []
for number in range(1, 7):
    X_new, y_new = month(number)
    unchanged, refreshed = (log_loss(y_new, model.predict_proba(X_new)) for model in (pipeline, net))
    net.refresh((X_new, y_new))
    losses.append({"month": number, "unchanged": unchanged, "refreshed": refreshed, "kept": net.history.kept.name})
pd.DataFrame(losses).round(4)

# %%
# The last refresh: what was tried, what it changed, and which inputs drift.

print(net.history)

# %%
# The drift is the population stability index against the training rows. Above 0.25 the advice is to compare with a
# pipeline that is fitted again: a refresh moves values, it finds no new splits.

print(net.history.refresh.drift_text(5))
