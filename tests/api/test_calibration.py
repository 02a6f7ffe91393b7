"""scikit-learn calibrates the probabilities of a translation."""

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import log_loss

import windtunnel


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
def test_a_translation_is_calibrated_like_its_source(method: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 4))
    y = (X[:, 0] + 2 * rng.normal(size=1500) > 0).astype(int)
    # Far too sure of itself, as it has learned 300 rows by heart.
    source = HistGradientBoostingClassifier(max_iter=100, min_samples_leaf=2, random_state=0).fit(X[:300], y[:300])
    net = windtunnel.translate(source)
    of_net, of_source = (
        CalibratedClassifierCV(FrozenEstimator(model), method=method).fit(X[300:900], y[300:900])
        for model in (net, source)
    )
    rows, target = X[900:], y[900:]
    np.testing.assert_allclose(of_net.predict_proba(rows), of_source.predict_proba(rows), atol=1e-5)
    assert log_loss(target, of_net.predict_proba(rows)) < log_loss(target, net.predict_proba(rows))
