"""scikit-learn's votes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.ensemble import VotingClassifier, VotingRegressor

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.ensembles.ensemble import WeightedMean
from windtunnel.modules.outputs.method_outputs import CastColumns
from windtunnel.modules.tables.category_table import Identity
from windtunnel.translators.arrays import tensor
from windtunnel.translators.conversions import Composite, Part, Predictor, member_names
from windtunnel.translators.registry import translates


@translates(
    VotingClassifier,
    trainable="weights of the vote, and as its parts",
    notes="hard and soft; flatten_transform=False has no transform",
)
def voting_classifier(fitted: VotingClassifier) -> Composite:
    """The weighted mean of the probabilities of ``estimators_`` (soft), or of their votes (hard)."""
    soft = fitted.voting == "soft"
    weights = _weights(fitted)
    if not soft and weights.min() < 0:
        raise UnsupportedEstimator(
            f"VotingClassifier votes with negative weights ({weights.tolist()}), where labels without votes "
            "may win; fit it with weights from 0 up"
        )
    lacking = {type(member).__name__ for member in fitted.estimators_ if not hasattr(member, "predict_proba")}
    if soft and lacking:
        raise UnsupportedEstimator(
            f"VotingClassifier(voting='soft') cannot predict, as {', '.join(sorted(lacking))} has no predict_proba; "
            "fit it with voting='hard', or with estimators that have probabilities"
        )
    methods = {}
    if not soft:
        methods = {"transform": Composite(_parts(fitted, "position"), CastColumns(torch.zeros((), dtype=torch.int64)))}
    elif fitted.flatten_transform:
        methods = {"transform": Composite(_parts(fitted, "predict_proba"), Identity())}
    then = Predictor(
        WeightedMean(tensor(weights)),
        link="probabilities",
        loss="probabilities",
        dtypes={} if soft else {"transform": "int64"},
    )
    return Composite(_parts(fitted, "predict_proba" if soft else "votes"), then, methods=methods)


@translates(
    VotingRegressor,
    trainable="weights of the vote, and as its parts",
    notes="fine-tuned with the loss that its parts share, else with squared errors",
)
def voting_regressor(fitted: VotingRegressor) -> Composite:
    """The weighted mean of what ``estimators_`` predict."""
    parts, weights = _parts(fitted, "predict"), _weights(fitted)
    return Composite(
        parts,
        Predictor(WeightedMean(tensor(weights))),
        methods={"transform": Composite(parts, Identity())},
        # With negative weights the mean of positive predictions may be negative.
        shared_loss="loss" if weights.min() >= 0 else "",
    )


def _parts(fitted: Any, method: str) -> list[Part]:
    return [
        Part(name, estimator, method) for name, estimator in zip(member_names(fitted), fitted.estimators_, strict=True)
    ]


def _weights(fitted: Any) -> np.ndarray:
    """The weights of the members that are not dropped; 1 if the vote has no weights."""
    if fitted.weights is None:
        return np.ones(len(fitted.estimators_))
    pairs = zip(fitted.estimators, fitted.weights, strict=True)
    return np.array([weight for (_, estimator), weight in pairs if not isinstance(estimator, str)], np.float64)
