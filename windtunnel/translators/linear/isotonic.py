"""scikit-learn's isotonic regression."""

from __future__ import annotations

import numpy as np
from sklearn.isotonic import IsotonicRegression

from windtunnel.modules.columns.interpolated import Interpolated
from windtunnel.modules.outputs.class_outputs import Squeeze
from windtunnel.translators.arrays import tensor
from windtunnel.translators.conversions import Predictor
from windtunnel.translators.registry import translates


@translates(
    IsotonicRegression,
    trainable="values at the thresholds",
    notes="values beyond the thresholds are NaN, or rejected for out_of_bounds='raise'",
)
def isotonic(fitted: IsotonicRegression) -> Predictor:
    """Linear between the points X_thresholds_, y_thresholds_. Both predict and transform."""
    single = fitted.X_thresholds_.dtype == np.float32
    x, y = tensor(fitted.X_thresholds_), tensor(fitted.y_thresholds_)
    beyond = "clip" if len(x) == 1 else fitted.out_of_bounds  # a single point is the value of all numbers
    if beyond != "clip":  # the function that fit has made decides
        beyond = "raise" if fitted.f_.bounds_error else "nan"
    return Predictor(
        Interpolated(x, y, beyond=beyond, single=bool(single)),
        methods={"transform": Squeeze()},
        dtypes={"predict": "float32", "transform": "float32"} if single else {},
    )
