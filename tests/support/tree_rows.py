"""Rows of three numbers for trees, with targets."""

import numpy as np
import pandas as pd


def rows(count=200, missing=0.0, grid=False):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(count, 3))
    x = x.round(1) if grid else x.astype(np.float32).astype(np.float64)
    x[rng.random(x.shape) < missing] = np.nan
    return x


def values(x):
    filled = np.nan_to_num(x, nan=0.5)
    return filled[:, 0] - filled[:, 1] ** 2


def labels(x):
    return np.digitize(values(x), [-1.0, 0.0])


def categorical_rows():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"code": pd.Categorical(rng.choice([0, 1, 7, 100], 300)), "number": rng.normal(size=300)})
    return X, (X["code"].astype(int) > 3) ^ (rng.random(300) < 0.1)
