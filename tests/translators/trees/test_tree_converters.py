"""What the readers of trees reject by name, and rows on which trees of other libraries go astray without a word."""

import warnings

import catboost as cb
import lightgbm as lgb
import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
import xgboost as xgb
from sklearn import dummy, ensemble, linear_model, tree
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import windtunnel
from tests.support.tree_rows import categorical_rows, labels, rows, values
from windtunnel.errors import BadInput, UnsupportedEstimator
from windtunnel.modules.ensembles.ensemble import LabelVotes, MeanOfMembers, WeightedMedian
from windtunnel.modules.ensembles.init_scores import ScoresWithInit
from windtunnel.modules.linear.linear import LinearSkippingMissing
from windtunnel.modules.outputs.class_outputs import IsolationScore
from windtunnel.modules.outputs.links import LINKS
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.translators.registry import convert
from windtunnel.translators.scikit_learn_version import scikit_learn_before

TINY = {"iterations": 6, "depth": 3, "verbose": 0, "allow_writing_files": False, "thread_count": 1}

SMALL = {"n_estimators": 6, "max_depth": 3, "n_jobs": 1}


def linked(fitted, x):
    predictor = convert(fitted)
    return LINKS[predictor.link](predictor.scores(torch.from_numpy(x)), **predictor.link_options).numpy()


@pytest.mark.parametrize(
    ("make", "fit", "message"),
    [
        (lambda: xgb.XGBRegressor(missing=0.0, **SMALL), values, "missing=0.0 takes that number for missing"),
        (lambda: xgb.XGBClassifier(objective="binary:hinge", **SMALL), lambda x: labels(x) % 2, "binary:hinge"),
        (lambda: xgb.XGBClassifier(**SMALL), lambda x: np.stack([values(x) > 0, values(x) > 1], 1), "2 labels per row"),
        (
            lambda: xgb.XGBRegressor(objective=lambda y, p: (p - y, np.ones_like(p)), **SMALL),
            values,
            "custom objective",
        ),
        (lambda: cb.CatBoost({"loss_function": "Logloss", **TINY}), lambda x: labels(x) % 2, r"Classifier\(\).load_"),
        (
            lambda: ensemble.GradientBoostingRegressor(init=linear_model.LinearRegression(), n_estimators=2),
            values,
            "LinearRegression that computes in float32",
        ),
        (
            lambda: ensemble.GradientBoostingClassifier(init=dummy.DummyClassifier(strategy="uniform"), n_estimators=2),
            labels,
            "draws its predictions at random",
        ),
    ],
    ids=["missing", "hinge", "several labels", "custom", "raw classifier", "float32 init", "random init"],
)
def test_rejected_by_name(make, fit, message):
    x = rows()
    fitted = make().fit(x, fit(x))
    with pytest.raises(UnsupportedEstimator, match=message):
        convert(fitted)


TREES = {
    "tree": lambda: tree.DecisionTreeRegressor(),
    "forest": lambda: ensemble.RandomForestRegressor(n_estimators=5, random_state=0),
    "boosting": lambda: ensemble.GradientBoostingRegressor(n_estimators=5),
    "histogram": lambda: ensemble.HistGradientBoostingRegressor(max_iter=5, min_samples_leaf=2),
    "lightgbm": lambda: lgb.LGBMRegressor(n_estimators=5, min_child_samples=2, verbosity=-1, n_jobs=1),
    "xgboost": lambda: xgb.XGBRegressor(**SMALL),
    "catboost": lambda: cb.CatBoostRegressor(**TINY),
}

TOLERANCE = dict.fromkeys(TREES, 1e-12) | {"xgboost": 1e-6}  # XGBoost adds up in float32


@pytest.mark.parametrize("name", TREES)
def test_on_a_float64_grid(name):
    x = rows(grid=True)
    fitted = TREES[name]().fit(x, values(x))
    near = np.concatenate([x, np.nextafter(x, np.inf), np.nextafter(x, -np.inf), x.astype(np.float32)])
    np.testing.assert_allclose(linked(fitted, near)[:, 0], fitted.predict(near), TOLERANCE[name], TOLERANCE[name])


@pytest.mark.parametrize("name", TREES)
def test_decimals_in_float32(name):
    x = np.random.default_rng(0).normal(size=(2000, 2)).round(2)
    fitted = TREES[name]().fit(x, values(x))
    found = windtunnel.compile(fitted, dtype="float32").predict(x)
    np.testing.assert_allclose(found, fitted.predict(x), 1e-5, 1e-5)


@pytest.mark.parametrize("trained_on_missing", [False, True])
@pytest.mark.parametrize("name", [name for name in TREES if name != "boosting"])
def test_missing_values(name, trained_on_missing):
    x, gone = rows(missing=0.2 if trained_on_missing else 0.0), rows(missing=0.5)
    fitted = TREES[name]().fit(x, values(x))
    try:
        want = fitted.predict(gone)
    except ValueError as error:  # scikit-learn's trees that saw none reject them
        assert "NaN" in str(error)
        return
    np.testing.assert_allclose(linked(fitted, gone)[:, 0], want, TOLERANCE[name], TOLERANCE[name])


@pytest.mark.parametrize("name", [*TREES])
def test_awkward_numbers(name):
    x = rows()
    x[:30, 0] = 0.0
    fitted = TREES[name]().fit(x, values(x))
    special = np.array([0.0, -0.0, 1e-40, -1e-40, 1e-300, 3.4e38, -3.4e38, 5e-324])
    odd = np.random.default_rng(1).choice(special, size=(100, 3))
    with np.errstate(invalid="ignore"):  # scikit-learn adds the numbers up to see whether they are finite
        want = fitted.predict(odd)
    np.testing.assert_allclose(linked(fitted, odd)[:, 0], want, TOLERANCE[name], TOLERANCE[name])


def test_base_score_of_each_class():
    x = rows()
    fitted = xgb.XGBClassifier(**SMALL | {"n_estimators": 1}).fit(x, labels(x))
    base = convert(fitted).scores.base
    assert len(set(base.tolist())) == 3
    np.testing.assert_allclose(linked(fitted, x), fitted.predict_proba(x), 1e-6, 1e-6)


LEAVES = {
    "random forest": lambda: ensemble.RandomForestClassifier(3, random_state=0),
    "extra trees": lambda: ensemble.ExtraTreesRegressor(3, random_state=0),
    "embedding": lambda: ensemble.RandomTreesEmbedding(3, random_state=0),
    "tree": lambda: tree.DecisionTreeClassifier(max_depth=3),
    "gradient boosting": lambda: ensemble.GradientBoostingRegressor(n_estimators=3),
    "xgboost": lambda: xgb.XGBClassifier(**SMALL),
}


@pytest.mark.parametrize("name", LEAVES)
def test_leaves_have_the_type_that_the_source_gives_them(name):
    x = rows()
    source = LEAVES[name]().fit(x, labels(x))
    wanted, got = source.apply(x), windtunnel.compile(source).apply(x)
    assert got.dtype == wanted.dtype
    np.testing.assert_array_equal(got, wanted)


def test_a_forest_of_isolation_keeps_the_training_rows_at_its_offset():
    """With contamination the offset is the score of a training row, or between two that may be equal."""
    x = np.repeat(rows(40), 5, axis=0)
    for share in (0.05, 0.1, 0.25, 0.5):
        fitted = ensemble.IsolationForest(n_estimators=7, contamination=share, random_state=0).fit(x)
        predictor = convert(fitted)
        position = predictor.methods["predict"](predictor.scores(torch.from_numpy(x))).numpy()
        np.testing.assert_array_equal(np.array([-1, 1])[position], fitted.predict(x))


def test_linear_leaves_train():
    x = rows(missing=0.1)
    fitted = lgb.LGBMRegressor(n_estimators=4, num_leaves=4, linear_tree=True, verbosity=-1, n_jobs=1).fit(x, values(x))
    module, inputs = convert(fitted).scores, torch.from_numpy(x).requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        scripted = torch.jit.script(module)
    assert torch.equal(scripted(inputs), module(inputs))
    np.testing.assert_allclose(module(inputs).detach()[:, 0], fitted.predict(x), 1e-9, 1e-9)
    assert torch.equal(module.rebuild(module.state_dict(), module.facts())(inputs), module(inputs))
    module(inputs).sum().backward()
    assert all(one.grad.isfinite().all() and one.grad.any() for one in (module.const, module.coefficient, inputs))
    module.cast(torch.float32)
    np.testing.assert_allclose(module(inputs.float()).detach()[:, 0], fitted.predict(x), 1e-5, 1e-5)


@pytest.mark.parametrize("count", [0, 1, 5])
@pytest.mark.parametrize(
    "module",
    [
        MeanOfMembers(torch.tensor([[0, 1], [2, -1]]), 2.0),
        MeanOfMembers(torch.tensor([[0], [2]]), 2.0, flat=True),
        LabelVotes(torch.arange(6.0).reshape(1, 3, 2), 3.0),
        WeightedMedian(torch.tensor([1.0, 2.0, 0.5])),
        LinearSkippingMissing(torch.ones(2, 3), torch.zeros(2)),
        ScoresWithInit(1, "half_logit"),
        ScoresWithInit(1, "log_share"),
        IsolationScore(torch.tensor(-0.5)),
    ],
    ids=lambda module: type(module).__name__,
)
def test_small_modules_script_and_rebuild(module, count):
    x = torch.tensor([[0.0, 1.0, 2.0]]).repeat(count, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        scripted = torch.jit.script(module)
    assert torch.equal(scripted(x), module(x)) and len(module(x)) == count
    assert torch.equal(type(module).rebuild(module.state_dict(), module.facts())(x), module(x))


def test_two_thousand_trees():
    x = rows(100)
    fitted = ensemble.RandomForestRegressor(n_estimators=2000, max_depth=2, random_state=0, n_jobs=1).fit(x, values(x))
    assert isinstance(convert(fitted).scores, HardTrees)
    np.testing.assert_allclose(linked(fitted, x)[:, 0], fitted.predict(x), 1e-12, 1e-12)


@pytest.mark.parametrize("function", [np.tanh, np.log1p, np.cbrt])
def test_training_rows_stay_on_their_side_of_thresholds_behind_a_function(function):
    # Thresholds are values of training rows here, and torch's function may give the number beside NumPy's.
    X = np.random.default_rng(0).normal(size=(2_000, 1))
    x, y = abs(X), np.sign(X[:, 0]) * np.arange(len(X))
    source = make_pipeline(FunctionTransformer(function), ensemble.HistGradientBoostingRegressor(max_iter=20)).fit(x, y)
    np.testing.assert_allclose(windtunnel.compile(source).predict(x), source.predict(x), rtol=1e-9)


@pytest.mark.parametrize("library", [xgb.XGBClassifier, lgb.LGBMClassifier])
def test_arrays_hold_codes_where_tables_held_categories(library, tmp_path):
    options = {"enable_categorical": True} if library is xgb.XGBClassifier else {"verbosity": -1}
    X, y = categorical_rows()
    net = windtunnel.compile(library(**options, **SMALL).fit(X, y))
    net.save(tmp_path / "net")
    for one in (net, windtunnel.load(tmp_path / "net")):
        for given in (X.to_numpy(np.float64), X.to_numpy(object)):
            with pytest.raises(BadInput, match="Give a DataFrame with the columns 'code', 'number'"):
                one.predict(given)


def test_infinity_among_the_categories_of_histogram_gradient_boosting():
    X, y = categorical_rows()
    X = X.astype(float)
    source = ensemble.HistGradientBoostingClassifier(max_iter=3, categorical_features=["code"]).fit(X, y)
    rows = X[:2].assign(code=np.inf)
    with pytest.raises(ValueError, match="infinity"):
        source.predict(rows)
    with pytest.raises(BadInput, match="'code' holds infinite values"):
        windtunnel.compile(source).predict(rows)


@pytest.mark.parametrize("forest", [ensemble.GradientBoostingRegressor, ensemble.GradientBoostingClassifier])
def test_gradient_boosting_gives_leaves_of_rows_that_it_does_not_predict(forest):
    x, gaps = rows(), rows(missing=0.2)
    source = forest(n_estimators=3).fit(x, labels(x))
    net = windtunnel.compile(source)
    np.testing.assert_array_equal(net.apply(gaps), source.apply(gaps))
    for one, error in ((source, ValueError), (net, BadInput)):
        with pytest.raises(error, match="NaN"):
            one.predict(gaps)
        with pytest.raises(error, match="infinity|infinite"):
            one.apply(np.full((1, 3), np.inf))


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
@pytest.mark.parametrize("form", ["eager", "torchscript", "onnx"])
def test_categories_that_are_numbers_between_two(library, form, tmp_path):
    rng = np.random.default_rng(0)
    x = np.c_[rng.integers(0, 6, 600), rng.normal(size=600)]
    y = np.isin(x[:, 0], [0, 3]) + x[:, 1]
    if library == "xgboost":
        source = xgb.XGBRegressor(enable_categorical=True, feature_types=["c", "q"], max_cat_to_onehot=9, **SMALL).fit(
            x, y
        )
    else:
        source = lgb.LGBMRegressor(verbosity=-1, min_data_per_group=1, **SMALL).fit(x, y, categorical_feature=[0])
    odd = [0, -0.0, 3, 3.5, 2.999, 5.9, 6.5, -1, -0.5, -1e-40, -1e-50, 1e-40, 1e9, np.nan]
    rows = np.c_[odd, np.full(len(odd), 0.3)]
    net = windtunnel.compile(source, **{} if form == "eager" else {"backend": form})
    np.testing.assert_allclose(net.predict(rows), source.predict(rows), rtol=1e-5)


POLARS = pytest.mark.skipif(scikit_learn_before("1.9"), reason="scikit-learn takes Polars categories from 1.9 on")


@pytest.mark.parametrize(
    ("values", "polars"),
    [
        pytest.param(["x", "y", None], False, id="texts"),
        pytest.param(["x", "y", None], True, id="texts of Polars", marks=POLARS),  # which has no other categories
        pytest.param([1, 2, None], False, id="ints"),
        pytest.param([True, False, None], False, id="bools"),
    ],
)
def test_none_is_a_category_of_histogram_boosting(values, polars):
    generator = np.random.default_rng(0)
    drawn = pd.Series([values[at] for at in generator.integers(0, 3, 300)], dtype=object)
    frame = pd.DataFrame({"c": drawn, "x": generator.normal(size=300)})
    given = pl.from_pandas(frame).with_columns(pl.col("c").cast(pl.Categorical)) if polars else frame
    columns = "from_dtype" if polars else [0]
    source = ensemble.HistGradientBoostingClassifier(max_iter=10, categorical_features=columns)
    source.fit(given, drawn.isna().to_numpy())
    net = windtunnel.compile(source)
    assert source.score(given, drawn.isna().to_numpy()) > 0.99
    np.testing.assert_allclose(net.predict_proba(given), source.predict_proba(given), rtol=1e-9)
    np.testing.assert_allclose(net.predict_proba(given[:1]), source.predict_proba(given[:1]), rtol=1e-9)


def test_categories_of_texts_and_numbers_have_no_codes_in_an_array():
    generator = np.random.default_rng(0)
    mixed = np.array([1, "1", "b"], dtype=object)[generator.integers(0, 3, 300)]
    frame = pd.DataFrame({"a": generator.normal(size=300), "c": pd.Categorical(mixed, categories=[1, "1", "b"])})
    source = lgb.LGBMClassifier(n_estimators=5, verbosity=-1).fit(frame, mixed == "b")
    with pytest.raises(BadInput, match="category codes"):
        windtunnel.compile(source).predict(np.column_stack([frame["a"], frame["c"].cat.codes]))


def test_none_beside_nan_among_categories_is_named():
    frame = pd.DataFrame({"c": pd.Series(["x", None, np.nan] * 40, dtype=object)})
    source = ensemble.HistGradientBoostingClassifier(max_iter=3, categorical_features=[0]).fit(
        frame, np.arange(120) % 2
    )
    with pytest.raises(UnsupportedEstimator, match="None beside NaN"):
        windtunnel.compile(source)
