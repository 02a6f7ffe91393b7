"""Linear and related models, beyond the case table: rejections, saturated scores, unusual fitted states."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.dummy import DummyClassifier
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import HuberRegressor, RidgeClassifier, SGDClassifier
from sklearn.naive_bayes import CategoricalNB, GaussianNB
from sklearn.neural_network import MLPClassifier

import windtunnel
from windtunnel.errors import BadInput, UnsupportedEstimator
from windtunnel.modules.linear.thresholded import SHARP, ThresholdedLinear
from windtunnel.modules.outputs.links import LINKS
from windtunnel.translators.registry import convert
from windtunnel.translators.scikit_learn_version import scikit_learn_before

X = np.random.default_rng(0).normal(size=(80, 3))
LABEL = np.where(X[:, 0] + 0.3 * X[:, 1] > 0, "yes", "no")
GRADE = np.digitize(X[:, 0] - X[:, 2], [-0.7, 0.7])


@pytest.mark.parametrize("target", [LABEL, GRADE], ids=["binary", "multiclass"])
def test_lda_by_least_squares_has_no_transform(target: np.ndarray) -> None:
    fitted = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.2).fit(X, target)
    net = windtunnel.compile(fitted)
    np.testing.assert_array_equal(net.predict(X), fitted.predict(X))
    for method in ("predict_proba", "predict_log_proba", "decision_function"):
        np.testing.assert_allclose(getattr(net, method)(X), getattr(fitted, method)(X), 1e-9, 1e-9)
    assert not hasattr(net, "transform")


def test_lda_of_classes_with_equal_means_has_no_directions() -> None:
    rows = pd.DataFrame(np.concatenate([X, -X, X, -X]))
    with np.errstate(invalid="ignore"):  # the source divides 0 by 0 in a number that it only reports
        fitted = LinearDiscriminantAnalysis().fit(rows, np.repeat(["no", "yes"], 2 * len(X)))
    net = windtunnel.compile(fitted, backend="native")
    np.testing.assert_array_equal(net.predict(rows), fitted.predict(rows))
    assert net.transform(rows).shape == fitted.transform(rows).shape == (len(rows), 0)


@pytest.mark.parametrize("target", [LABEL, GRADE], ids=["binary", "multiclass"])
@pytest.mark.parametrize("make", [LinearDiscriminantAnalysis, GaussianNB], ids=lambda one: one.__name__)
def test_log_probabilities_where_probabilities_are_0(make: Any, target: np.ndarray) -> None:
    fitted = make().fit(X, target)
    far = X * 1e4
    assert (fitted.predict_proba(far) == 0).any()
    np.testing.assert_allclose(
        windtunnel.compile(fitted).predict_log_proba(far), fitted.predict_log_proba(far), 1e-9, 1e-9
    )


NONE_LIKELY = pytest.param(
    -800.0, marks=pytest.mark.skipif(scikit_learn_before("1.9"), reason="the source divides 0 by 0")
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("margin", [-1.0, -90.0, -700.0, NONE_LIKELY])
def test_one_vs_rest_is_uniform_only_where_the_source_is(margin: float, dtype: torch.dtype) -> None:
    fitted = SGDClassifier(loss="log_loss", random_state=0).fit(X, GRADE)
    fitted.coef_[:] = 0
    fitted.intercept_[:] = [margin, margin - 1, margin - 2]
    scores = torch.from_numpy(fitted.decision_function(X)).to(dtype)
    np.testing.assert_allclose(LINKS["one_vs_rest"](scores), fitted.predict_proba(X), rtol=1e-5, atol=1e-9)


def test_categories_that_the_source_rejects() -> None:
    codes = np.abs(X.round()).clip(0, 2)
    fitted = CategoricalNB().fit(codes, LABEL)
    net = windtunnel.compile(fitted)
    between = codes + 0.9  # cut off by the source
    np.testing.assert_allclose(net.predict_proba(between), fitted.predict_proba(between), 1e-9, 1e-9)
    for odd in (3.0, -1.0, 1e30):
        rows = codes[:4].copy()
        rows[2, 1] = odd
        with pytest.raises((ValueError, IndexError)), np.errstate(invalid="ignore"):
            fitted.predict(rows)
        with pytest.raises(BadInput, match="1 of 4 rows"):
            net.predict(rows)


@pytest.mark.parametrize("out_of_bounds", ["nan", "raise"])
def test_isotonic_beyond_the_thresholds(out_of_bounds: str) -> None:
    fitted = IsotonicRegression(out_of_bounds=out_of_bounds).fit(X[:, :1], X[:, 1])
    net = windtunnel.compile(fitted)
    np.testing.assert_allclose(net.predict(X[:, :1]), fitted.predict(X[:, :1]), 1e-9, 1e-9)
    rows = np.array([[0.0], [99.0]])
    if out_of_bounds == "nan":
        np.testing.assert_allclose(net.predict(rows), fitted.predict(rows), 1e-9, 1e-9)
        return
    with pytest.raises(BadInput, match="1 of 2 rows"):
        net.predict(rows)


def test_isotonic_of_float32_gives_float32() -> None:
    fitted = IsotonicRegression(out_of_bounds="clip").fit(X[:, :1].astype(np.float32), X[:, 1].astype(np.float32))
    for method in ("predict", "transform"):
        got = getattr(windtunnel.compile(fitted), method)(X[:, :1])
        assert got.dtype == np.float32
        np.testing.assert_array_almost_equal_nulp(got, getattr(fitted, method)(X[:, :1]), 1)


REJECTED = {
    "random": (DummyClassifier(strategy="stratified").fit(X, LABEL), "stratified.* predicts at random"),
    "sparse target": (DummyClassifier().fit(X, sparse.csr_array((GRADE > 0)[:, None])), "sparse target"),
    "sparse labels": (
        RidgeClassifier().fit(X, sparse.csr_array(np.stack([GRADE > 0, GRADE > 1], axis=1).astype(int))),
        "sparse matrix of labels",
    ),
    "one class": (LinearDiscriminantAnalysis().fit(X, np.full(len(X), "a")), "single class 'a'"),
}


@pytest.mark.parametrize("name", REJECTED)
def test_what_cannot_be_given_exactly_is_rejected(name: str) -> None:
    fitted, message = REJECTED[name]
    with pytest.raises(UnsupportedEstimator, match=message):
        windtunnel.compile(fitted)


def test_several_labels_are_not_trained_as_classes() -> None:
    labels = np.stack([GRADE > 0, GRADE > 1], axis=1).astype(int)
    fitted = MLPClassifier((3,), solver="lbfgs", max_iter=5, tol=1e9, random_state=0).fit(X, labels)
    with pytest.raises(BadInput, match="several targets"):
        windtunnel.translate(fitted).fit((X, LABEL), epochs=1)


def test_the_huber_loss_has_the_scale_of_the_source() -> None:
    fitted = HuberRegressor(epsilon=1.5).fit(X, np.exp(X[:, 0]))
    predictor = convert(fitted)
    assert (predictor.loss, predictor.loss_options) == ("huber", {"delta": fitted.epsilon * fitted.scale_})


def test_a_threshold_is_soft_in_the_middle_of_its_gap() -> None:
    hard = ThresholdedLinear(torch.eye(3), torch.zeros(3), torch.tensor(0.5))
    # A column on both sides, one above, one at or below the threshold.
    sample = torch.tensor([[0.0, 0.7, 0.5], [1.0, 2.0, 0.3]])
    soft = hard.soft(sample)
    torch.testing.assert_close(soft(sample), hard(sample), rtol=0, atol=2 * float(np.exp(-SHARP)))
    torch.testing.assert_close(soft.center, torch.tensor([0.5, 0.5, 1.0]))
    assert hard.soft(None) is hard


def test_a_threshold_keeps_its_side_in_float32() -> None:
    for threshold in (0.1, 0.7, 0.3, 1 / 3):
        near = np.float32(threshold)
        rows = torch.tensor([[np.nextafter(near, np.float32(-9))], [near], [np.nextafter(near, np.float32(9))]])
        one = torch.ones(1, 1, dtype=torch.float64)
        hard = ThresholdedLinear(one, 0 * one[0], torch.tensor(threshold, dtype=torch.float64))
        exact = hard(rows.double())
        hard.cast(torch.float32)
        torch.testing.assert_close(hard(rows).double(), exact, rtol=0, atol=0)
