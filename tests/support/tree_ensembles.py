"""Small tree ensembles, rows for them, and a scripted module: for the tests of hard trees and of their forms."""

import warnings

import lightgbm as lgb
import numpy as np
import torch

from windtunnel.modules.trees.ensemble import MISSING_NONE, TreeEnsemble
from windtunnel.translators.trees.lightgbm import tree_ensemble


def rows(count=300):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(count, 4)).astype(np.float32)
    x[:, 2] = rng.integers(0, 50, count)
    x[rng.random(x.shape) < 0.1] = np.nan
    return x


def boosted(categories="auto", **params):
    x = rows()
    y = np.digitize(np.nan_to_num(x[:, 0]) + np.cos(np.nan_to_num(x[:, 2])), [-0.5, 0.5])
    params = {"objective": "multiclass", "num_class": 3, "num_leaves": 9, "min_data_in_leaf": 2} | params
    params |= {"min_data_per_group": 1, "cat_smooth": 0.1, "num_threads": 1, "verbosity": -1}
    return tree_ensemble(lgb.train(params, lgb.Dataset(x.astype(float), y, categorical_feature=categories), 5))


def stump(threshold, missing=MISSING_NONE, default_left=True, categories=None):
    return TreeEnsemble(
        width=1,
        node_start=np.array([0, 1]),
        leaf_start=np.array([0, 2]),
        feature=np.array([0]),
        threshold=np.array([threshold], np.float64),
        default_left=np.array([default_left]),
        missing=np.array([missing], np.int8),
        left=np.array([-1]),
        right=np.array([-2]),
        leaf_value=np.array([-1.0, 1.0]),
        output=np.array([0]),
        base=np.array([0.0]),
        categories={} if categories is None else {0: np.array(categories, np.int64)},
    )


CASES = {
    "numbers": boosted,
    "sets": lambda: boosted(categories=[2]),
    "zeros": lambda: boosted(zero_as_missing=True),
    "one leaf": lambda: boosted(min_data_in_leaf=1000),
    "stump": lambda: stump(0.5),
}


def scripted(module):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.script(module)
