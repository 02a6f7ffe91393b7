"""
Several classes
===============

Three classes with names: the translation returns a probability for each, in the order of ``classes_``, and the original
labels. Everything else is as for two classes.
"""

import numpy as np
import pandas as pd
from lightgbm import LGBMClassifier
from sklearn.compose import make_column_transformer
from sklearn.metrics import accuracy_score, log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder

import windtunnel

generator = np.random.default_rng(0)
rows, stations = 12_000, [f"station {number:02d}" for number in range(40)]
X = pd.DataFrame(
    {
        "origin": generator.choice(stations, rows),
        "weather": generator.choice(["sun", "rain", "snow"], rows, p=[0.6, 0.3, 0.1]),
        "distance": generator.gamma(2, 4, rows).round(1),
    }
)
LABELS = np.array(["bike", "bus", "train"])
taste = dict(zip(stations, generator.normal(size=(40, 3, 3)), strict=True))  # station x weather x way to travel
weather = {"sun": 0, "rain": 1, "snow": 2}
logits = np.array([taste[origin][weather[sky]] for origin, sky in zip(X["origin"], X["weather"], strict=True)])
logits += np.outer(X["distance"] - 8, [-0.15, 0, 0.15])
y = LABELS[(logits + generator.gumbel(size=logits.shape)).argmax(axis=1)]
train, valid, test = slice(0, 6_000), slice(6_000, 9_000), slice(9_000, None)

# %%
columns = make_column_transformer((OrdinalEncoder(), ["origin", "weather"]), remainder="passthrough")
pipeline = make_pipeline(columns, LGBMClassifier(n_estimators=40, num_leaves=8, verbosity=-1))
pipeline.fit(X[train], y[train])
net = windtunnel.translate(pipeline)
net.fit((X[train], y[train]), (X[valid], y[valid]), metric="accuracy", progress=False)
print(net.history)

# %%
for name, model in {"pipeline": pipeline, "fine-tuned": net}.items():
    loss, accuracy = log_loss(y[test], model.predict_proba(X[test])), accuracy_score(y[test], model.predict(X[test]))
    print(f"{name:11s} test log loss {loss:.4f}, accuracy {accuracy:.4f}")

# %%
pd.DataFrame(net.predict_proba(X[test].head(3)), columns=net.classes_).round(3).assign(
    label=net.predict(X[test].head(3))
)
