"""Labels of Gaussian processes far from all rows, where probabilities tell them no longer."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessClassifier

import windtunnel
from windtunnel.modules.kernels.kernels import KERNELS, SquaredExponential

DRAWN = np.random.default_rng(0).normal(size=(30, 4))
FAR = np.random.default_rng(1).normal(size=(400, 4)) * np.linspace(1, 12, 400)[:, None]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_sign_of_the_latent_mean_decides_between_two_classes(dtype: str) -> None:
    source = GaussianProcessClassifier(optimizer=None).fit(DRAWN, DRAWN[:, 0] > 0)
    mean, _ = source.latent_mean_and_variance(FAR)
    lost = source.predict_proba(FAR)[:, 1] == source.predict_proba(np.full((1, 4), 1e3))[0, 1]
    assert (lost & (mean > 0)).any()
    assert (lost & (mean < 0)).any()
    net = windtunnel.compile(source, dtype=dtype)
    np.testing.assert_array_equal(net.predict(FAR), source.predict(FAR))


def test_the_first_of_equal_probabilities_is_the_label_of_three_classes() -> None:
    source = GaussianProcessClassifier(optimizer=None).fit(DRAWN, np.digitize(DRAWN[:, 0], [-0.5, 0.5]))
    np.testing.assert_array_equal(windtunnel.compile(source).predict(FAR), source.predict(FAR))


def test_a_subclass_of_the_same_name_replaces_no_kernel() -> None:
    type(SquaredExponential.__name__, (SquaredExponential,), {})
    assert KERNELS[SquaredExponential.__name__] is SquaredExponential
