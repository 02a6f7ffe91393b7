"""The leaves of trees as columns."""

from __future__ import annotations

import numpy as np

from windtunnel.errors import UnsupportedEstimator
from windtunnel.estimators import LeafEncoder
from windtunnel.modules.trees.hard import TreeWalk
from windtunnel.modules.trees.leaves import LeafOneHot, TreeLeaves
from windtunnel.translators.conversions import Predictor, Transformer
from windtunnel.translators.registry import convert, translates


@translates(
    LeafEncoder,
    trainable="thresholds, feature weights, paths (levels L2-L4)",
    notes="trees of every library with a converter; soft leaves for the one-hot form, while translate "
    "keeps ids, a step function, on the host",
)
def leaf_encoder(fitted: LeafEncoder) -> Transformer:
    """One column per leaf, or per tree. Reads ``estimator_`` (by its converter), ``leaves_`` and ``output``."""
    trees = convert(fitted.estimator_)
    if not isinstance(trees, Predictor) or not isinstance(trees.scores, TreeWalk):
        raise UnsupportedEstimator(
            f"LeafEncoder over a {type(fitted.estimator_).__name__} that is more than a sum of trees, such as gradient "
            "boosting with an init estimator; fit it without"
        )
    ensemble = trees.scores.ensemble()
    counts = np.diff(ensemble.leaf_start)
    if not np.array_equal(counts, fitted.leaves_):
        raise UnsupportedEstimator(
            f"LeafEncoder with leaves_={fitted.leaves_.tolist()} over trees of {counts.tolist()} leaves; fit it again"
        )
    module: LeafOneHot | TreeLeaves
    column = np.arange(counts.sum())
    smooth = fitted.output == "one_hot"
    if smooth:
        module, dtypes = LeafOneHot.numbered(ensemble, column), {}
    else:
        leaf = column - np.repeat(ensemble.leaf_start[:-1], counts)
        module, dtypes = TreeLeaves.numbered(ensemble, leaf, [ensemble.trees]), {"transform": "int64"}
    return Transformer(module, reads=trees.reads, differentiable=smooth, dtypes=dtypes)
