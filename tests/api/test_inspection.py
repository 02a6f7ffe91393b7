"""A translation inside tools of scikit-learn, and its short forms."""

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.frozen import FrozenEstimator
from sklearn.inspection import partial_dependence, permutation_importance
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import r2_score
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from xgboost import XGBRegressor

import windtunnel
from windtunnel import Recipe, WindTunnelClassifier

DATA = {"classes": load_breast_cancer, "values": load_diabetes}


def both(kind: str):
    X, y = DATA[kind](return_X_y=True, as_frame=True)
    X = X.iloc[:120, :3]
    last = LogisticRegression() if kind == "classes" else Ridge()
    source = make_pipeline(StandardScaler(), last).fit(X, y[:120])
    return source, windtunnel.compile(source), X, y[:120]


@pytest.mark.parametrize("kind", DATA)
def test_inspection_of_a_net_is_that_of_its_source(kind: str) -> None:
    source, net, X, y = both(kind)
    assert net.score(X, y) == pytest.approx(source.score(X, y))
    ours, theirs = (permutation_importance(each, X, y, n_repeats=2, random_state=0) for each in (net, source))
    np.testing.assert_allclose(ours.importances, theirs.importances, atol=1e-9)
    ours, theirs = (partial_dependence(each, X, [0], grid_resolution=5) for each in (net, source))
    np.testing.assert_allclose(ours["average"], theirs["average"], rtol=1e-9)


def test_a_frozen_net_is_calibrated_as_its_source() -> None:
    source, net, X, y = both("classes")
    ours, theirs = (CalibratedClassifierCV(FrozenEstimator(each), cv=3).fit(X, y) for each in (net, source))
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), rtol=1e-6)


def test_short_forms() -> None:
    source, *_ = both("classes")
    net = windtunnel.translate(source).requires_grad_(False)
    assert repr(net) == (
        "Translation(task: binary, 2 classes: 0, 1; steps: StandardScaler, LogisticRegression; "
        f"parameters: {sum(each.numel() for each in net.parameters())}, 0 trainable; fine-tuned: no)"
    )
    assert "StandardScaler" in net._repr_html_()
    several = DecisionTreeClassifier(max_depth=2).fit(np.eye(4), [["a", 0], ["b", 1], ["c", 0], ["a", 1]])
    assert "(task: multiclass of 2 targets, with 3, 2 classes; " in repr(windtunnel.translate(several))
    supported = windtunnel.supported()
    assert f"{len(supported)} estimator classes (" in repr(supported)
    assert supported._repr_html_().count("<tr>") == len(supported) + 1


def test_options_of_the_recipe_are_parameters() -> None:
    estimator = WindTunnelClassifier(recipe=Recipe(epochs=2)).set_params(recipe__epochs=1, recipe__seed=4)
    assert estimator.recipe == Recipe(epochs=1, seed=4)
    assert estimator.get_params()["recipe__epochs"] == 1
    with pytest.raises(windtunnel.InvalidOption, match="epoch=1 is not an option: did you mean epochs"):
        estimator.set_params(recipe__epoch=1)


def test_an_eval_set_replaces_the_rows_held_out(tmp_path) -> None:
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    estimator = WindTunnelClassifier(recipe=Recipe(epochs=1)).fit(X[:150], y[:150], eval_set=[(X[150:250], y[150:250])])
    expected = make_pipeline(StandardScaler(), LogisticRegression()).fit(X[:150], y[:150])
    np.testing.assert_allclose(estimator.pipeline_.predict_proba(X), expected.predict_proba(X))
    assert "LogisticRegression" in str(estimator.report())
    assert estimator.explain(X[:3]).values.shape[0] == 3
    estimator.save(tmp_path / "net.windtunnel")
    loaded = windtunnel.load(tmp_path / "net.windtunnel")
    assert (loaded.predict_proba(X) == estimator.predict_proba(X)).all()
    with pytest.raises(windtunnel.BadInput, match="eval_set is a DataFrame; give"):
        estimator.fit(X[:150], y[:150], eval_set=X)


def test_a_row_of_several_targets_is_right_where_all_of_its_labels_are() -> None:
    X = load_breast_cancer().data[:200, :3]
    Y = np.c_[np.where(X[:, 0] > 14, "large", "small"), np.digitize(X[:, 1], [15, 20]).astype(str)]
    source = MultiOutputClassifier(DecisionTreeClassifier(max_depth=1)).fit(X, Y)
    net = windtunnel.compile(source)
    assert 0 < net.score(X, Y) < 1 and net.score(X, Y) == pytest.approx(source.score(X, Y))
    weight = np.arange(200) % 3
    assert net.score(X, Y, weight) == pytest.approx(source.score(X.repeat(weight, 0), Y.repeat(weight, 0)))


def test_a_classifier_of_one_class_has_its_accuracy_in_the_report() -> None:
    X = load_breast_cancer().data[:20]
    net = windtunnel.compile(DecisionTreeClassifier().fit(X, ["a"] * 20))
    assert net.report((X, ["a"] * 20)).test_scores["fine-tuned"] == {"accuracy": 1.0}


def test_several_quantiles_have_a_score() -> None:
    X, y = load_diabetes(return_X_y=True)
    source = XGBRegressor(objective="reg:quantileerror", quantile_alpha=[0.1, 0.9], n_estimators=3).fit(X, y)
    net = windtunnel.compile(source)
    assert net.score(X, y) == pytest.approx(r2_score(np.column_stack([y, y]), source.predict(X)), abs=1e-5)
