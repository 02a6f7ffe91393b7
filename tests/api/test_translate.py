"""Every pipeline of the table, translated: the source is the oracle of scores, labels and methods."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import category_encoders as ce
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from case import NUMBERS, Case, quick, table, targets
from cases import CASES, LONG_RUN, estimators, parametrized
from catboost import CatBoostClassifier
from lightgbm import Booster, LGBMClassifier, LGBMRegressor
from module_cases import MODULE_CASES
from parity import assert_case, assert_same, compiled, reindexed_rows, source_output, translated
from scipy import sparse
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
from xgboost import XGBClassifier

import windtunnel
from windtunnel import FactorizationMachineClassifier, RareCategories, TwoHotEncoder
from windtunnel.errors import InvalidOption, UnsupportedEstimator
from windtunnel.modules.base import Module
from windtunnel.modules.trees.soft.trees import SoftSplits, SoftTrees
from windtunnel.testing import fingerprint
from windtunnel.translators.scikit_learn_version import scikit_learn_before

TREES = [case for case in CASES.values() if "trees" in case.id or "booster" in case.id]
FLOAT32 = [case for case in CASES.values() if LONG_RUN or case in TREES or case.id in MODULE_CASES]
"""Every module at least once, and all trees, whose thresholds float32 rounds; the whole table is for long runs."""


@pytest.mark.whole_table
def test_every_supported_class_has_a_case() -> None:
    covered = {type(estimator) for case in CASES.values() for estimator in estimators(case.fitted())}
    missing = sorted(entry.estimator.__name__ for entry in windtunnel.supported() if entry.estimator not in covered)
    assert not missing, f"no case in tests/families for {missing}"


@parametrized()
def test_parity(case: Case, tmp_path: Path) -> None:
    """Float64: all rows, one row, rows with one column shifted, and the file."""
    source, rows, net = case.fitted(), reindexed_rows(case), compiled(case.id)
    state, before = fingerprint(source), copy.deepcopy(rows)
    assert [host.name for host in net.hosts] == [*case.hosts]
    assert_case(case, net)
    if case.one_row:
        assert_same(case, net, source, case.rows()[:1])
    if isinstance(rows, pd.DataFrame) and hasattr(source, "transform"):
        assert_columns_are_wired(net, source, case.rows(50))
    assert_saved(net, case, tmp_path / "net")
    assert fingerprint(source) == state
    assert pd.DataFrame(rows).equals(pd.DataFrame(before))


@parametrized(*FLOAT32)
def test_parity_in_float32(case: Case, tmp_path: Path) -> None:
    net = windtunnel.compile(case.fitted(), dtype=torch.float32)
    assert_case(case, net)
    assert_saved(net, case, tmp_path / "net")


def assert_columns_are_wired(net: windtunnel.Translation, source: Any, rows: pd.DataFrame) -> None:
    """A change of one raw column changes the same columns of ``transform`` in both."""
    expected, output = source_output(source, "transform", rows), net.transform(rows)
    for column in range(rows.shape[1]):
        shifted = rows.copy()
        values = shifted.iloc[:, column]
        shifted.isetitem(column, pd.Series(np.roll(values, 1), index=values.index).astype(values.dtype))
        wanted = changed_columns(expected, source_output(source, "transform", shifted))
        assert changed_columns(output, net.transform(shifted)) == wanted, column


def changed_columns(before: np.ndarray, after: np.ndarray) -> list[int]:
    return np.flatnonzero(~((before == after) | (np.isnan(before) & np.isnan(after))).all(axis=0)).tolist()


def assert_saved(net: windtunnel.Translation, case: Case, path: Path) -> None:
    """A loaded net gives the same bits."""
    rows = case.rows()
    net.save(path)
    loaded = windtunnel.load(path, host=case.fitted() if net.hosts else None)
    assert loaded.head.methods == net.head.methods
    torch.testing.assert_close(loaded.scores(rows), net.scores(rows), rtol=0, atol=0, equal_nan=True)
    for method in net.program.method_steps:
        for before, after in zip(getattr(net, method)(rows), getattr(loaded, method)(rows), strict=True):
            np.testing.assert_array_equal(after, before)


@pytest.mark.filterwarnings("ignore:the source has monotonic_cst:UserWarning")
@parametrized()
def test_warm_start_and_gradients(case: Case) -> None:
    """The initial weights keep the predictions of the source, and every trainable parameter gets a gradient."""
    inside = {type(part) for part in estimators(case.fitted()) if hasattr(part, "predict")}
    if any(entry.estimator in inside and not entry.differentiable for entry in windtunnel.supported()):
        with pytest.raises(UnsupportedEstimator, match="has no differentiable form"):
            translated(case.id)
        return
    net, (X, _) = translated(case.id), case.train()
    assert net.fidelity.rows == len(X)
    assert net.fidelity.r2 >= case.softens
    softened = any(type(step.module).soft is not Module.soft for step in compiled(case.id).program.steps)
    soft_trees = any(isinstance(step.module, SoftSplits) for step in net.program.steps)
    if not (softened or soft_trees or net.hosts):
        near = replace(case, tolerance=max(case.tolerance, 1e-6))  # a row has no distance from itself, but for rounding
        assert_same(near, net, case.fitted(), X)
    assert_gradients(copy.deepcopy(net), case.rows())


def assert_gradients(net: windtunnel.Translation, rows: Any) -> None:
    trainable = {name: one for name, one in net.named_parameters() if one.requires_grad and one.numel()}
    if not trainable:
        assert not any(parameter.numel() for parameter in net.parameters())
        return
    net.train()
    scores = net(*net.encode(rows))
    scores[scores.isfinite()].sum().backward()
    assert not [name for name, one in trainable.items() if one.grad is None or not one.grad.isfinite().all()]


DECIMALS = {"breast cancer": load_breast_cancer, "wine": load_wine, "iris": load_iris}
SCALERS = [
    FunctionTransformer(),
    StandardScaler(),
    MinMaxScaler(),
    RobustScaler(),
    MaxAbsScaler(),
    QuantileTransformer(n_quantiles=20),
]
BOOSTERS = [
    LGBMClassifier(n_estimators=20, verbose=-1),
    XGBClassifier(n_estimators=20),
    CatBoostClassifier(iterations=20, verbose=0, allow_writing_files=False),
    RandomForestClassifier(20, random_state=0),
    HistGradientBoostingClassifier(max_iter=20),
]


@pytest.mark.parametrize("name", DECIMALS)
def test_trees_decide_rows_of_decimals_as_the_source(name: str) -> None:
    """Thresholds lie midway between decimals, so that rounding to float32 would move rows to another branch."""
    X, y = DECIMALS[name](return_X_y=True, as_frame=True)
    train, rows = X[::2].copy(), X[1::2]
    train.iloc[::7, 0] = np.nan
    for scaler, booster in product(SCALERS, BOOSTERS):
        source = make_pipeline(SimpleImputer(), scaler, booster).fit(train, y[::2])
        net = windtunnel.translate(source)
        np.testing.assert_allclose(net.predict_proba(rows), source.predict_proba(rows), rtol=1e-6, atol=1e-6)
        np.testing.assert_array_equal(net.predict(rows).ravel(), source.predict(rows).ravel())


def test_encoded_rows_of_float32_are_accepted() -> None:
    X, y = load_iris(return_X_y=True)
    net = windtunnel.translate(make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y))
    numbers, ids = net.encode(X)
    with torch.no_grad():
        torch.testing.assert_close(net(numbers.float(), ids), net(numbers, ids), rtol=1e-5, atol=1e-5)


REAL = {"n_estimators": 50, "num_leaves": 31}
"""Small models have so many ties that any softness, which breaks them, moves the AUC."""
SOFT: dict[str, Case] = {
    case.id: case
    for case in (
        Case("labels", lambda: make_pipeline(RareCategories(), TwoHotEncoder(), quick(**REAL)), missing=True),
        Case("imputed", lambda: make_pipeline(SimpleImputer(), StandardScaler(), quick(**REAL)), NUMBERS, missing=True),
        Case("classes", lambda: make_pipeline(ce.OrdinalEncoder(), quick(**REAL)), target="grade", missing=True),
        Case("values", lambda: make_pipeline(ce.TargetEncoder(), quick(LGBMRegressor, **REAL)), target="value"),
        Case("counts", lambda: make_pipeline(TwoHotEncoder(), quick(LGBMRegressor, objective="poisson", **REAL)),
             target="count", missing=True),
        Case("categories", lambda: quick(LGBMRegressor, **REAL), (*NUMBERS, "plan"), "value", missing=True),
        Case("dart", lambda: quick(boosting_type="dart", random_state=0, **REAL), NUMBERS, missing=True),
    )
}  # fmt: skip


@pytest.mark.parametrize("name", SOFT)
def test_soft_trees_score_the_metric_of_the_source(name: str) -> None:
    case, frame = SOFT[name], table(2000, missing=SOFT[name].missing)
    X, y = frame[list(case.columns)], targets(frame)[case.target]
    source = case.make().fit(X, y)
    net = windtunnel.translate(source, calibrate=X).soften()
    if hasattr(source, "predict_proba"):
        want, got = (one.predict_proba(X) for one in (source, net))
        scores = [roc_auc_score(y == label, one[:, at]) for one in (want, got) for at, label in enumerate(net.classes_)]
        want, got = scores[: len(scores) // 2], scores[len(scores) // 2 :]
    else:
        want, got = (r2_score(y, one.predict(X)) for one in (source, net))
    assert got == pytest.approx(want, abs=1e-3)


FORMS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "reordered": lambda frame: frame[frame.columns[::-1]],
    "with more columns": lambda frame: frame.assign(more="x")[["more", *frame.columns]],
    "texts as objects": lambda frame: frame.astype(object),
    "categories": lambda frame: frame.astype({name: "category" for name in frame if name not in NUMBERS}),
    "Arrow table": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
    "Arrow record batch": lambda frame: pa.RecordBatch.from_pandas(frame, preserve_index=False),
    "Arrow types": lambda frame: pa.Table.from_pandas(frame, preserve_index=False).to_pandas(
        types_mapper=pd.ArrowDtype
    ),
    "nullable types": lambda frame: frame.convert_dtypes(),
    "dict of series": lambda frame: dict(frame.items()),
    "dict of lists": lambda frame: {name: column.tolist() for name, column in frame.items()},
    "array": lambda frame: frame.to_numpy(),
    "lists": lambda frame: frame.to_numpy().tolist(),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "name", ["rare, two-hot in columns", "trees over pandas categories", "ordinal alone", "ce hashing", "trees alone"]
)
def test_rows_of_any_form(name: str, form: str) -> None:
    case = CASES[name]
    rows = case.rows(60)
    assert_same(case, compiled(name), case.fitted(), FORMS[form](rows), rows)


@pytest.mark.skipif(scikit_learn_before("1.9"), reason="older ones do not select columns of polars 2")
@pytest.mark.parametrize("kind", ["String", "Categorical"])
@pytest.mark.parametrize("missing", [None, np.nan, "kept"])
def test_missing_texts_of_polars_are_none_as_the_source_takes_them(missing: Any, kind: str) -> None:
    polars = pytest.importorskip("polars")
    random = np.random.default_rng(0)
    city, age = random.choice(["a", "b", "c", None], 200), random.normal(size=200)
    rows = polars.DataFrame({"city": city.tolist(), "age": [None if one < -1 else one for one in age]})
    rows = rows.with_columns(polars.col("city").cast(getattr(polars, kind)))
    fill = SimpleImputer(missing_values=missing, strategy="constant", fill_value="a") if missing != "kept" else None
    encoded = make_pipeline(fill, OneHotEncoder(handle_unknown="ignore"))
    columns = make_column_transformer((encoded, ["city"]), (SimpleImputer(), ["age"]))
    source = make_pipeline(columns, LogisticRegression()).fit(rows, (city == "b") | (age > 1) | pd.isna(city))
    net = windtunnel.translate(source, calibrate=rows)  # a warning would be an error
    assert net.fidelity.r2 > 0.999999
    for one in (net, windtunnel.compile(source)):
        np.testing.assert_allclose(one.predict_proba(rows), source.predict_proba(rows), atol=1e-6)


@pytest.mark.parametrize(
    "form",
    [pd.DataFrame, np.ndarray.tolist, torch.from_numpy, sparse.csr_array, np.asfortranarray],
    ids=["frame", "lists", "tensor", "sparse", "Fortran"],
)
def test_rows_of_any_form_for_a_pipeline_fitted_on_an_array(form: Callable[[np.ndarray], Any]) -> None:
    case = CASES["scaler fitted on an array"]
    rows = case.rows()
    assert_same(case, compiled(case.id), case.fitted(), form(rows), rows)


TABLES: dict[str, Callable[[pd.DataFrame], Any]] = {
    "polars": lambda rows: pytest.importorskip("polars").from_pandas(rows),
    "Arrow": pa.Table.from_pandas,
    "array": lambda rows: rows.to_numpy(dtype=object),
    "dict of lists": lambda rows: rows.to_dict("list"),
    "list of dicts": lambda rows: rows.to_dict("records"),
    "list of a dict": lambda rows: rows[:1].to_dict("records"),
}


@pytest.mark.parametrize("form", TABLES)
def test_rows_of_any_form_for_a_pipeline_fitted_on_a_table(form: str) -> None:
    random = np.random.default_rng(0)
    rows = pd.DataFrame({"age": random.normal(size=90), "city": pd.Series(random.choice(["a", "b"], 90), dtype=object)})
    rows.loc[:4, "age"] = np.nan
    columns = make_column_transformer((OneHotEncoder(), ["city"]), (SimpleImputer(add_indicator=True), ["age"]))
    source = make_pipeline(columns, LogisticRegression()).fit(rows, rows["city"] == "a")
    net, given = windtunnel.compile(source), TABLES[form](rows)
    expected = source.predict_proba(rows)[: 1 if form == "list of a dict" else None]
    np.testing.assert_allclose(net.predict_proba(given), expected, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "float32", "longdouble", ">f8", ">i4", "int8", "bool"])
@pytest.mark.parametrize("model", [StandardScaler(), XGBClassifier(n_estimators=3)], ids=["scaler", "xgboost"])
def test_numbers_of_any_dtype_count_as_their_values(model: Any, dtype: str) -> None:
    X = np.random.default_rng(0).normal(size=(100, 3)) * 10
    source = model.fit(X, X[:, 0] > 0)
    net, rows = windtunnel.compile(source), X.astype(dtype)
    method = "transform" if hasattr(source, "transform") else "predict_proba"
    expected = getattr(source, method)(rows.astype("=f8"))
    for given in (rows, pd.DataFrame(rows)):
        np.testing.assert_allclose(getattr(net, method)(given), expected, atol=1e-6)


def test_names_with_blanks_as_lightgbm_writes_them() -> None:
    frame = table()[list(NUMBERS)].rename(columns={"age": "age in years"})
    fitted = LGBMClassifier(n_estimators=3, verbosity=-1).fit(frame, targets(table())["label"])
    net = windtunnel.compile(fitted)
    np.testing.assert_allclose(net.predict_proba(frame[frame.columns[::-1]]), fitted.predict_proba(frame), rtol=1e-5)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))], ids=["copy", "pickle"])
@pytest.mark.parametrize("name", ["selections of every kind", "rare, hashing", "booster", "ordinal, one-hot"])
def test_a_copy_scores_the_same(name: str, again: Callable[[Any], Any]) -> None:
    net, rows = translated(name), CASES[name].rows()
    other = again(net)
    assert torch.equal(other.scores(rows), net.scores(rows))
    for parameter in other.parameters():
        parameter.data.zero_()
    assert any(parameter.any() for parameter in net.parameters())


def soft(net: windtunnel.Translation) -> list[SoftTrees]:
    return [step.module for step in net.program.steps if isinstance(step.module, SoftTrees)]


def test_levels() -> None:
    case = CASES["rare, two-hot, trees"]
    trained = {}
    for level in ("L0", "L1", "L2", "L3", "L4"):
        net = windtunnel.translate(case.fitted(), level=level).soften()
        trained[level] = {name for name, one in soft(net)[0].named_parameters() if one.requires_grad and one.numel()}
    assert trained["L0"] == set() and "leaf_value" in trained["L1"] and "threshold" in trained["L2"] - trained["L1"]
    assert all(trained[f"L{depth}"] < trained[f"L{depth + 1}"] for depth in range(4))


def test_levels_by_step() -> None:
    fitted = CASES["nested pipelines and steps that pass"].fitted()
    net = windtunnel.translate(fitted, level={"model.last": "L2"}).soften()
    assert soft(net)[0].level == "L2"
    with pytest.raises(InvalidOption, match=r"steps without trees: 'model.lost'; .* 'model.last'. Did you mean 'mod"):
        windtunnel.translate(fitted, level={"model.lost": "L2"})


def test_a_bare_estimator_is_a_step_by_its_class() -> None:
    net = windtunnel.translate(CASES["trees alone"].fitted(), level={"LGBMClassifier": "L1"}).soften()
    assert soft(net)[0].level == "L1" and [origin.name for origin in net.origins] == ["LGBMClassifier"]


def test_cold_start_keeps_the_architecture() -> None:
    case = CASES["rare, two-hot, trees"]
    warm, cold = (windtunnel.translate(case.fitted(), start=start).soften() for start in ("warm", "cold"))
    facts = {name: value for name, value in warm.named_buffers()}
    assert all(torch.equal(value, facts[name]) for name, value in cold.named_buffers())
    assert [one.shape for one in cold.parameters()] == [one.shape for one in warm.parameters()]
    rows = case.rows()
    assert np.isfinite(cold.predict_proba(rows)).all()
    assert not np.allclose(cold.predict_proba(rows), warm.predict_proba(rows), atol=1e-2)
    assert torch.equal(cold.scores(rows), windtunnel.translate(case.fitted(), start="cold").scores(rows))


@pytest.mark.parametrize("model", [LogisticRegression(), FactorizationMachineClassifier(epochs=1, random_state=0)])
def test_cold_start_redraws_linear_weights_and_factors(model: Any) -> None:
    rows = np.random.default_rng(0).normal(size=(200, 3))
    source = make_pipeline(StandardScaler(), model).fit(rows, (rows[:, 0] > 0).astype(int))
    warm, cold = (dict(windtunnel.translate(source, start=start).named_parameters()) for start in ("warm", "cold"))
    redrawn = {name.rpartition(".")[2] for name in warm if not torch.equal(warm[name], cold[name])}
    assert redrawn == ({"weight", "factors"} if len(warm) > 4 else {"weight"})
    assert all(cold[name].std() < 3 * warm[name].std() for name in warm if name.endswith(("weight", "factors")))


def test_one_temperature_for_all() -> None:
    fitted = CASES["trees alone"].fitted()
    for temperature in (1, 0.25):
        (trees,) = soft(windtunnel.translate(fitted, temperature=temperature).soften())
        assert (trees.slope[trees.node_mask > 0] == 1 / temperature).all()
        assert (trees.leaf_slope[trees.leaf_mask > 0] == 1 / temperature).all()


@pytest.mark.whole_table
def test_compiled_has_nothing_to_train() -> None:
    assert all(not any(one.requires_grad for one in compiled(name).parameters()) for name in CASES)


def test_it_stays_in_the_mode_it_was_in() -> None:
    net, rows = copy.deepcopy(translated("trees alone")), CASES["trees alone"].rows()
    assert not net.training
    net.train()
    net.program.steps[0].eval()
    net.predict(rows)
    assert net.training and net.program.training and not net.program.steps[0].training


@pytest.mark.whole_table
def test_the_sources_of_trees_are_all_there() -> None:
    kinds = {type(estimator) for case in TREES for estimator in estimators(case.fitted())}
    assert {Booster, LGBMClassifier, LGBMRegressor} <= kinds
