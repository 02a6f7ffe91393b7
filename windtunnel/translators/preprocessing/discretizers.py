"""scikit-learn's KBinsDiscretizer and Binarizer."""

from __future__ import annotations

import numpy as np
from sklearn.preprocessing import Binarizer, KBinsDiscretizer

from windtunnel.modules.columns.bins import Bins
from windtunnel.translators.arrays import indices, tensor
from windtunnel.translators.registry import translates


@translates(KBinsDiscretizer, trainable="edges", notes="soft bins in translate; onehot, onehot-dense, ordinal")
def k_bins_discretizer(fitted: KBinsDiscretizer) -> Bins:
    """The bin of each number, as position or flags. Reads bin_edges_, encode, strategy and dtype."""
    single = fitted.dtype is not None and np.dtype(fitted.dtype) == np.float32
    inner = [np.asarray(edges, dtype=np.float64)[1:-1] for edges in fitted.bin_edges_]
    return _bins(inner, ordinal=fitted.encode == "ordinal", seen=fitted.strategy == "quantile", single=single)


@translates(Binarizer, trainable="threshold of each column", notes="a soft step in translate")
def binarizer(fitted: Binarizer) -> Bins:
    """1 where x > threshold, else 0. Reads threshold."""
    # The edge of a bin belongs to it; the least number above the threshold is the first that is flagged.
    edge = np.nextafter(np.array([float(fitted.threshold)]), np.inf)
    return _bins([edge] * fitted.n_features_in_, ordinal=True, seen=False, single=False)


def _bins(inner: list[np.ndarray], *, ordinal: bool, seen: bool, single: bool) -> Bins:
    """Pad the inner edges of the columns to the same number."""
    longest = max(map(len, inner), default=0)
    edges, there = np.zeros((len(inner), longest)), np.zeros((len(inner), longest))
    for column, values in enumerate(inner):
        edges[column, : len(values)], there[column, : len(values)] = values, 1.0
    kept = [column * (longest + 1) + at for column, values in enumerate(inner) for at in range(len(values) + 1)]
    return Bins(tensor(edges), tensor(there), indices(kept), ordinal=ordinal, seen=seen, single=single)
