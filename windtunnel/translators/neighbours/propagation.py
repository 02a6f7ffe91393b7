"""scikit-learn's label propagation and label spreading."""

from __future__ import annotations

from typing import Any

from sklearn.semi_supervised import LabelPropagation, LabelSpreading

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.neighbours.label_propagation import PropagatedLabels
from windtunnel.modules.outputs.label_rules import LabelIndex
from windtunnel.translators.arrays import tensor
from windtunnel.translators.conversions import Predictor
from windtunnel.translators.registry import translates


@translates(
    LabelPropagation,
    LabelSpreading,
    trainable="label distributions of the points",
    notes="kernels rbf and knn; rows far from every point have no probabilities, as in the source",
)
def propagation(fitted: Any) -> Predictor:
    """The kernel between a row and ``X_``, times ``label_distributions_``, normalised."""
    if callable(fitted.kernel):
        raise UnsupportedEstimator(
            f"{type(fitted).__name__} has a custom kernel ({fitted.kernel!r}); accepted are 'rbf' and 'knn'"
        )
    neighbors = (fitted.nn_fit or fitted).n_neighbors if fitted.kernel == "knn" else 0
    return Predictor(
        PropagatedLabels(tensor(fitted.X_), tensor(fitted.label_distributions_), fitted.gamma, neighbors),
        link="probabilities",
        loss="probabilities",
        # Rows far from every point get the first label.
        methods={"predict": LabelIndex()} if len(fitted.classes_) > 1 else {},
    )
