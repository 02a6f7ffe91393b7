from __future__ import annotations

import numpy as np
import pytest
import sklearn
from imblearn import FunctionSampler
from imblearn.pipeline import make_pipeline
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from windtunnel.errors import BadInput
from windtunnel.estimators.fitting import clone_for_refit, fit_estimator

X = np.random.default_rng(0).normal(size=(300, 3))
Y = X[:, 0] + 100 * (np.arange(300) >= 150)
WEIGHT = np.where(np.arange(300) < 150, 1.0, 0.0)


@pytest.mark.parametrize("name", ["n_estimators", "num_iterations", "num_boost_round"])
def test_a_refitted_booster_has_the_trees_at_which_it_stopped_whatever_their_option_is_called(name: str) -> None:
    options = {name: 300, "early_stopping_round": 2, "verbosity": -1}
    fitted = LGBMRegressor(**options)
    fit_estimator(fitted, X, Y, validation=(X[:50], Y[:50] + np.arange(50)))
    assert fitted.best_iteration_ < 300
    refitted = clone_for_refit(fitted).fit(X, Y)
    assert refitted.n_estimators_ == fitted.best_iteration_


@pytest.mark.parametrize("requested", [True, False])
def test_routed_weights_reach_the_steps_before_a_booster_that_stops_early(requested: bool) -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        scaler = StandardScaler().set_fit_request(sample_weight=requested)
        booster = LGBMRegressor(n_estimators=5, early_stopping_round=2, verbosity=-1)
        pipeline = Pipeline([("s", scaler), ("m", booster.set_fit_request(sample_weight=True))])
        fitted = fit_estimator(pipeline, X, Y, WEIGHT, validation=(X[:50], Y[:50]))
        plain = sklearn.clone(pipeline).set_params(m__early_stopping_round=None)
        wanted = fit_estimator(plain, X, Y, WEIGHT)["s"].mean_
    np.testing.assert_allclose(fitted["s"].mean_, wanted)


def first_half(X, y):
    return X[:150], y[:150]


LABELS = (X[:, 0] > 0).astype(int)


@pytest.mark.parametrize("last", [["passthrough"], []])
def test_a_booster_that_stops_early_is_fitted_on_the_rows_that_samplers_leave(last: list[str]) -> None:
    booster = LGBMClassifier(n_estimators=5, early_stopping_round=2, verbosity=-1)
    pipeline = make_pipeline(StandardScaler(), FunctionSampler(func=first_half), *last, booster)
    fitted = fit_estimator(pipeline, X, LABELS, validation=(X[:50], LABELS[:50]))
    fit_estimator(make_pipeline(FunctionSampler(func=first_half), clone(booster)), X, LABELS, validation=(X, LABELS))
    tree = fitted[-1].booster_.dump_model()["tree_info"][0]["tree_structure"]
    assert (fitted[0].n_samples_seen_, tree["internal_count"]) == (300, 150)


@pytest.mark.parametrize("validation", [None, (X[:50], LABELS[:50])])
def test_samplers_take_no_row_weights(validation) -> None:
    booster = LGBMClassifier(n_estimators=5, early_stopping_round=2 if validation else 0, verbosity=-1)
    pipeline = make_pipeline(FunctionSampler(func=first_half), booster)
    with pytest.raises(BadInput, match="step 'functionsampler' draws rows anew, and their weights are not known"):
        fit_estimator(pipeline, X, LABELS, WEIGHT, validation=validation)
