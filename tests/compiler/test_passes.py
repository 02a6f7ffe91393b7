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
from lightgbm import LGBMClassifier
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction import DictVectorizer
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.feature_selection import SelectFromModel, SelectKBest, VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import (
    KBinsDiscretizer,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    SplineTransformer,
    StandardScaler,
)
from sklearn.tree import DecisionTreeClassifier
from torch import Tensor

import windtunnel
from windtunnel.assemble import Assembly
from windtunnel.compiler.scripted import script
from windtunnel.errors import BadInput
from windtunnel.export import serving
from windtunnel.modules.base import MODULES, Module
from windtunnel.modules.columns.affine import Affine, ClippedAffine
from windtunnel.modules.columns.bins import Bins
from windtunnel.modules.columns.elementwise import Elementwise
from windtunnel.modules.columns.polynomial import Polynomial
from windtunnel.modules.columns.power import Power
from windtunnel.modules.columns.quantile import QuantileMap
from windtunnel.modules.columns.zero_as_missing import ZeroAsMissing
from windtunnel.modules.imputers.imputer import Imputer
from windtunnel.modules.linear.linear import Linear
from windtunnel.modules.linear.projection import Projection
from windtunnel.modules.outputs.finite import Finite
from windtunnel.modules.tables.category_table import CategoryTable, Identity, SumGroups
from windtunnel.modules.tables.one_hot import OneHot
from windtunnel.modules.tables.tfidf import TermSums, Tfidf
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.modules.trees.leaves import LeafOneHot
from windtunnel.program.non_finite import takes_missing
from windtunnel.program.records.simplification import Simplification

NUMBERS = [f"n{at}" for at in range(8)]
TEXTS = [f"c{at}" for at in range(4)]


def table(rows: int = 400, seed: int = 0) -> pd.DataFrame:
    """Numbers of sizes from 1 to 1000, and texts."""
    random = np.random.default_rng(seed)
    numbers = {name: random.normal(size=rows) * 10.0 ** (at % 4) for at, name in enumerate(NUMBERS)}
    texts = {name: np.array(list("abcdefgh"), dtype=object)[random.integers(0, 8, rows)] for name in TEXTS}
    return pd.DataFrame(numbers | texts)


FRAME = table()
LABEL = (FRAME["n0"] + FRAME["n1"] / 10 + (FRAME["c0"] == "a") > 0).to_numpy()


def sparse_weights(C: float = 0.05) -> LogisticRegression:
    return LogisticRegression(solver="saga", l1_ratio=1.0, C=C, max_iter=300, tol=1e-3)


def one_hot() -> OneHotEncoder:
    return OneHotEncoder(handle_unknown="ignore", sparse_output=False)


def few_trees() -> LGBMClassifier:
    return LGBMClassifier(n_estimators=3, num_leaves=4, verbosity=-1, n_jobs=1)


def bins(**options: Any) -> KBinsDiscretizer:
    return KBinsDiscretizer(4, quantile_method="averaged_inverted_cdf", **options)


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
    assert net.simplification is not None
    return net.simplification


def modules(net: windtunnel.Translation) -> list[Any]:
    return [step.module for step in net.program.steps]


def probabilities(source: Any, rows: pd.DataFrame) -> np.ndarray | None:
    """Probabilities; None where rows are rejected."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return np.asarray(source.predict_proba(rows))
    except ValueError:
        return None


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


DROPPED: dict[str, Callable[[], Any]] = {
    "variance": lambda: VarianceThreshold(9),
    "trees": lambda: SelectFromModel(DecisionTreeClassifier(max_depth=1), threshold=0.5),
    "columns": lambda: make_column_transformer(("passthrough", [-2])),
}


@pytest.mark.parametrize("encoder", [OrdinalEncoder(), OneHotEncoder(drop="first", sparse_output=False), one_hot()])
@pytest.mark.parametrize("name", DROPPED)
def test_categories_of_dropped_columns_are_rejected_as_the_source_does(name: str, encoder: Any, tmp_path: Path) -> None:
    files = FILES if name == "columns" else {}
    rows = FRAME[["c0", "c1", "n1", "n0"]].assign(c1="one")
    encode = make_column_transformer((encoder, ["c0", "c1"]), remainder="passthrough")
    source = make_pipeline(encode, DROPPED[name](), LogisticRegression()).fit(rows, FRAME["n1"] > 0)
    given = [rows[:3].assign(c0=pd.Series(["a", odd, odd], dtype=object)) for odd in ("zzz", None, "b")]
    given += [rows[:3].assign(c1=pd.Series(["one", odd, odd], dtype=object)) for odd in ("zzz", None)]
    assert_rejected_everywhere(source, given, tmp_path, files)


@pytest.mark.parametrize("step", [StandardScaler(), bins(encode="ordinal"), SplineTransformer(3)])
@pytest.mark.parametrize("name", DROPPED)
def test_numbers_of_dropped_columns_are_rejected_as_the_source_does(name: str, step: Any, tmp_path: Path) -> None:
    rows = FRAME[["n4", "n1", "n0"]]
    source = make_pipeline(make_column_transformer((step, ["n4"]), remainder="passthrough"), DROPPED[name](), boosted())
    given = [rows[:3].assign(n4=[0.0, odd, 1.0]) for odd in (np.nan, np.inf, 99.0)]
    files = {"torchscript": FILES["torchscript"]} if name == "columns" else {}
    assert_rejected_everywhere(source.fit(rows, FRAME["n1"] > 0), given, tmp_path, files)


def boosted() -> HistGradientBoostingClassifier:
    return HistGradientBoostingClassifier(max_iter=2, max_depth=1)


FILES = {"torchscript": "net.ts", "exported": "net.pt2", "onnx": "net.onnx"}


def assert_rejected_everywhere(source: Any, rows: list[pd.DataFrame], folder: Path, files: dict[str, str]) -> None:
    """Rows that the source rejects are, compiled, translated and in files, and no others."""
    net = windtunnel.compile(source)
    models = [net, windtunnel.translate(source)]
    for format, path in files.items():
        net.export(folder / path, format=format)
        models.append(serving.load(folder / path, trusted=True))
    for given in rows:
        want = probabilities(source, given)
        for model in models:
            got = probabilities(model, given)
            assert (want is None) == (got is None), (given, model)
            if want is not None and type(model) is not windtunnel.Translation:
                np.testing.assert_allclose(got, want, 1e-9, 1e-9)


@pytest.mark.parametrize("name", PIPELINES)
def test_less_is_computed(name: str) -> None:
    before = Assembly(fitted(name), dtype=torch.float64, exact=True)
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
    imputer, guard, last = modules(net)
    assert isinstance(imputer, Imputer) and len(imputer.kept) + len(imputer.flagged) == 3
    assert isinstance(guard, Identity) and net.program.steps[1].rejects == ("inf",)
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


# Modules


def numbers(*shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(0).normal(size=shape))


def trees() -> HardTrees:
    X = FRAME[NUMBERS[:WIDTH]].to_numpy()
    return windtunnel.compile(few_trees().fit(X, LABEL), strategy="tree_traversal").program.steps[-1].module


NAN, WIDTH = torch.tensor(torch.nan, dtype=torch.float64), 6
NARROWED: dict[str, Callable[[], Module]] = {
    "Affine": lambda: Affine(*(numbers(4, WIDTH) + 3)),
    "ClippedAffine": lambda: ClippedAffine(*(numbers(4, WIDTH) + 3), -1.0, 1.0),
    "Bins": lambda: Bins(
        numbers(WIDTH, 3).sort().values, torch.ones(WIDTH, 3).double(), torch.arange(4 * WIDTH), ordinal=False
    ),
    "Bins, ordinal": lambda: Bins(numbers(WIDTH, 3).sort().values, torch.ones(WIDTH, 3), torch.arange(0), ordinal=True),
    "CategoryTable": lambda: CategoryTable(numbers(5, WIDTH)),
    "Elementwise": lambda: Elementwise(torch.zeros(3), "square"),
    "HardTrees": trees,
    "Identity": Identity,
    "Imputer": lambda: Imputer(numbers(5), NAN, torch.tensor([0, 1, 2, 4, 5]), torch.tensor([1, 3])),
    "Imputer of zeros": lambda: Imputer(numbers(2), NAN * 0, torch.tensor([1, 2]), torch.tensor([4])),
    "LeafOneHot": lambda: LeafOneHot.numbered(trees().ensemble(), np.arange(12)),
    "Linear": lambda: Linear(numbers(4, WIDTH) * torch.tensor([1, 0, 1, 0, 0, 1]), numbers(4)),
    "OneHot": lambda: OneHot(torch.tensor([-1, 2, 0, 1, 3]), torch.arange(4), torch.ones(())),
    "Polynomial": lambda: Polynomial(torch.tensor([[6, 6], [0, 6], [0, 3], [5, 5], [2, 4]])),
    "Projection": lambda: Projection(numbers(4, WIDTH) * torch.tensor([0, 0, 1, 0, 1, 1]), numbers(4), numbers(WIDTH)),
    "QuantileMap": lambda: QuantileMap(numbers(WIDTH, 4).sort().values, torch.rand(WIDTH, 4).sort().values, False),
    "SumGroups": lambda: SumGroups(2),
    "Tfidf": lambda: Tfidf(numbers(WIDTH).abs(), "l2"),
    "Tfidf of some": lambda: Tfidf(numbers(WIDTH).abs(), "l1", torch.tensor([0, 2, 5])),
    "Tfidf without a norm": lambda: Tfidf(numbers(WIDTH).abs(), ""),
    "ZeroAsMissing": ZeroAsMissing,
}


def given(module: Module) -> Tensor:
    return torch.randint(0, 5, (20, 1)) if isinstance(module, CategoryTable | OneHot) else numbers(20, WIDTH)


def test_every_module_that_can_be_narrowed_is_tried() -> None:
    can = {
        name
        for name, one in MODULES.items()
        if one.required_columns is not Module.required_columns or one.PER_COLUMN is not None
    }
    forms = {name for name, one in MODULES.items() if issubclass(one, HardTrees)} - {"HardTrees"}
    own = {name for name in can if MODULES[name].__module__.startswith("windtunnel.")} - forms
    assert own == {name.split(",")[0].split(" ")[0] for name in NARROWED}


@pytest.mark.parametrize("name", NARROWED)
def test_a_narrowed_module_gives_the_same_columns(name: str) -> None:
    module = NARROWED[name]()
    x = given(module)
    x[3] = x[3].abs() * 0 if x.dtype == torch.int64 else torch.nan
    every = module(x)
    width = x.shape[1]
    tried = 0
    for wanted in (range(every.shape[1]), [0, 2], [every.shape[1] - 1]):
        needed = module.required_columns(wanted, width)
        if needed is None:
            continue
        needed = sorted(needed) or [0]
        less = module.select_columns(wanted, needed, width)
        rows = [row for row in range(20) if row != 3] if module.MIXES_COLUMNS else list(range(20))
        got = less(x[:, needed])[rows]
        torch.testing.assert_close(got, every[:, list(wanted)][rows], rtol=1e-12, atol=1e-12, equal_nan=True)
        script(less)
        tried += 1
    assert tried


@pytest.mark.parametrize(
    "name",
    # Tables take codes, which no missing or infinite number is.
    [one for one in NARROWED if any(NARROWED[one]().finite_inputs(WIDTH)) and one not in ("CategoryTable", "OneHot")],
)
def test_where_a_module_says_that_it_is_finite_it_is(name: str) -> None:
    module = NARROWED[name]()
    said = module.finite_inputs(WIDTH)
    for column in range(WIDTH):
        for kind, value in (("nan", torch.nan), ("inf", torch.inf), ("inf", -torch.inf)):
            x = numbers(5, WIDTH)
            x[:, column] = value
            y = module(x)
            for position, finite in enumerate(said):
                if finite is None:
                    continue
                odd = column in finite.columns and kind in finite.kinds
                if odd and not finite.sure:
                    continue
                assert (~torch.isfinite(y[:, position])).eq(odd).all(), (column, value, position)
                if odd and len(finite.columns) == 1:
                    assert torch.isnan(y[:, position]).eq(kind == "nan").all()


@pytest.mark.parametrize(
    ("make", "takes"),
    [
        (lambda: make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression()), True),
        (lambda: make_pipeline(StandardScaler(), SimpleImputer(), PolynomialFeatures(2), LinearRegression()), True),
        (lambda: make_pipeline(StandardScaler(), LGBMClassifier(n_estimators=2, verbosity=-1)), True),
        (lambda: make_pipeline(make_union(SimpleImputer(), StandardScaler()), LogisticRegression()), False),
        (lambda: make_pipeline(StandardScaler(), LogisticRegression()), False),
    ],
    ids=["imputed", "imputed later", "trees", "imputed in part", "not imputed"],
)
@pytest.mark.parametrize("backend", ["torch", "torchscript"])
def test_missing_numbers_are_rejected_where_the_source_rejects_them(
    make: Callable[[], Any], takes: bool, backend: str
) -> None:
    drawn = np.random.default_rng(0)
    X = drawn.normal(size=(200, 3))
    source = make().fit(X, X[:, 0] > 0)
    net = windtunnel.compile(source, backend=backend)
    assert takes_missing(net.program) == takes
    X[drawn.random(X.shape) < 0.1] = np.nan
    if takes:
        np.testing.assert_allclose(net.predict(X), source.predict(X), rtol=1e-9, atol=1e-9)
    else:
        with pytest.raises(ValueError, match="NaN"):
            source.predict(X)
        with pytest.raises(BadInput, match="no finite score"):
            net.predict(X)
    X[7, 1] = np.inf
    try:
        expected = source.predict(X)
    except ValueError:
        with pytest.raises(BadInput, match="no finite score"):
            net.predict(X)
    else:
        np.testing.assert_allclose(net.predict(X), expected, rtol=1e-9, atol=1e-9)


def test_what_an_output_is_finite_with_is_told_by_identity() -> None:
    class Column(int):
        def __hash__(self) -> int:
            raise AssertionError("hashed for each of the columns that it stands for")

    one, other = Finite((Column(),)), Finite((Column(),))
    assert {one, other, one} == {one, other} and one != other


def test_an_array_of_which_trees_read_a_few_columns_is_read_where_it_is() -> None:
    drawn = np.random.default_rng(0)
    X = drawn.normal(size=(200, 40))
    y = X[:, 30] + X[:, 7] > 0
    source = make_pipeline(SelectKBest(k=3), few_trees()).fit(X, y)
    net = windtunnel.compile(source, backend="torch")
    batch = net.encoder.encode_array(X, shared=True)
    assert batch is not None and batch.numbers.data_ptr() == X.ctypes.data
    guard, trees = net.program.steps
    assert guard.rejects and [take.neighbours for take in guard.takes] == [True]
    assert set(trees.takes[0].columns.tolist()) <= {*np.flatnonzero(source[0].get_support()).tolist()}
    np.testing.assert_allclose(net.predict_proba(X), source.predict_proba(X), rtol=1e-9, atol=1e-9)
    X[3, 11] = np.inf  # in a column that is not selected
    with pytest.raises(ValueError, match="infinity"):
        source.predict(X)
    with pytest.raises(BadInput, match="1 of 200 rows"):
        net.predict(X)


REVIEWS = [" ".join(f"word{letter}" for letter in row) for row in FRAME[TEXTS].itertuples(index=False)]
SUMMED: dict[str, Callable[[], Any]] = {
    "idf": TfidfVectorizer,
    "l1": lambda: TfidfVectorizer(norm="l1"),
    "hashed": lambda: HashingVectorizer(n_features=32),
    "counted, weighted": lambda: make_pipeline(CountVectorizer(), TfidfTransformer()),
    "selected": lambda: make_pipeline(TfidfVectorizer(), SelectKBest(k=3)),
    "twice": lambda: make_pipeline(TfidfVectorizer(), make_union(VarianceThreshold(), SelectKBest(k=3))),
}


@pytest.mark.parametrize("name", SUMMED)
def test_terms_are_weighted_and_summed_in_one_pass(name: str) -> None:
    source = make_pipeline(SUMMED[name](), LogisticRegression()).fit(REVIEWS, LABEL)
    net = windtunnel.compile(source)
    sums = modules(net)[-1]
    assert isinstance(sums, TermSums) and not any(isinstance(module, Tfidf) for module in modules(net))
    rows = [*REVIEWS, "", "unheard of", "worda " * 300]
    np.testing.assert_allclose(net.predict_proba(rows), source.predict_proba(rows), rtol=1e-9, atol=1e-9)


def test_terms_that_something_else_reads_keep_their_weights() -> None:
    source = make_pipeline(TfidfVectorizer(), make_union(PCA(2), SelectKBest(k=3)), LogisticRegression())
    # PCA takes its columns dense or not at all.
    source[0].set_params(norm="l1")
    net = windtunnel.compile(source.fit(REVIEWS, LABEL))
    assert any(isinstance(module, Tfidf) for module in modules(net))
    np.testing.assert_allclose(net.predict_proba(REVIEWS), source.predict_proba(REVIEWS), rtol=1e-9, atol=1e-9)


def test_values_of_dicts_are_rejected_where_their_weighting_rejects_them() -> None:
    rows = [{"a": float(at % 7), "b": float(at % 3) + 1} for at in range(len(LABEL))]
    source = make_pipeline(DictVectorizer(), TfidfTransformer(), LogisticRegression()).fit(rows, LABEL)
    net = windtunnel.compile(source)
    assert isinstance(modules(net)[-1], TermSums)
    np.testing.assert_allclose(net.predict_proba(rows), source.predict_proba(rows), rtol=1e-9, atol=1e-9)
    for odd in (np.nan, np.inf):
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            source.predict([{"a": odd, "b": 1.0}])
        with pytest.raises(BadInput, match="no finite score"):
            net.predict([{"a": odd, "b": 1.0}])


@pytest.mark.parametrize("norm", ["", "max"])
def test_sums_of_terms_want_a_norm(norm: str) -> None:
    with pytest.raises(ValueError, match="norm must be one of 'l1', 'l2'"):
        TermSums(torch.ones(2), torch.ones(1, 2), torch.zeros(1), norm)
