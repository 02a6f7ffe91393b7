"""
Regression
==========

Prices of cars by model, fuel and mileage. The source is scikit-learn's histogram gradient boosting behind a target
encoder; the metric is the root of the mean squared error, in the unit of the target.
"""

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.metrics import r2_score, root_mean_squared_error
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import TargetEncoder

import windtunnel

generator = np.random.default_rng(0)
rows = 8_000
X = pd.DataFrame(
    {
        "model": generator.choice([f"model {number:03d}" for number in range(150)], rows),
        "fuel": generator.choice(["petrol", "diesel", "electric"], rows),
        "mileage": generator.gamma(2, 30_000, rows).round(-2),
        "year": generator.integers(2008, 2024, rows).astype(float),
    }
)
level, trend = generator.normal(15_000, 4_000, 150), generator.normal(0, 2_500, (150, 3))
model, fuel = X["model"].str[-3:].astype(int), X["fuel"].map({"petrol": 0, "diesel": 1, "electric": 2})
y = level[model] + trend[model, fuel] + 500 * (X["year"] - 2015) - 0.05 * X["mileage"]
y = (y + generator.normal(0, 1_500, rows)).round(-1).to_numpy()
train, valid, test = slice(0, 4_000), slice(4_000, 6_000), slice(6_000, None)

# %%
means = TargetEncoder(target_type="continuous", cv=KFold(5, shuffle=True, random_state=0))
encoder = make_column_transformer((means, ["model", "fuel"]), remainder="passthrough")
pipeline = make_pipeline(encoder, HistGradientBoostingRegressor(max_iter=60, random_state=0)).fit(X[train], y[train])
net = windtunnel.translate(pipeline)
net.fit((X[train], y[train]), (X[valid], y[valid]), metric="rmse", progress=False)
print(net.history)

# %%
for name, estimator in {"pipeline": pipeline, "fine-tuned": net}.items():
    values = estimator.predict(X[test])
    print(f"{name:11s} test RMSE {root_mean_squared_error(y[test], values):.1f}, R2 {r2_score(y[test], values):.4f}")

# %%
# The term that was found, and the cars that it moves most.

print(net.history.terms[0].text("price"))
