"""Small tree ensembles, rows for them, and a scripted module: for the tests of hard trees and of their forms."""

import warnings
from dataclasses import replace

import lightgbm as lgb
import numpy as np
import torch

from windtunnel.modules.trees.ensemble import MISSING_NAN, MISSING_NONE, MISSING_ZERO, TreeEnsemble
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


def asked_by_level(depths, width=3, thresholds=40, outputs=1, missing=(MISSING_NONE,), vector=False):
    """Trees all nodes of a level of which ask the same, with questions drawn at random."""
    drawn = np.random.default_rng(5)
    values = np.sort(drawn.normal(size=(width, thresholds)), axis=1)
    sizes = 2 ** np.asarray(depths)
    levels = [np.repeat(np.arange(depth), 2 ** np.arange(depth)) for depth in depths]
    asked = [(drawn.integers(0, width, d), drawn.integers(0, thresholds, d), drawn.random(d) < 0.5) for d in depths]
    kind = [drawn.choice(missing, depth) for depth in depths]
    children = [2 * np.arange(size - 1) for size in sizes]
    below = [
        [np.where(node + side < size - 1, node + side, size - 2 - node - side) for side in (1, 2)]
        for node, size in zip(children, sizes, strict=True)
    ]
    leaves = (int(sizes.sum()), outputs) if vector else int(sizes.sum())
    return replace(
        stump(0.0),
        width=width,
        node_start=np.cumsum([0, *(sizes - 1)]),
        leaf_start=np.cumsum([0, *sizes]),
        feature=np.concatenate([one[0][level] for one, level in zip(asked, levels, strict=True)]),
        threshold=np.concatenate([values[one[:2]][level] for one, level in zip(asked, levels, strict=True)]),
        default_left=np.concatenate([one[2][level] for one, level in zip(asked, levels, strict=True)]),
        missing=np.concatenate([one[level] for one, level in zip(kind, levels, strict=True)]).astype(np.int8),
        left=np.concatenate([one[0] for one in below]),
        right=np.concatenate([one[1] for one in below]),
        leaf_value=drawn.normal(size=leaves),
        output=np.zeros(len(depths), np.int64) if vector else np.arange(len(depths)) % outputs,
        base=np.linspace(-0.5, 0.5, outputs),
        divisor=3.0,
    )


OBLIVIOUS = {
    "one level": lambda: asked_by_level([1]),
    "no level": lambda: asked_by_level([0, 0]),
    "unlike depths": lambda: asked_by_level([3, 0, 6, 1, 6, 2]),
    "more levels than bits of a byte": lambda: asked_by_level([9, 2, 10]),
    "more thresholds than a byte counts": lambda: asked_by_level([8] * 200, width=2, thresholds=700),
    "several scores": lambda: asked_by_level([3] * 7, outputs=3),
    "leaves of several values": lambda: asked_by_level([4] * 9, outputs=3, vector=True),
    "missing": lambda: asked_by_level([4] * 9, missing=(MISSING_NONE, MISSING_NAN, MISSING_ZERO)),
    "infinite thresholds": lambda: replace(asked_by_level([1]), threshold=np.array([np.inf])),
    "rows rounded": lambda: replace(asked_by_level([5] * 9), reads="float32"),
    "infinite leaves": lambda: replace(asked_by_level([1]), leaf_value=np.array([np.inf, -np.inf])),
}


def scripted(module):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.script(module)
