"""scikit-learn's calibrated classifiers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.calibration import CalibratedClassifierCV

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.base import Module
from windtunnel.modules.ensembles.calibrators import IsotonicCalibration, SigmoidCalibration, TemperatureCalibration
from windtunnel.translators.arrays import indices, tensor
from windtunnel.translators.conversions import Composite, Part, Predictor
from windtunnel.translators.registry import translates


@translates(
    CalibratedClassifierCV,
    trainable="sigmoids, isotonic values or temperatures, and as its parts",
    notes="sigmoid, isotonic and temperature; ensemble or not; scores are probabilities",
)
def calibrated(fitted: CalibratedClassifierCV) -> Composite:
    """The mean of ``calibrated_classifiers_``: calibrators over decisions, else over probabilities.

    Reads ``estimator``, ``calibrators`` and ``method`` of each.
    """
    members, classes = fitted.calibrated_classifiers_, fitted.classes_
    if len(classes) < 2:
        raise UnsupportedEstimator(f"CalibratedClassifierCV was fitted on the one class {classes[0]!r}; fit it on two")
    methods = [_method(member.estimator) for member in members]
    if members[0].method == "temperature":
        if len(set(methods)) > 1:
            raise UnsupportedEstimator(f"CalibratedClassifierCV holds estimators of several kinds: {set(methods)}")
        beta = tensor([member.calibrators[0].beta_ for member in members])
        then: Module = TemperatureCalibration(beta, probabilities=methods[0] == "predict_proba")
        counts: Sequence[int | None] = [1 if len(classes) == 2 else None] * len(members)
    else:
        counts = [len(member.calibrators) for member in members]
        calibrators = [calibrator for member in members for calibrator in member.calibrators]
        build = _isotonic if members[0].method == "isotonic" else _sigmoid
        then = build(calibrators, indices(_places(members, classes)))
    parts = [
        Part(
            f"calibrated_classifiers_.{index}.estimator",
            member.estimator,
            method,
            output_columns=_take(member, method, count),
        )
        for index, (member, method, count) in enumerate(zip(members, methods, counts, strict=True))
    ]
    return Composite(parts, Predictor(then, link="probabilities", loss="probabilities"))


def _method(estimator: Any) -> str:
    return "decision_function" if hasattr(estimator, "decision_function") else "predict_proba"


def _take(member: Any, method: str, count: int | None) -> list[int] | None:
    """The columns that are calibrated: the second probability of two classes, else the first ``count``."""
    if method == "predict_proba" and len(member.estimator.classes_) == 2:
        return [1]
    return None if count is None else list(range(count))


def _places(members: Sequence[Any], classes: NDArray[Any]) -> NDArray[np.int64]:
    """The calibrated column of each class, ``[E, K]``, -1 for none; for two classes that of the second alone."""
    places = np.full((len(members), len(classes)), -1, np.int64)
    start = 0
    for row, member in zip(places, members, strict=True):
        positions = np.searchsorted(classes, member.estimator.classes_)
        for column, position in zip(range(len(member.calibrators)), positions, strict=False):
            # As in the source: for two classes the single column is that of the first, and counts for the second.
            row[position + (len(classes) == 2)] = start + column
        start += len(member.calibrators)
    return places[:, 1:] if len(classes) == 2 else places


def _sigmoid(calibrators: Sequence[Any], place: torch.Tensor) -> SigmoidCalibration:
    slope = tensor([calibrator.a_ for calibrator in calibrators])
    return SigmoidCalibration(slope, tensor([calibrator.b_ for calibrator in calibrators]), place)


def _isotonic(calibrators: Sequence[Any], place: torch.Tensor) -> IsotonicCalibration:
    points = max(2, *(len(calibrator.X_thresholds_) for calibrator in calibrators))
    x = np.full((len(calibrators), points), np.inf)
    y = np.empty((len(calibrators), points))
    for row, calibrator in enumerate(calibrators):
        count = len(calibrator.X_thresholds_)
        x[row, :count] = calibrator.X_thresholds_
        y[row, :count], y[row, count:] = calibrator.y_thresholds_, calibrator.y_thresholds_[-1]
    last = torch.tensor([len(calibrator.X_thresholds_) - 1 for calibrator in calibrators])
    single = calibrators[0].X_thresholds_.dtype == np.float32
    return IsotonicCalibration(tensor(x), tensor(y), last, place, single)
