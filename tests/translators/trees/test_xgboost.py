"""XGBoost: base scores, sparse rows and unknown categories, on which its trees go astray without a word."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
import xgboost as xgb
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction import DictVectorizer, FeatureHasher
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.feature_selection import SelectKBest
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    Normalizer,
    OneHotEncoder,
    QuantileTransformer,
    SplineTransformer,
    StandardScaler,
)

import windtunnel
from tests.support.tree_rows import categorical_rows, rows, values
from windtunnel.errors import BadInput, UnsupportedEstimator

SMALL = {"n_estimators": 6, "max_depth": 3, "n_jobs": 1}


@pytest.mark.parametrize("share", [None, 0.0, 1e-7, 0.3, 1 - 1e-7, 1.0], ids=str)
@pytest.mark.parametrize(
    "make",
    [
        xgb.XGBClassifier,
        xgb.XGBRFClassifier,
        lambda **options: xgb.XGBRegressor(objective="reg:logistic", **options),
        lambda **options: xgb.XGBRegressor(objective="binary:logistic", **options),
    ],
    ids=["classifier", "forest", "shares", "probabilities"],
)
def test_xgboost_holds_the_share_that_it_starts_from(make, share):
    x = rows()
    # Leaves near 0, behind which the start shows to the last digit.
    source = make(base_score=share, min_child_weight=0, reg_lambda=1e3, **SMALL)
    source.fit(x, (values(x) > 0).astype(int) if share is not None else np.zeros(len(x)))
    net = windtunnel.compile(source)
    np.testing.assert_allclose(net.scores(x)[:, 0].numpy(), source.predict(x, output_margin=True), 1e-5)
    np.testing.assert_allclose(net.predict(x), source.predict(x), 1e-5)
    if hasattr(source, "predict_proba"):
        # The source takes 1 - p in float32.
        np.testing.assert_allclose(net.predict_proba(x), source.predict_proba(x), 1e-5, np.finfo(np.float32).eps)


@pytest.mark.parametrize("options", [{"booster": "gbtree"}, {"booster": "dart", "rate_drop": 0.3}], ids=str)
def test_pruned_nodes_that_xgboost_keeps(options):
    X = np.random.default_rng(3).normal(size=(400, 4))
    y = X[:, 0] + np.sin(3 * X[:, 1])
    source = xgb.XGBRegressor(**SMALL, gamma=3.0, tree_method="exact", **options).fit(X, y)
    assert re.search(r'"num_deleted":"[1-9]', source.get_booster().save_raw("json").decode())
    for net in (windtunnel.compile(source), windtunnel.translate(source)):
        np.testing.assert_allclose(net.predict(X), source.predict(X), rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(windtunnel.compile(source).apply(X), source.apply(X))


def test_counts_that_are_all_zero():
    x = rows()
    source = xgb.XGBRegressor(objective="count:poisson", **SMALL).fit(x, np.zeros(len(x)))
    net = windtunnel.compile(source)
    np.testing.assert_array_equal(net.scores(x)[:, 0].numpy(), source.predict(x, output_margin=True))
    np.testing.assert_array_equal(net.predict(x), source.predict(x))


def test_a_booster_of_xgboost_is_told_how_to_be_loaded(tmp_path):
    x = rows()
    booster = xgb.train({"objective": "binary:logistic"}, xgb.DMatrix(x, values(x) > 0), 3)
    with pytest.raises(UnsupportedEstimator, match="XGBClassifier.*load_model"):
        windtunnel.compile(booster)
    booster.save_model(tmp_path / "booster.json")
    source = xgb.XGBClassifier()
    source.load_model(tmp_path / "booster.json")
    np.testing.assert_allclose(
        windtunnel.compile(source).predict_proba(x)[:, 1], booster.predict(xgb.DMatrix(x)), rtol=1e-6
    )


@pytest.mark.parametrize("text", [False, True])
def test_an_unknown_category_of_xgboost(text):
    X, y = categorical_rows()
    known, new = X["code"].astype(int), pd.Series([7, 800])
    X["code"], new = ((one.astype(str) if text else one).astype("category") for one in (known, new))
    source = xgb.XGBClassifier(enable_categorical=True, **SMALL).fit(X, y)
    net, rows = windtunnel.compile(source), X[:2].assign(code=new)
    with pytest.raises(xgb.core.XGBoostError, match="category not in the training set"):
        source.predict(rows)
    between = rows.assign(code=rows["code"].cat.rename_categories({new[1]: type(new[1])(50)}))
    for unknown in (rows, between):  # XGBoost 3.2 takes 50 for 100
        with pytest.raises(BadInput, match="'code' holds categories that were not there.* such as XGBoost, make them"):
            net.predict(unknown)
    missing = rows.assign(code=pd.Categorical([None, None], X["code"].cat.categories))
    np.testing.assert_allclose(net.predict_proba(missing), source.predict_proba(missing), rtol=1e-6)


def test_values_on_thresholds_of_xgboost_behind_a_scaler_in_float32():
    rng = np.random.default_rng(3)
    x = np.c_[rng.integers(0, 10, 3_000), rng.normal(size=3_000)].astype(float)
    source = make_pipeline(StandardScaler(), xgb.XGBClassifier(**SMALL)).fit(x, x[:, 0] + 0.5 * x[:, 1] > 4)
    net = windtunnel.compile(source, dtype="float32")
    np.testing.assert_allclose(net.predict_proba(x), source.predict_proba(x), rtol=1e-5, atol=1e-6)


def sparse_rows():
    S = sparse.random(300, 4, 0.3, random_state=0, format="csr")
    return S, np.asarray(S[:, [0]].todense()).ravel() > 0, pd.DataFrame.sparse.from_spmatrix(S)


KEEPS_SPARSE = {
    "scaler": (MaxAbsScaler(),),
    "scalers": (MaxAbsScaler(), StandardScaler(with_mean=False)),
    "normalizer": (Normalizer(),),
    "selection": (SelectKBest(k=2),),
    "function": (FunctionTransformer(np.sqrt),),
}


@pytest.mark.parametrize("name", KEEPS_SPARSE)
def test_sparse_rows_on_their_way_to_xgboost_are_rejected(name, tmp_path):
    S, y, frame = sparse_rows()
    source = make_pipeline(*KEEPS_SPARSE[name], xgb.XGBClassifier(**SMALL)).fit(S, y)
    # To the source the zeros of the same rows are missing or not.
    assert not np.allclose(source.predict_proba(S), source.predict_proba(S.toarray()))
    net = windtunnel.compile(source)
    np.testing.assert_allclose(net.predict_proba(S.toarray()), source.predict_proba(S.toarray()), rtol=1e-6)
    net.save(tmp_path / "net")
    for one in (net, windtunnel.load(tmp_path / "net")):
        for given, what in ((S, "sparse matrix"), (frame, "table of sparse columns"), (frame[:2], "table of sparse")):
            with pytest.raises(
                BadInput, match=f"got a {what}.*, whose zeros a step of the source tells from those that are left out"
            ):
                one.predict(given)


@pytest.mark.parametrize("booster", ["gbtree", "dart", "gblinear"])
@pytest.mark.parametrize("backend", ["torch", "native"])
def test_what_a_sparse_matrix_leaves_out_is_missing_to_xgboost_alone(booster, backend, tmp_path):
    S, y, _ = sparse_rows()
    S.data[:60:2], S.data[1:60:2] = 0, np.nan  # stored: zeros, which are numbers, and missing values
    source = xgb.XGBClassifier(n_estimators=6, n_jobs=1, booster=booster).fit(S, y)
    expected, dense = source.predict_proba(S), source.predict_proba(S.toarray())
    assert (booster == "gblinear") == np.allclose(expected, dense)
    net = windtunnel.compile(source, backend=backend)
    net.save(tmp_path / "net")
    for one in (net, windtunnel.load(tmp_path / "net"), windtunnel.translate(source)):
        for given in (S, S.tocsc(), sparse.csr_array(S), S[:1]):
            np.testing.assert_allclose(one.predict_proba(given), expected[: given.shape[0]], rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(one.predict_proba(S.toarray()), dense, rtol=1e-6, atol=1e-7)
        assert torch.isnan(one.encode(S).numbers).sum() == S.shape[0] * S.shape[1] - np.isfinite(S.data).sum()


def test_sparse_rows_before_categories_of_xgboost_are_rejected():
    S, y, frame = sparse_rows()
    table = frame.sparse.to_dense().set_axis(list("abcd"), axis=1).assign(d=pd.Categorical(y.astype(int)))
    source = xgb.XGBClassifier(**SMALL, enable_categorical=True).fit(table, y)
    with pytest.raises(BadInput, match="sparse matrix"):
        windtunnel.compile(source).predict(S)


def scaled_columns(threshold):
    return make_column_transformer((MaxAbsScaler(), [0, 1]), remainder="passthrough", sparse_threshold=threshold)


@pytest.mark.parametrize(
    "steps",
    [(scaled_columns(0),), (scaled_columns(1),), (MaxAbsScaler(), TruncatedSVD(2))],
    ids=["dense columns", "sparse columns", "made dense"],
)
def test_sparse_rows_that_xgboost_gets_in_one_form(steps):
    S, y, _ = sparse_rows()
    source = make_pipeline(*steps, xgb.XGBClassifier(**SMALL)).fit(S, y)
    np.testing.assert_allclose(windtunnel.compile(source).predict_proba(S), source.predict_proba(S), rtol=1e-5)


def test_splines_as_a_sparse_matrix_before_xgboost():
    x = np.random.default_rng(0).integers(0, 5, (200, 3)).astype(float)  # on the knots
    for sparse_output in (False, True):
        splines = make_column_transformer((SplineTransformer(sparse_output=sparse_output), [0, 1]), sparse_threshold=1)
        source = make_pipeline(splines, xgb.XGBRegressor(**SMALL)).fit(x, values(x))
        held = source[0].transform(x)
        if sparse_output:
            # A stored zero is 0 to XGBoost, one that is left out is missing: the values do not tell which.
            assert (held.data == 0).any()
            with pytest.raises(UnsupportedEstimator, match="'columntransformer.*'.*sparse_output=False"):
                windtunnel.compile(source)
        else:
            np.testing.assert_allclose(windtunnel.compile(source).predict(x), source.predict(x), rtol=1e-5)


def test_dense_rows_that_become_sparse_before_xgboost():
    x = rows(missing=0.4)
    steps = (MissingIndicator(sparse=True), MaxAbsScaler())
    source = make_pipeline(*steps, xgb.XGBRegressor(**SMALL)).fit(x, np.isnan(x) @ np.array([1.0, 2, 4]))
    np.testing.assert_allclose(windtunnel.compile(source).predict(x), source.predict(x), rtol=1e-5)


def test_tables_of_sparse_columns_before_xgboost_alone():
    _, y, frame = sparse_rows()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # XGBoost makes them dense
        source = xgb.XGBClassifier(**SMALL).fit(frame, y)
        np.testing.assert_allclose(
            windtunnel.compile(source).predict_proba(frame), source.predict_proba(frame), rtol=1e-6
        )


@pytest.mark.parametrize("options", [{}, {"num_parallel_tree": 2}, {"early_stopping_rounds": 1}], ids=str)
def test_the_leaf_of_one_round_of_xgboost(options):
    x = rows(missing=0.1)
    source = xgb.XGBRegressor(**SMALL | {"n_estimators": 1} | options)
    source.fit(x, values(x), eval_set=[(x, values(x))] if "early_stopping_rounds" in options else None, verbose=False)
    got, want = windtunnel.compile(source).apply(x), source.apply(x)
    assert got.shape == want.shape
    np.testing.assert_array_equal(got, want)


def mixed_rows():
    generator = np.random.default_rng(1)
    frame = pd.DataFrame({"s": generator.choice(list("abcd"), 300), "f": generator.random(300).round(1)})
    frame.loc[::3, "f"] = np.nan
    return frame


def texts():
    words = np.random.default_rng(1).choice([f"w{number}" for number in range(40)], (300, 6))
    return [" ".join(row) for row in words]


def sparse_columns(**options):
    steps = [("o", OneHotEncoder(), ["s"]), ("p", "passthrough", ["f"])]
    return ColumnTransformer(steps, sparse_threshold=1.0, **options)


STORES_ZEROS = {
    "imputer": (lambda: (sparse_columns(), SimpleImputer(strategy="constant", fill_value=0)), mixed_rows),
    "weight of 0": (lambda: (sparse_columns(transformer_weights={"o": 0.0}),), mixed_rows),
    "quantiles": (lambda: (sparse_columns(), SimpleImputer(), QuantileTransformer(n_quantiles=9)), mixed_rows),
    "signed hashes": (lambda: (HashingVectorizer(n_features=16),), texts),
    "dicts": (lambda: (DictVectorizer(),), lambda: [{"a": at % 3, "b": 1.0} for at in range(300)]),
    "hashed dicts": (lambda: (FeatureHasher(8),), lambda: [{f"w{at % 7}": 1.0, "b": 0.0} for at in range(300)]),
}


@pytest.mark.parametrize("name", STORES_ZEROS)
def test_matrices_that_may_store_zeros_are_rejected_before_xgboost(name):
    steps, make_rows = STORES_ZEROS[name]
    source = make_pipeline(*steps(), xgb.XGBClassifier(**SMALL)).fit(make_rows(), np.arange(300) % 2)
    with pytest.raises(UnsupportedEstimator, match="may store some zeros and leave out others"):
        windtunnel.compile(source)


def test_hashes_without_signs_store_no_zeros():
    steps = HashingVectorizer(n_features=16, alternate_sign=False), xgb.XGBClassifier(**SMALL)
    source = make_pipeline(*steps).fit(texts(), np.arange(300) % 2)
    np.testing.assert_allclose(windtunnel.compile(source).predict_proba(texts()), source.predict_proba(texts()), 1e-5)


class WordCounts(TransformerMixin, BaseEstimator):
    """A step of a user that returns a sparse matrix."""

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return sparse.csr_matrix([[text.count(word) for word in ("w1", "w2", "w3")] for text in X], dtype=float)

    def get_feature_names_out(self, names=None):
        return np.array(["w1", "w2", "w3"], dtype=object)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        return tags


def test_a_sparse_matrix_of_a_step_on_the_host_is_rejected_before_xgboost_alone():
    y = np.arange(300) % 2
    source = make_pipeline(WordCounts(), xgb.XGBClassifier(**SMALL)).fit(texts(), y)
    with pytest.raises(UnsupportedEstimator, match="the sparse matrix of step 'wordcounts', which may store"):
        windtunnel.compile(source)
    dense = make_pipeline(WordCounts(), TruncatedSVD(2, random_state=0), xgb.XGBClassifier(**SMALL)).fit(texts(), y)
    np.testing.assert_allclose(windtunnel.compile(dense).predict_proba(texts()), dense.predict_proba(texts()), 1e-5)
    rows = pd.DataFrame({"t": texts(), "x": np.random.default_rng(0).normal(size=300)})
    columns = ColumnTransformer([("t", WordCounts(), "t"), ("x", QuantileTransformer(n_quantiles=9), ["x"])])
    columns.set_params(sparse_threshold=0)
    both = make_pipeline(columns, xgb.XGBClassifier(**SMALL)).fit(rows, y)
    np.testing.assert_allclose(windtunnel.compile(both).predict_proba(rows), both.predict_proba(rows), rtol=1e-5)


def test_quantiles_of_a_sparse_matrix_are_computed_by_the_source():
    steps = sparse_columns(), SimpleImputer(), QuantileTransformer(n_quantiles=9, output_distribution="normal")
    rows, y = mixed_rows(), np.arange(300) % 2
    source = make_pipeline(*steps, LogisticRegression()).fit(rows, y)
    np.testing.assert_allclose(windtunnel.compile(source).predict_proba(rows), source.predict_proba(rows), rtol=1e-9)
    matrix = sparse.random(300, 3, 0.3, random_state=0, format="csr")
    normal = QuantileTransformer(n_quantiles=9, output_distribution="normal")
    alone = make_pipeline(normal, LogisticRegression()).fit(matrix, y)
    with pytest.raises(BadInput, match="got a sparse matrix"):
        windtunnel.compile(alone).predict(matrix)
    uniform = make_pipeline(QuantileTransformer(n_quantiles=9), LogisticRegression()).fit(matrix, y)
    np.testing.assert_allclose(windtunnel.compile(uniform).predict_proba(matrix), uniform.predict_proba(matrix), 1e-9)
