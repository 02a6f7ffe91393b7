"""CatBoost: thresholds, sums of models, and what changes after fitting."""

import catboost as cb
import numpy as np
import pytest

import windtunnel
from tests.support.tree_rows import labels, rows, values
from windtunnel.errors import UnsupportedEstimator

TINY = {"iterations": 6, "depth": 3, "verbose": 0, "allow_writing_files": False, "thread_count": 1}


@pytest.mark.parametrize("options", [{}, {"loss_function": "CrossEntropy"}, {"loss_function": "MultiClass"}], ids=str)
@pytest.mark.parametrize("bound", [0.0, 0.2, "a tie", 1.0], ids=str)
def test_the_probability_threshold_of_catboost(options, bound, tmp_path):
    x = rows(missing=0.1)
    y = labels(x) if options == {"loss_function": "MultiClass"} else (values(x) > 0).astype(int)
    source = cb.CatBoostClassifier(**TINY, **options).fit(x, y)
    tie = float(source.predict_proba(x)[7, 1])
    source.set_probability_threshold(tie if bound == "a tie" else bound)
    source.save_model(str(tmp_path / "model.cbm"))
    for one in (source, cb.CatBoostClassifier().load_model(str(tmp_path / "model.cbm"))):
        np.testing.assert_array_equal(windtunnel.compile(one).predict(x), one.predict(x))


@pytest.mark.parametrize("losses", [("Poisson", "Poisson"), ("RMSE", "Poisson"), ("RMSE", "MAE")], ids=str)
@pytest.mark.parametrize("convert", [lambda s: s, cb.to_regressor, cb.to_ranker], ids=["raw", "regressor", "ranker"])
def test_sums_of_catboost_models(losses, convert):
    x = rows()
    fitted = [cb.CatBoostRegressor(**TINY, loss_function=loss).fit(x, np.exp(values(x))) for loss in losses]
    source = convert(cb.sum_models(fitted, weights=[0.3, 0.6]))
    np.testing.assert_allclose(windtunnel.compile(source).predict(x), source.predict(x), rtol=1e-9)


def test_the_scale_that_catboost_is_given_after_fitting():
    x = rows()
    source = cb.CatBoostRegressor(**TINY, loss_function="Poisson").fit(x, np.exp(values(x)))
    source.set_scale_and_bias(0.5, 0.25)
    np.testing.assert_allclose(windtunnel.compile(source).predict(x), source.predict(x), rtol=1e-9)


def test_classes_that_no_row_had_are_rejected() -> None:
    X = np.random.default_rng(0).normal(size=(60, 2))
    options = {"iterations": 2, "verbose": 0, "loss_function": "MultiClass", "allow_writing_files": False}
    model = cb.CatBoostClassifier(classes_count=5, **options).fit(X, np.arange(60) % 3)
    with pytest.raises(UnsupportedEstimator, match="fitted on 3 classes; fit it without classes_count"):
        windtunnel.compile(model)
