"""scikit-learn's stacks: one estimator over the outputs of others."""

from __future__ import annotations

from typing import Any

from sklearn.ensemble import StackingClassifier, StackingRegressor

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.tables.category_table import Identity
from windtunnel.translators.conversions import Composite, Part, member_names
from windtunnel.translators.registry import translates


@translates(StackingClassifier, trainable="as its parts", notes="one target; every stack_method, passthrough, prefit")
def stacking_classifier(fitted: StackingClassifier) -> Composite:
    """``final_estimator_`` over what ``stack_method_`` of ``estimators_`` gives; of two classes the second alone."""
    if isinstance(fitted.classes_, list):
        raise UnsupportedEstimator(
            f"StackingClassifier was fitted on {len(fitted.classes_)} targets at once; fit one for each target"
        )
    return _stack(fitted, binary=len(fitted.classes_) == 2)


@translates(StackingRegressor, trainable="as its parts", notes="passthrough, prefit")
def stacking_regressor(fitted: StackingRegressor) -> Composite:
    """``final_estimator_`` over what ``estimators_`` predict."""
    return _stack(fitted, binary=False)


def _stack(fitted: Any, *, binary: bool) -> Composite:
    parts = [
        Part(name, estimator, method, output_columns=[1] if binary and method == "predict_proba" else None)
        for name, estimator, method in zip(member_names(fitted), fitted.estimators_, fitted.stack_method_, strict=True)
    ]
    return Composite(
        parts,
        fitted.final_estimator_,
        passthrough=fitted.passthrough,
        name="final_estimator_",
        methods={"transform": Composite(parts, Identity(), passthrough=fitted.passthrough)},
    )
