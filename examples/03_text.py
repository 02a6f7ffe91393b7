"""
Text
====

Reviews as text, next to columns of categories. The fitted vectorizer itself counts the words; the weights
of tf-idf and of the model behind it are translated.
"""

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import windtunnel

generator = np.random.default_rng(0)
rows = 8_000
GOOD, BAD = "great fresh friendly quick lovely".split(), "cold slow rude stale noisy".split()
NEUTRAL = "the food room staff table was were and very place menu evening".split()
mood = generator.normal(size=rows)
words = [
    generator.choice(NEUTRAL, 9).tolist()
    + generator.choice(GOOD if generator.random() < 1 / (1 + np.exp(-m)) else BAD, 2).tolist()
    for m in mood
]
X = pd.DataFrame(
    {
        "review": [" ".join(generator.permutation(line)) for line in words],
        "city": generator.choice(["Bern", "Oslo", "Porto"], rows),
        "day": generator.choice(["Mon", "Fri", "Sun"], rows),
    }
)
logit = mood + 1.5 * ((X["city"] == "Porto") & (X["day"] == "Sun")) - 0.5
y = (generator.random(rows) < 1 / (1 + np.exp(-logit))).astype(int)
train, valid, test = slice(0, 4_000), slice(4_000, 6_000), slice(6_000, None)
X.head(3)

# %%
columns = make_column_transformer((TfidfVectorizer(), "review"), (OneHotEncoder(), ["city", "day"]))
pipeline = make_pipeline(columns, LogisticRegression(max_iter=1_000)).fit(X[train], y[train])
net = windtunnel.translate(pipeline)
net.report()

# %%
net.fit((X[train], y[train]), (X[valid], y[valid]), progress=False)
print(net.history)

# %%
for name, model in {"pipeline": pipeline, "fine-tuned": net}.items():
    print(f"{name:11s} test AUC {roc_auc_score(y[test], model.predict_proba(X[test])[:, 1]):.4f}")

# %%
# New reviews go in as they are. Words that the vectorizer has not seen are ignored, as in scikit-learn.

new = pd.DataFrame({"review": ["rude staff and cold food", "lovely evening"], "city": "Porto", "day": "Sun"})
net.predict_proba(new).round(3)
