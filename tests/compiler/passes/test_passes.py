"""Passes over compiled programs: the source's outputs and rejections, of fewer columns."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import (
    MinMaxScaler,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    StandardScaler,
)
from wide_table import FRAME, LABEL, NUMBERS, TEXTS, bins, few_trees, modules, one_hot, probabilities, table

import windtunnel
from windtunnel.assemble import assemble
from windtunnel.errors import BadInput
from windtunnel.export import serving
from windtunnel.modules.columns.affine import Affine
from windtunnel.modules.columns.bins import Bins
from windtunnel.modules.columns.polynomial import Polynomial
from windtunnel.modules.columns.power import Power
from windtunnel.modules.columns.quantile import QuantileMap
from windtunnel.modules.imputers.imputer import Imputer
from windtunnel.modules.linear.linear import Linear
from windtunnel.modules.linear.projection import Projection
from windtunnel.modules.tables.category_table import CategoryTable, Identity, SumGroups
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.program.records.simplification import Simplification


def sparse_weights(C: float = 0.05) -> LogisticRegression:
    return LogisticRegression(solver="saga", l1_ratio=1.0, C=C, max_iter=300, tol=1e-3)


PIPELINES: dict[str, Callable[[], Any]] = {
    "L1 on one-hot and polynomials": lambda: make_pipeline(
        make_column_transformer(
            (one_hot(), TEXTS), (make_pipeline(StandardScaler(), PolynomialFeatures(2)), NUMBERS)
        ),
        sparse_weights(),
    ),
    "L1 on one-hot and scaled": lambda: make_pipeline(
        make_column_transformer((one_hot(), TEXTS), (StandardScaler(), NUMBERS)), sparse_weights(0.5)
    ),
    "L1 on scaled polynomials": lambda: make_pipeline(
        make_column_transformer((PolynomialFeatures(2, include_bias=False), NUMBERS)),
        StandardScaler(),
        sparse_weights(),
    ),
    "trees on columns as they are": lambda: make_pipeline(
        make_column_transformer((one_hot(), TEXTS), ("passthrough", NUMBERS)), few_trees()
    ),
    "trees on scaled columns": lambda: make_pipeline(
        make_column_transformer((one_hot(), TEXTS), (StandardScaler(), NUMBERS)), few_trees()
    ),
    "forest": lambda: make_pipeline(
        make_column_transformer((one_hot(), TEXTS), ("passthrough", NUMBERS)),
        RandomForestClassifier(3, max_depth=2, random_state=0),
    ),
    "selection after scaler after imputer": lambda: make_pipeline(
        make_column_transformer((make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()), NUMBERS)),
        SelectKBest(k=3),
        LogisticRegression(),
    ),
    "selection after PCA": lambda: make_pipeline(
        make_column_transformer((StandardScaler(), NUMBERS)), PCA(5), SelectKBest(k=2), LogisticRegression()
    ),
    "union with a dead branch": lambda: make_pipeline(
        make_column_transformer(("passthrough", NUMBERS)),
        make_union(
            PolynomialFeatures(2, include_bias=False), bins(encode="onehot-dense"), PowerTransformer(),
            QuantileTransformer(n_quantiles=20), PCA(3),
        ),
        SelectKBest(k=4),
        StandardScaler(),
        LogisticRegression(),
    ),
    "clipped and imputed": lambda: make_pipeline(
        make_column_transformer((make_pipeline(SimpleImputer(), MinMaxScaler(clip=True)), NUMBERS)), sparse_weights()
    ),
    "no weight at all": lambda: make_pipeline(
        make_column_transformer((one_hot(), TEXTS), (StandardScaler(), NUMBERS)), sparse_weights(1e-4)
    ),
    "no weight at all, of texts": lambda: make_pipeline(
        make_column_transformer((one_hot(), TEXTS)), sparse_weights(1e-4)
    ),
}  # fmt: skip


@cache
def fitted(name: str) -> Any:
    frame = FRAME
    if "imputer" in name:
        frame = frame.mask(np.random.default_rng(1).random(frame.shape) < 0.05)
        frame[TEXTS] = FRAME[TEXTS]
    return PIPELINES[name]().fit(frame, LABEL)


@cache
def compiled(name: str) -> windtunnel.Translation:
    return windtunnel.compile(fitted(name))


def found(net: windtunnel.Translation) -> Simplification:
    assert net.records.simplification is not None
    return net.records.simplification


@pytest.mark.parametrize("name", PIPELINES)
def test_outputs_are_those_of_the_source(name: str) -> None:
    source, net = fitted(name), compiled(name)
    rows = table(300, seed=3).assign(c0="never seen")
    np.testing.assert_array_equal(net.predict(rows), source.predict(rows))
    np.testing.assert_allclose(net.predict_proba(rows), probabilities(source, rows), 1e-9, 1e-9)
    np.testing.assert_allclose(net.predict_proba(rows[:1]), probabilities(source, rows[:1]), 1e-9, 1e-9)


@pytest.mark.parametrize("name", PIPELINES)
def test_what_the_source_rejects_is_rejected_and_nothing_else(name: str) -> None:
    source, net = fitted(name), compiled(name)
    unread = found(net).unread
    for column in [*NUMBERS, *TEXTS]:
        for odd in (np.nan, np.inf, 1e39) if column in NUMBERS else (None,):
            rows = table(3, seed=4)
            rows.loc[1, column] = odd
            want, got = probabilities(source, rows), probabilities(net, rows)
            assert (want is None) == (got is None), (column, odd)
            assert want is not None or repr(column) not in unread, (column, odd)
            if want is not None and got is not None:
                np.testing.assert_allclose(got, want, 1e-9, 1e-9, err_msg=f"{column} {odd}")


@pytest.mark.parametrize("name", PIPELINES)
def test_less_is_computed(name: str) -> None:
    before = assemble(fitted(name), dtype=torch.float64, exact=True)
    values = [
        torch.zeros(2, len(before.encoder.numbers)).double(),
        torch.zeros(2, len(before.encoder.categories)).long(),
    ]
    for step in before.program.steps:
        values.append(step(values))
    assert found(compiled(name)).of_columns == sum(value.shape[1] for value in values[2:])
    assert found(compiled(name)).columns < found(compiled(name)).of_columns


def weights(name: str) -> np.ndarray:
    return fitted(name)[-1].coef_[0]


def test_weights_of_zero_narrow_what_comes_before_them() -> None:
    name = "L1 on one-hot and polynomials"
    net, weight = compiled(name), weights(name)
    assert np.count_nonzero(weight) < len(NUMBERS) < len(weight) / 4
    (last,) = (module for module in modules(net) if isinstance(module, Linear))
    # A column for each raw number at most, whose NaN the source rejects, stands there without a weight.
    assert last.weight.shape[1] <= np.count_nonzero(weight) + len(NUMBERS)
    (products,) = (module for module in modules(net) if isinstance(module, Polynomial))
    assert len(products.factors) == last.weight.shape[1]
    names = fitted(name)[0].get_feature_names_out()
    kept = {one.split("__")[-1].rsplit("_", 1)[0] for one, some in zip(names, weight, strict=True) if some}
    unread = set(found(net).unread)
    assert unread == {repr(text) for text in TEXTS if text not in kept} and unread


def test_a_scaler_behind_products_does_not_keep_them() -> None:
    name = "L1 on scaled polynomials"
    products, last = modules(compiled(name))
    # The scaler rejects infinite products, whose factors the products reject anyway.
    assert isinstance(last, Projection) and len(products.factors) <= np.count_nonzero(weights(name)) + len(NUMBERS)
    assert len(products.factors) < fitted(name)[1].n_features_in_ / 2


@pytest.mark.parametrize("name", ["trees on columns as they are", "trees on scaled columns"])
def test_features_that_no_tree_reads_are_not_computed(name: str) -> None:
    net, model = compiled(name), fitted(name)[-1]
    read = int((model.feature_importances_ > 0).sum())
    (trees,) = (module for module in modules(net) if isinstance(module, HardTrees))
    assert trees.width == read < model.n_features_in_ / 4
    scalers = [module for module in modules(net) if isinstance(module, Affine)]
    # Never into trees: a value on a threshold is rounded as the source rounds it.
    assert bool(scalers) == ("scaled" in name) and all(len(one.scale) <= read for one in scalers)
    tables = [module for module in modules(net) if isinstance(module, CategoryTable)]
    assert sum(module.rows.shape[1] for module in tables) + sum(len(one.scale) for one in scalers) <= read
    numbers = {repr(name) for name in NUMBERS}
    # Infinite numbers are rejected by the scaler and by nothing else.
    assert bool(numbers & set(found(net).unread)) == ("scaled" not in name)


def test_a_selection_is_pushed_down() -> None:
    net = compiled("selection after scaler after imputer")
    guard, imputer, last = modules(net)
    assert isinstance(imputer, Imputer) and len(imputer.kept) + len(imputer.flagged) == 3
    assert isinstance(guard, Identity) and net.program.steps[0].rejects == ("inf",)
    # The scaler, too, is in the weights.
    assert isinstance(last, Projection) and last.weight.shape[1] == 3
    assert set(found(net).unread) == {repr(text) for text in TEXTS}


def test_a_step_that_mixes_all_columns_is_narrowed_to_the_sums_that_are_read() -> None:
    before, after = modules(compiled("selection after PCA"))
    assert before.weight.shape == (2, len(NUMBERS)) and after.weight.shape == (1, 2)


def test_dead_branches_are_gone() -> None:
    name = "union with a dead branch"
    source, net = fitted(name), compiled(name)
    union = source[1].transformer_list
    width = [len(part.get_feature_names_out()) for _, part in union]
    owner = np.repeat(np.arange(len(width)), width)[source[2].get_support()]
    classes = (Polynomial, Bins, Power, QuantileMap, Projection)
    for at, kind in enumerate(classes[:2]):
        assert any(isinstance(module, kind) for module in modules(net)[:-1]) == (at in owner)
    assert 4 not in owner and sum(isinstance(module, Projection) for module in modules(net)) == 1


@pytest.mark.parametrize("name", PIPELINES)
def test_rows_without_what_is_not_read(name: str) -> None:
    net, rows = compiled(name), table(5, seed=5)
    unread = [column for column in rows if repr(column) in found(net).unread]
    np.testing.assert_array_equal(net.predict_proba(rows.drop(columns=unread)), net.predict_proba(rows))
    for column in rows.columns.difference(unread):
        with pytest.raises(BadInput, match=f"^columns missing: '{column}'"):
            net.predict_proba(rows.drop(columns=column))


def test_rows_of_numbers_without_names_keep_their_places() -> None:
    X = FRAME[NUMBERS].to_numpy()
    source = make_pipeline(make_column_transformer((PolynomialFeatures(2), [0, 1, 2, 3]), ("passthrough", [4, 5])),
                           few_trees()).fit(X, LABEL)  # fmt: skip
    net = windtunnel.compile(source)
    assert 0 < len(net.encoder.used_columns()) < len(NUMBERS)
    np.testing.assert_allclose(net.predict_proba(X), source.predict_proba(X), 1e-9)
    with pytest.raises(BadInput, match="^got 3 columns; the pipeline was fitted on 8"):
        net.predict(X[:, :3])


# Folding


def chain(rows: pd.DataFrame, offset: float = 0.0) -> Any:
    return make_pipeline(StandardScaler(), MinMaxScaler(), LinearRegression()).fit(rows + offset, FRAME["n0"])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_scalers_are_folded_into_a_linear_map(offset: float, dtype: str) -> None:
    rows = FRAME[NUMBERS].round(2)
    source = chain(rows, offset)
    net = windtunnel.compile(source, dtype=dtype)
    assert [type(module) for module in modules(net)] == [Projection]
    given = (rows + offset).astype(dtype)
    close = 1e-9 if dtype == "float64" else 1e-5
    np.testing.assert_allclose(net.predict(given), source.predict(given.astype(float)), close, close)


def test_a_scaler_that_shifts_far_is_left_alone() -> None:
    source = make_pipeline(MinMaxScaler((1e7, 1e7 + 1)), LinearRegression()).fit(FRAME[NUMBERS], FRAME["n0"])
    assert [type(module) for module in modules(windtunnel.compile(source))] == [Affine, Linear]


def test_a_scaler_that_others_read_is_left_alone() -> None:
    source = make_pipeline(StandardScaler(), make_union(PCA(2), bins(encode="ordinal"))).fit(FRAME[NUMBERS])
    net = windtunnel.compile(source)
    assert Affine in [type(module) for module in modules(net)]
    np.testing.assert_allclose(net.transform(FRAME[NUMBERS]), source.transform(FRAME[NUMBERS]), 1e-9, 1e-9)


def test_one_hot_columns_become_the_sums_that_a_category_adds() -> None:
    source = make_pipeline(
        make_column_transformer((one_hot(), TEXTS), (StandardScaler(), NUMBERS)), LogisticRegression()
    ).fit(FRAME, FRAME["c1"].isin(list("abc")) * 1 + LABEL)
    net = windtunnel.compile(source)
    kinds = [type(module) for module in modules(net)]
    assert kinds == [CategoryTable] * len(TEXTS) + [Projection, SumGroups]
    assert [module.rows.shape[1] for module in modules(net)[: len(TEXTS)]] == [3] * len(TEXTS)
    rows = table(200, seed=6).assign(c2="never seen")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_allclose(net.predict_proba(rows), source.predict_proba(rows), 1e-9, 1e-9)


def test_tokens_without_weight_are_not_made_dense() -> None:
    texts = [" ".join(words) for words in np.random.default_rng(0).choice(list("abcdefghijkl"), (200, 6))]
    y = np.array(["a" in text for text in texts])
    source = make_pipeline(CountVectorizer(token_pattern=r"\w"), sparse_weights(0.05)).fit(texts, y)
    net = windtunnel.compile(source)
    assert len(net.encoder.numbers) == np.count_nonzero(source[-1].coef_) < len(source[0].vocabulary_)
    np.testing.assert_allclose(net.predict_proba(texts), source.predict_proba(texts), 1e-9)


# What is kept, shown and written


def test_the_report_says_what_is_not_read() -> None:
    report = str(compiled("trees on columns as they are").report())
    simplified = found(compiled("trees on columns as they are"))
    assert f"{simplified.columns} of {simplified.of_columns} columns computed; not read: 'n" in " ".join(report.split())
    assert "simplified" not in str(windtunnel.translate(fitted("forest")).report())


@pytest.mark.parametrize("name", ["L1 on one-hot and polynomials", "trees on scaled columns"])
def test_saved_ones_are_simplified_too(name: str, tmp_path: Path) -> None:
    net, rows = compiled(name), table(50, seed=7)
    net.save(tmp_path / "model.windtunnel")
    again = windtunnel.load(tmp_path / "model.windtunnel")
    np.testing.assert_array_equal(again.predict_proba(rows), net.predict_proba(rows))
    assert found(again) == found(net)


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("L1 on one-hot and scaled", "torchscript"),
        ("L1 on one-hot and scaled", "onnx"),
        ("trees on scaled columns", "torchscript"),
        ("no weight at all, of texts", "torchscript"),
    ],
)
def test_files_read_no_more(name: str, format: str, tmp_path: Path) -> None:
    net, rows = compiled(name), table(50, seed=8)
    path = tmp_path / ("model.onnx" if format == "onnx" else "model.ts")
    net.export(path, format=format)
    model = serving.load(path, trusted=True)
    read = [*model.number_columns, *model.string_columns]
    assert {repr(column) for column in read} == {repr(column) for column in rows} - set(found(net).unread)
    np.testing.assert_allclose(model.predict_proba(rows[read]), probabilities(fitted(name), rows), 1e-9, 1e-9)
    if "L1" in name:
        for odd in (np.nan, np.inf):
            for column in NUMBERS:
                with pytest.raises((serving.BadRows, ValueError, RuntimeError)):
                    model.predict_proba(rows[read].assign(**{column: odd}))


@pytest.mark.parametrize("backend", ["torchscript", "onnx"])
def test_engines_run_less(backend: str) -> None:
    name = "L1 on one-hot and polynomials"
    rows = table(50, seed=9)
    net = windtunnel.compile(fitted(name), backend=backend)
    np.testing.assert_allclose(net.predict_proba(rows), probabilities(fitted(name), rows), 1e-9, 1e-9)
    assert found(net) == found(compiled(name))
