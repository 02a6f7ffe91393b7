"""Files in every format: what they give, what they reject, and that nothing of windtunnel is needed to run them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
import torch
from case import Case, table
from cases import CASES, parametrized
from lightgbm import LGBMClassifier, LGBMRegressor
from onnx import helper, numpy_helper
from parity import compiled
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_iris
from sklearn.ensemble import (
    AdaBoostClassifier,
    GradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    KBinsDiscretizer,
    OneHotEncoder,
    PolynomialFeatures,
    QuantileTransformer,
    SplineTransformer,
    StandardScaler,
)
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from way_out import Looping, fitted, frame, rows_for, translated, with_host_step

import windtunnel
from windtunnel.compiler import exported
from windtunnel.errors import BadFile, BadInput, InvalidOption, UnfaithfulOption
from windtunnel.export import serving
from windtunnel.export.columns import names, raw_columns
from windtunnel.export.limits import LIMITS, met
from windtunnel.modules.linear.residual_model import ResidualModel
from windtunnel.modules.trees.hard import TreeWalk
from windtunnel.trainers.residual.init_scores import InputColumns
from windtunnel.trainers.residual.installation import install_residual

SUFFIX = {"torchscript": ".ts", "onnx": ".onnx", "exported": ".pt2", "aoti": ".pt2"}
FORMATS = ("torchscript", "onnx", "exported")
"""Those that are written in seconds; native code has a test of its own."""
SPREAD = [
    "imputer of texts, one-hot",
    "ordinal, trees with categories",
    "rare, two-hot, trees",
    "linear regression, two targets",
    "trees, zero as missing",
    "trees, random forest of classes",
    "a column as number and as category",
]
TABLE = [
    pytest.param(case, id=case.id, marks=[] if case.id in SPREAD else [pytest.mark.slow]) for case in CASES.values()
]
"""Exporting takes seconds, so that the whole table is for long runs; ``test_export_modules.py`` has every module."""
NATIVE = [
    "standard scaler, logistic", "imputer of texts, one-hot", "trees, random forest of classes", "pca alone", "topics",
    "neighbours, manhattan, distance, brute", "gaussian process, two targets", "lightgbm linear trees",
    "quantiles, normal", "mlp classifier, several labels",
]  # fmt: skip
"""Compiling takes half a minute."""


def opened(net: windtunnel.Translation, folder: Path, format: str) -> serving.Model:
    path = folder / f"net{SUFFIX[format]}"
    net.export(path, format=format)
    return serving.load(path, trusted=format != "onnx")


@cache
def logistic() -> windtunnel.Translation:
    return windtunnel.compile(fitted("logistic"))


@cache
def small(format: str, folder: Path) -> serving.Model:
    return opened(logistic(), folder, format)


@cache
def rejecting_categories() -> windtunnel.Translation:
    rows = frame().fillna({"city": "none"})
    pipeline = make_pipeline(windtunnel_columns(OneHotEncoder(), ["city", "code"]), LogisticRegression())
    return windtunnel.compile(pipeline.fit(rows, rows["size"] > 0))


@pytest.fixture(scope="module")
def rejecting_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rejecting")


@cache
def rejecting_file(format: str, folder: Path) -> serving.Model:
    return opened(rejecting_categories(), folder, format)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("formats")


def columns_of(net: windtunnel.Translation, rows: Any) -> dict[str, list[Any]]:
    """The raw columns that a translation reads, by the names that files give them."""
    picked, used = net.encoder.select(rows), [*sum(raw_columns(net.encoder), [])]
    return {name: picked[at].astype(object).tolist() for at, name in zip(used, names(net.encoder, used), strict=True)}


def assert_as_net(model: serving.Model, net: windtunnel.Translation, rows: Any, tolerance: float) -> None:
    given = columns_of(net, rows)
    np.testing.assert_allclose(model.scores(given), net.scores(rows), tolerance, tolerance)
    if "predict_proba" in model.facts["outputs"]:
        wanted = net.predict_proba(rows)
        assert_close(model.predict_proba(given), np.hstack(wanted) if isinstance(wanted, list) else wanted, tolerance)
    if "predict" in model.facts["outputs"] and net.head.classes is not None:
        np.testing.assert_array_equal(net.head.labels(torch.as_tensor(model.predict(given))), net.predict(rows))
    elif "predict" in model.facts["outputs"]:
        assert_close(model.predict(given), net.predict(rows), tolerance)


def assert_close(found: Any, wanted: Any, tolerance: float) -> None:
    """Compare float64 outputs with those of a translation, which rounds some as the source does."""
    tolerance = max(tolerance, np.finfo(wanted.dtype).eps if wanted.dtype.kind == "f" else 0)
    np.testing.assert_allclose(np.asarray(found), wanted, tolerance, tolerance)


# What files give


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("case", TABLE)
def test_the_table(case: Case, format: str, tmp_path: Path) -> None:
    assert_same_in_file(case, format, tmp_path)


@pytest.mark.slow
@parametrized(*(CASES[name] for name in NATIVE))
def test_native_code_over_a_spread(case: Case, tmp_path: Path) -> None:
    assert_same_in_file(case, "aoti", tmp_path)


def assert_same_in_file(case: Case, format: str, folder: Path) -> None:
    """A file gives the outputs for many rows, one and none, unless the table of limits has a reason against it."""
    net, rows = compiled(case.id), case.rows(60)
    if limit := met(net, format):
        with pytest.raises(UnfaithfulOption, match=re.escape(limit.because)):
            opened(net, folder, format)
        return
    model = opened(net, folder, format)
    for count in (60, 1):
        assert_as_net(model, net, rows[:count], 1e-9)
    given = columns_of(net, rows)
    none = model.scores({name: values[:0] for name, values in given.items()})
    assert none.shape == (0, *np.shape(net.scores(rows))[1:])


@pytest.mark.parametrize("format", ["onnx", "exported"])
@pytest.mark.parametrize("name", ["softmax", "lightgbm_categories", "leaves", "transformer"])
def test_fine_tuned_translations(name: str, format: str, tmp_path: Path) -> None:
    net = translated(name)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(1 + 0.1 * torch.rand(parameter.shape, generator=torch.Generator().manual_seed(0)))
    net.train()
    model = opened(net, tmp_path, format)
    assert net.training and any(parameter.requires_grad for parameter in net.parameters())
    assert_as_net(model, net, rows_for(name), 1e-5)


def with_residual_model(generator: torch.Generator) -> windtunnel.Translation:
    """A translation with a residual model of single columns, pairs and interactions of columns."""
    net = translated("logistic")
    size = [4] * len(net.encoder.numbers) + [len(one.vocabulary) for one in net.encoder.categories]
    edges = torch.tensor([[-0.5, 0.5]]).repeat(len(net.encoder.numbers), 1)
    residual = ResidualModel.zero(edges, size, torch.ones(1), rank=2, generator=generator)
    combined = {(0, len(size) - 1): 5, (1, len(size) - 2, len(size) - 1): 7, (0,): 4}  # fewer cells than combinations
    residual.set_interactions(list(combined), [torch.zeros(count, 1) for count in combined.values()])
    with torch.no_grad():
        for parameter in residual.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    install_residual(
        net, residual, InputColumns([*range(len(net.encoder.numbers))], [*range(len(net.encoder.categories))])
    )
    return net


@pytest.mark.parametrize("format", FORMATS)
def test_a_residual_model_goes_into_the_file(format: str, tmp_path: Path) -> None:
    net, rows = with_residual_model(torch.Generator().manual_seed(0)), rows_for("logistic")
    assert rows.isna().any(axis=None)
    assert_as_net(opened(net, tmp_path, format), net, rows, 1e-5)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("count", [0, 1, 2, 9000])
def test_any_number_of_rows(format: str, count: int, folder: Path) -> None:
    net, rows = logistic(), rows_for("logistic")
    rows, model = rows.iloc[np.arange(count) % len(rows)], small(format, folder)
    assert model.predict(rows).shape == (count,)
    if count:
        assert_as_net(model, net, rows, 1e-9)


def test_graphs_in_files_are_given_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES["trees, random forest of classes"]
    net, rows = windtunnel.compile(case.fitted()), case.rows(60)
    whole = opened(net, tmp_path, "exported")
    (trees,) = (len(one.root) for one in net.program.modules() if isinstance(one, TreeWalk))
    assert whole.facts["rows_at_once"] == exported.AT_ONCE // trees < net.batch_size
    monkeypatch.setattr(exported, "AT_ONCE", 7 * trees)
    cut, given = opened(net, tmp_path, "exported"), columns_of(net, rows)
    assert cut.facts["rows_at_once"] == 7
    assert torch.equal(cut.scores(given), whole.scores(given))
    # Links are computed several numbers at a time, and what is left over in another way.
    torch.testing.assert_close(cut.predict_proba(given), whole.predict_proba(given), rtol=1e-15, atol=1e-15)
    net.batch_size = 5
    assert opened(net, tmp_path, "exported").facts["rows_at_once"] == 5


def test_native_code(tmp_path: Path) -> None:
    net, rows = logistic(), rows_for("logistic")
    model = opened(net, tmp_path, "aoti")
    assert_as_net(model, net, rows, 1e-9)
    assert_as_net(model, net, rows[:1], 1e-9)
    assert model.predict(rows[:0]).shape == (0,)
    assert model.facts["torch"] == torch.__version__ and model.facts["device"] == "cpu"
    assert ask_elsewhere(tmp_path, "net.pt2", rows) == pytest.approx(net.predict_proba(rows)[:, 1].tolist())
    assert_the_same_errors(model)


@pytest.mark.parametrize(
    "strategy", ["gemm", "tree_traversal", "perfect_tree_traversal", "bitvectors", "ranked_traversal"]
)
def test_every_strategy_has_a_graph(strategy: str, tmp_path: Path) -> None:
    case = CASES["trees, random forest of classes"]
    net = windtunnel.compile(case.fitted(), strategy=strategy)
    assert_as_net(opened(net, tmp_path, "exported"), net, case.rows(60), 0)


@pytest.mark.parametrize("scale", [1 + 1e-6, 1 + 1e-9])
def test_numbers_near_one_and_zero_stay_what_they_are(scale: float, tmp_path: Path) -> None:
    rows = np.array([[0.0], [1.0], [2.0]])
    scaler = StandardScaler().fit(rows)
    scaler.scale_, scaler.mean_ = np.array([1 / scale]), np.array([3e-9])
    net = windtunnel.compile(scaler)
    found = opened(net, tmp_path, "onnx").scores(columns_of(net, rows))
    np.testing.assert_allclose(found, scaler.transform(rows), 1e-14)


def test_one_category_that_is_a_number(tmp_path: Path) -> None:
    rows = pd.DataFrame({"code": [2.0, np.nan, 2.0, np.nan], "size": [1.0, 2.0, 3.0, 4.0]})
    parts = windtunnel_columns(OneHotEncoder(handle_unknown="ignore"), ["code"])
    net = windtunnel.compile(make_pipeline(parts, LogisticRegression()).fit(rows, [0, 1, 0, 1]))
    assert net.predict_proba(rows)[0, 0] != net.predict_proba(rows)[1, 0]
    for format in FORMATS:
        assert_as_net(opened(net, tmp_path, format), net, rows, 1e-9)


def windtunnel_columns(encoder: Any, columns: list[str]) -> Any:
    return make_column_transformer((encoder, columns))


# Trees in ONNX


def awkward(width: int) -> np.ndarray[Any, Any]:
    """Missing, infinite and zero values, and numbers right beside those that trees were fitted on."""
    random = np.random.default_rng(5)
    rows = random.choice([0.0, -0.0, 0.5, 1.0, np.nan, np.inf, -np.inf, 1e-36, 1e30], (300, width))
    near = random.integers(-3, 4, (300, width)) / 2
    return np.where(random.random((300, width)) < 0.5, rows, np.nextafter(near, random.choice([-9, 9], near.shape)))


@pytest.mark.parametrize(
    ("model", "dtype"),
    [
        (LGBMClassifier(n_estimators=6, num_leaves=9, min_child_samples=3, verbose=-1), "float64"),
        (LGBMRegressor(n_estimators=6, num_leaves=9, min_child_samples=3, zero_as_missing=True, verbose=-1), "float32"),
        (
            LGBMClassifier(n_estimators=3, num_leaves=5, min_child_samples=3, min_gain_to_split=20, verbose=-1),
            "float64",
        ),
        (RandomForestClassifier(7, max_depth=4, random_state=0), "float64"),
        (RandomForestClassifier(7, max_depth=4, random_state=0), "float32"),
    ],
    ids=["missing", "zeros missing, float32", "without splits", "values for all classes", "and in float32"],
)
def test_trees_are_nodes_and_decide_the_same(model: Any, dtype: str, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    X = random.integers(-3, 4, (300, 4)) / 2.0
    X[random.random(X.shape) < 0.1] = np.nan
    y = np.nan_to_num(X[:, 0] * X[:, 1]) + np.nan_to_num(X[:, 2], nan=1.0) + random.normal(size=300) * 0.2
    y = y if isinstance(model, LGBMRegressor) else np.digitize(y, [-0.5, 0.8])
    net = windtunnel.compile(model.fit(X, y), dtype=dtype)
    net.export(tmp_path / "net.onnx", format="onnx")
    graph = onnx.load(tmp_path / "net.onnx").graph
    assert [node.op_type for node in graph.node].count("TreeEnsemble") == 1
    rows = awkward(4)
    if isinstance(model, RandomForestClassifier):  # which rejects what float32 cannot hold
        rows = np.where(np.isinf(rows), 1.0, rows)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # several add up trees in an order of their own
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx", options)
    (found,) = session.run(["scores"], {str(column): rows[:, column] for column in range(4)})
    assert np.array_equal(found, net.scores(rows).numpy())


# Where windtunnel is not installed

ELSEWHERE = """
import json, sys

hidden = {"windtunnel", "sklearn", "lightgbm", "pandas", "category_encoders", "pyarrow"}
hidden |= {"torch"} if sys.argv[1].endswith(".onnx") else {"onnxruntime"}
hidden |= {"numpy"} if sys.argv[1].endswith(".ts") else set()

class Hiding:
    # What finds modules, but for those that are as if they were not installed.
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        return None if name.split(".")[0] in hidden else self.finder.find_spec(name, path, target)

sys.meta_path = [Hiding(finder) for finder in sys.meta_path]
try:
    import windtunnel
except ImportError:
    pass
else:
    raise SystemExit("the hiding does not work")
import serving
model = serving.load(sys.argv[1], trusted=True)
print(json.dumps(model.predict_proba(json.loads(sys.stdin.read()))[:, 1].tolist()))
"""


def ask_elsewhere(folder: Path, name: str, rows: pd.DataFrame) -> Any:
    """Probabilities from a process that has the file, ``serving.py`` and neither windtunnel nor the source."""
    shutil.copy(serving.__file__, folder)
    values = rows.astype(object).where(rows.notna(), None).to_dict("list")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ELSEWHERE, name],
        input=json.dumps(values),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("format", FORMATS)
def test_windtunnel_is_not_needed(format: str, folder: Path) -> None:
    small(format, folder)
    rows = rows_for("logistic")
    wanted = logistic().predict_proba(rows)[:, 1]
    np.testing.assert_allclose(ask_elsewhere(folder, f"net{SUFFIX[format]}", rows), wanted, 1e-9)


# Bad input and trust


@pytest.mark.parametrize("format", FORMATS)
def test_the_same_errors_in_every_format(format: str, folder: Path) -> None:
    assert_the_same_errors(small(format, folder))


def assert_the_same_errors(model: serving.Model) -> None:
    rows = rows_for("logistic").to_dict("list")
    wrong: list[tuple[Any, str]] = [
        ({"size": [1.0], "prise": [2.0]}, r"columns missing: \['price', 'code', 'city'\]; given: \['size', 'prise'\]"),
        (rows | {"size": ["1"] * 60}, "column 'size' holds '1'; numbers are read there"),
        (rows | {"size": [[1.0]] * 60}, r"column 'size' holds \[1.0\]; numbers are read there"),
        (rows | {"city": [b"Oslo"] * 60}, "column 'city' holds b'Oslo'; texts are read there"),
        (rows | {"city": [3] * 60}, "column 'city' holds 3; texts are read there"),
        (rows | {"city": ["Os\0lo"] * 60}, "column 'city' holds 'Os.*lo', with a NUL in it"),
        (rows | {"city": "Oslo"}, "column 'city' is a single str"),
        (rows | {"city": ["Oslo"]}, "columns of different lengths: .*'city': 1"),
        (rows | {"city": pd.DataFrame(rows)[["city"]]}, "column 'city' is a DataFrame, no single column"),
        (pd.DataFrame(rows).iloc[:, [0, *range(4)]], r"columns given twice: \['size'\]; each name must be there once"),
        ([[1.0, 2.0]], "rows given as list; give a mapping"),
        (rows | {"size": [np.inf] * 60}, "60 of 60 rows (scored at once )?have no finite score"),
    ]
    for given, message in wrong:
        with pytest.raises(serving.BadRows, match=message):
            model.predict(given)
    with pytest.raises(AttributeError, match="this model has no transform"):
        model._output("transform", rows)


@pytest.mark.parametrize("format", FORMATS)
def test_rejected_categories(format: str, rejecting_folder: Path) -> None:
    rows = frame().fillna({"city": "none"})
    model = rejecting_file(format, rejecting_folder)
    assert model.predict(rows).shape == (200,)
    for name, value in (("city", "Paris"), ("city", None), ("code", 3.25), ("code", None)):
        with pytest.raises(serving.BadRows, match="encoder rejects"):
            model.predict(rows.astype(object).assign(**{name: value}).to_dict("list"))


REJECTING: dict[str, Any] = {
    "forest": lambda: RandomForestClassifier(3, max_depth=3, random_state=0),
    "gradient boosting": lambda: GradientBoostingClassifier(n_estimators=3, random_state=0),
    "ada boost": lambda: AdaBoostClassifier(n_estimators=3, random_state=0),
    "a tree of squares": lambda: make_pipeline(PolynomialFeatures(2), DecisionTreeClassifier(max_depth=3)),
    "splines": lambda: make_pipeline(SplineTransformer(extrapolation="constant"), LogisticRegression()),
    "bins": lambda: make_pipeline(KBinsDiscretizer(3, strategy="uniform"), LogisticRegression()),
    "quantiles": lambda: make_pipeline(QuantileTransformer(n_quantiles=20), LogisticRegression()),
}
"""Models whose scores are finite whatever reaches them."""


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", REJECTING)
def test_rejected_numbers(name: str, format: str, tmp_path: Path) -> None:
    rows = frame()[["size", "code"]]
    source = REJECTING[name]().fit(rows, rows["size"] > 0)
    net, rejected = windtunnel.compile(source), 0
    model = opened(net, tmp_path, format)
    for value in (0.5, 1e15, 1e30, np.nan, np.inf, -np.inf, 1e300, -1e300):
        given = rows[:3].copy()
        given.iloc[1, 0] = value
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                wanted = source.predict_proba(given)
        except ValueError:
            rejected += 1
            with pytest.raises(BadInput, match="1 of 3 rows have no finite score"):
                net.predict_proba(given)
            for method in ("scores", "predict_proba", "predict"):
                with pytest.raises(serving.BadRows, match="1 of 3 rows (scored at once )?have no finite score"):
                    getattr(model, method)(given)
        else:
            assert_close(model.predict_proba(given), wanted, 1e-9)
            assert_close(net.predict_proba(given), wanted, 1e-9)
    assert rejected


def test_what_cannot_raise_gives_nan_and_minus_one(rejecting_folder: Path) -> None:
    net = rejecting_categories()
    rejecting_file("onnx", rejecting_folder)
    session = onnxruntime.InferenceSession(rejecting_folder / "net.onnx")
    cities = ["Oslo", "Paris", "<missing>", "Oslo", "Oslo", "", "Oslo\0"]
    codes = [2.0, 2.0, 2.0, 3.25, np.nan, 7.5, 2.0]
    scores, chances, at = session.run(None, {"city": np.array(cities, object), "code": np.array(codes)})
    wrong = [1, 2, 3, 4, 6]
    assert np.isnan(scores[wrong]).all() and np.isnan(chances[wrong]).all() and (at[wrong] == -1).all()
    fine = pd.DataFrame({"city": ["Oslo", ""], "code": [2.0, 7.5]})
    np.testing.assert_allclose(scores[[0, 5]], net.scores(fine), 1e-9)
    assert np.array_equal(net.classes_[at[[0, 5]]], net.predict(fine))


def test_missing_texts_in_onnx(folder: Path) -> None:
    net = logistic()
    small("onnx", folder)
    session = onnxruntime.InferenceSession(folder / "net.onnx")
    numbers = {name: np.full(6, 2.0) for name in ("size", "price", "code")}
    cities = np.array(["<missing>", "Paris", None, np.nan, "None", pd.NA], object)
    (scores,) = session.run(["scores"], {**numbers, "city": cities})
    np.testing.assert_allclose(scores[:2], net.scores(pd.DataFrame({**numbers, "city": [None, "Paris"] * 3})[:2]))
    assert np.isnan(scores[2:]).all()


@pytest.mark.parametrize("format", FORMATS)
def test_texts_that_look_like_missing_ones(format: str, tmp_path: Path) -> None:
    values = np.array(["Oslo", "nan", None, "Rome"] * 10, dtype=object)
    X, y = pd.DataFrame({"city": values, "more": np.arange(40.0)}), values == None  # noqa: E711  of each
    encode = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["city"]), remainder="passthrough")
    pipeline = make_pipeline(encode, LogisticRegression(C=100)).fit(X, y)
    model = opened(windtunnel.compile(pipeline), tmp_path, format)
    texts = ["<missing>", "None", "nan", "<NA>", None, "Paris", "Oslo"]
    rows = pd.DataFrame({"city": np.array(texts, dtype=object), "more": 1.0})
    np.testing.assert_allclose(np.asarray(model.predict_proba(rows)), pipeline.predict_proba(rows), 1e-9)


@pytest.mark.parametrize("format", FORMATS)
def test_none_is_a_category_where_the_pipeline_says_so(format: str, tmp_path: Path) -> None:
    values = np.array(["a", "b", None, np.nan, "b", "b"] * 10, dtype=object)
    X = pd.DataFrame({"city": pd.Series(values, dtype=object)})
    encoder = OneHotEncoder(handle_unknown="ignore")
    pipeline = make_pipeline(SimpleImputer(strategy="most_frequent"), encoder, LogisticRegression(C=100))
    y = [value is None or value == "a" for value in values]
    net = windtunnel.compile(pipeline.fit(X, y))
    model = opened(net, tmp_path, format)
    probabilities = np.asarray(model.predict_proba(X))
    np.testing.assert_allclose(probabilities, pipeline.predict_proba(X), 1e-9)
    assert abs(probabilities[2, 1] - probabilities[3, 1]) > 0.5  # None and NaN
    np.testing.assert_array_equal(probabilities, model.predict_proba({"city": values.tolist()}))


@pytest.mark.parametrize("format", FORMATS)
def test_a_vote_of_a_linear_model_and_a_kernel(format: str, tmp_path: Path) -> None:
    # Labels alone come out; torch.export makes subclasses of the modules on the way to them.
    X, y = load_iris(return_X_y=True)
    members = [("linear", make_pipeline(StandardScaler(), LogisticRegression())), ("kernel", SVC())]
    vote = VotingClassifier(members).fit(X, y)
    net = windtunnel.compile(vote)
    model = opened(net, tmp_path, format)
    np.testing.assert_array_equal(model.predict(columns_of(net, X)), vote.predict(X))


def test_texts_that_are_hashed(tmp_path: Path) -> None:
    net, rows = windtunnel.compile(fitted("hashing")), rows_for("hashing")
    assert_as_net(opened(net, tmp_path, "exported"), net, rows, 1e-9)
    with pytest.raises(UnfaithfulOption, match="column 'city' is hashed: ONNX has no operator for md5"):
        net.export(tmp_path / "net.onnx", format="onnx")


@pytest.mark.parametrize("format", ["torchscript", "exported"])
def test_programs_have_to_be_trusted(format: str, folder: Path) -> None:
    small(format, folder)
    with pytest.raises(ValueError, match=rf"holds a program \({format}\).*trusted=True"):
        serving.load(folder / f"net{SUFFIX[format]}")


@pytest.mark.parametrize("format", FORMATS)
def test_what_was_exported_is_no_artefact(format: str, folder: Path) -> None:
    what = {"torchscript": "a TorchScript file", "onnx": "an ONNX file", "exported": r"a file of torch\.export"}
    small(format, folder)
    with pytest.raises(BadFile, match=rf"{what[format]}, which windtunnel\.load does not read.*serving\.load\(path"):
        windtunnel.load(folder / f"net{SUFFIX[format]}")


def test_files_of_others_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(b"nothing")
    with pytest.raises(Exception, match="Protobuf|protobuf|INVALID"):
        serving.load(tmp_path / "net.onnx")
    (tmp_path / "net.bin").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="is no file that export wrote"):
        serving.load(tmp_path / "net.bin")
    net = translated("logistic")
    net.save(tmp_path / "net.windtunnel")
    with pytest.raises(ValueError, match="is no file that export wrote"):
        serving.load(tmp_path / "net.windtunnel")


@pytest.mark.parametrize("place", ["weights", "../weights"])
def test_onnx_files_that_point_at_others_are_rejected(place: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path, tmp_path.parent):
        (folder / "weights").write_bytes(np.zeros(4).tobytes())
    weights = numpy_helper.from_array(np.zeros(4), "weights")
    weights.ClearField("raw_data")
    weights.data_location = onnx.TensorProto.EXTERNAL
    weights.external_data.add(key="location", value=place)
    at, found = (helper.make_tensor_value_info(name, kind, [4]) for name, kind in (("at", 7), ("found", 11)))
    gather = helper.make_node("Gather", ["weights", "at"], ["found"])
    graph = helper.make_graph([gather], "net", [at], [found], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(Exception, match="External data path"):
        serving.load(tmp_path / "net.onnx")


def test_an_onnx_file_is_whole(folder: Path) -> None:
    small("onnx", folder)
    model = onnx.load(folder / "net.onnx", load_external_data=False)
    onnx.checker.check_model(model, full_check=True)
    assert not any(one.data_location or one.external_data for one in model.graph.initializer)
    assert {one.domain for one in model.opset_import} == {"", "ai.onnx.ml"}
    assert [one.name for one in model.graph.input] == ["size", "price", "code", "city"]
    assert [one.name for one in model.graph.output] == ["scores", "predict_proba", "predict"]


# What cannot be exported


@pytest.mark.parametrize("format", ["onnx", "exported"])
def test_host_steps_are_rejected_by_name(format: str, tmp_path: Path) -> None:
    net = windtunnel.translate(with_host_step(), calibrate=frame())
    with pytest.raises(UnfaithfulOption, match=r"'columns.custom' \(Custom\) stayed on the host"):
        net.export(tmp_path / "net", format=format)
    assert not list(tmp_path.iterdir())


def test_steps_without_a_graph_are_rejected_by_name(tmp_path: Path, capfd: Any) -> None:
    net = windtunnel.compile(StandardScaler().fit(np.random.default_rng(0).random((30, 4))))
    net.program.steps[0].module = Looping()
    with pytest.raises(UnfaithfulOption, match=r"cannot take a graph of step 'StandardScaler' \(Looping\)"):
        net.export(tmp_path / "net.pt2", format="exported")
    assert capfd.readouterr() == ("", "")
    assert not list(tmp_path.iterdir())


def test_the_documentation_has_the_table_of_limits() -> None:
    page = (Path(windtunnel.__file__).parents[1] / "docs" / "export.md").read_text(encoding="utf-8")
    rows = [f"| {one.what} | {', '.join(one.formats)} | {one.because} |" for one in LIMITS]
    assert "\n".join(rows) in page


def test_names_that_onnx_cannot_hold(tmp_path: Path) -> None:
    rows = table()[["age"]].rename(columns={"age": "scores"})
    net = windtunnel.compile(LogisticRegression().fit(rows, rows["scores"] > 40))
    with pytest.raises(UnfaithfulOption, match="columns called 'scores': ONNX has one space of names"):
        net.export(tmp_path / "net.onnx", format="onnx")
    rows = pd.DataFrame({"a": ["<missing>", "x"] * 5})
    net = windtunnel.compile(make_pipeline(OneHotEncoder(), LogisticRegression()).fit(rows, [0, 1] * 5))
    with pytest.raises(UnfaithfulOption, match="column 'a' has the category '<missing>'"):
        net.export(tmp_path / "net.onnx", format="onnx")


def test_names_of_files_and_formats(tmp_path: Path) -> None:
    net = translated("logistic")
    with pytest.raises(InvalidOption, match=r"\.pt2 is what files of 'exported' are called; name the file \.onnx"):
        net.export(tmp_path / "net.pt2", format="onnx")
    with pytest.raises(InvalidOption, match=r"\.windtunnel is what files of 'save' are called"):
        net.export(tmp_path / "net.windtunnel", format="onnx")
    with pytest.raises(InvalidOption, match="Did you mean 'exported'"):
        net.export(tmp_path / "net", format="export")


@pytest.mark.parametrize("format", ["torchscript", "exported", "onnx"])
def test_an_infinite_score_is_an_output(format: str, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(60, 3))
    source = LogisticRegression().fit(rows, rows[:, 0] > 0)
    far = np.sign(source.coef_) * np.array([[1e308], [-1e308]])
    path = tmp_path / ("model" + {"torchscript": ".ts", "exported": ".pt2", "onnx": ".onnx"}[format])
    windtunnel.compile(source).export(path, format=format)
    model = serving.load(path, trusted=True)
    given = {name: far[:, int(name)] for name in model.number_columns}
    with np.errstate(over="ignore"):
        assert np.isinf(source.decision_function(far)).all()
        np.testing.assert_array_equal(np.asarray(model.predict_proba(given)), source.predict_proba(far))
        assert [bool(at) for at in model.predict(given)] == source.predict(far).tolist()
    with pytest.raises(serving.BadRows, match="no finite score"):
        model.predict(given | {"1": np.array([np.nan, 0.0])})
