"""
A linear scorecard
==================

Credit risk is often scored by a logistic regression over binned columns: each bin has points. This tutorial
translates such a scorecard, lets ``fit`` find what it missed, and prints the points.
"""

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, OneHotEncoder

import windtunnel

generator = np.random.default_rng(0)
rows = 12_000
X = pd.DataFrame(
    {
        "income": generator.lognormal(10.3, 0.5, rows).round(-2),
        "age": generator.integers(18, 80, rows).astype(float),
        "housing": generator.choice(["rent", "own", "mortgage"], rows, p=[0.5, 0.2, 0.3]),
        "job": generator.choice(["employee", "self-employed", "student", "retired"], rows, p=[0.6, 0.2, 0.1, 0.1]),
    }
)
risk = -0.8 * np.log(X["income"] / 30_000) - 0.02 * (X["age"] - 45) + 0.4 * (X["housing"] == "rent")
risk += 1.2 * ((X["housing"] == "mortgage") & (X["job"] == "self-employed"))  # no column shows this by itself
y = np.where(generator.random(rows) < 1 / (1 + np.exp(2 - risk)), "default", "paid")
train, valid, test = slice(0, 6_000), slice(6_000, 9_000), slice(9_000, None)

# %%
# The scorecard: ten bins for each number, a coefficient for each bin and each category.

bins = KBinsDiscretizer(10, encode="onehot", quantile_method="averaged_inverted_cdf")
columns = make_column_transformer((bins, ["income", "age"]), (OneHotEncoder(), ["housing", "job"]))
scorecard = make_pipeline(columns, LogisticRegression(C=0.5, max_iter=1_000)).fit(X[train], y[train])
coefficients = pd.Series(scorecard[-1].coef_[0], scorecard[0].get_feature_names_out())
(20 / np.log(2) * coefficients).round().astype(int).to_frame("points: 20 double the odds of being paid").tail(8)

# %%
# ``fit`` looks for interactions on top of the scorecard, which stays as it is.

net = windtunnel.translate(scorecard)
net.fit((X[train], y[train]), (X[valid], y[valid]), metric="auroc", progress=False)
print(net.history)

# %%
# The report names the term that was found, with the combinations of values that it moves most.

for term in net.history.terms:
    print(term.text(net.head.unit))

# %%
# The scores of a row are still sums of points: one per column, and one for the interaction.

explanation = net.explain(X[test].head(5), X[train])
explanation.to_frame().round(2)

# %%
paid = y[test] == "paid"
for name, model in {"scorecard": scorecard, "fine-tuned": net}.items():
    print(f"{name:11s} test AUC {roc_auc_score(paid, model.predict_proba(X[test])[:, 1]):.4f}")
