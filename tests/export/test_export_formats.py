"""Files in every format: what they give, what they reject, and that nothing of windtunnel is needed to run them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
import torch
from case import Case
from cases import CASES, parametrized
from export_cases import (
    FORMATS,
    SUFFIX,
    assert_as_net,
    assert_the_same_errors,
    columns_of,
    fitted,
    logistic,
    opened,
    rows_for,
    small,
    translated,
    windtunnel_columns,
)
from lightgbm import LGBMClassifier, LGBMRegressor
from parity import compiled
from sklearn.datasets import load_iris
from sklearn.ensemble import (
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    OneHotEncoder,
    StandardScaler,
)
from sklearn.svm import SVC

import windtunnel
from windtunnel.compiler import exported
from windtunnel.errors import UnfaithfulOption
from windtunnel.export import serving
from windtunnel.export.limits import met
from windtunnel.modules.linear.residual_model import ResidualModel
from windtunnel.modules.trees.hard import TreeWalk
from windtunnel.trainers.residual.init_scores import ResidualInputs
from windtunnel.trainers.residual.installation import install_residual
from windtunnel.trainers.residual.residual_stages import InstallableResidual

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


@pytest.mark.parametrize("name", ["softmax", "margins", "ridge_two_targets", "lightgbm_categories", "transformer"])
def test_libraries_of_c_files(name: str, tmp_path: Path) -> None:
    net, rows = windtunnel.compile(fitted(name)), rows_for(name)
    model = opened(net, tmp_path, "c")
    given = columns_of(net, rows)
    for method in model.facts["outputs"]:
        found = getattr(model, method)
        wanted = getattr(fitted(name), "transform" if method == "scores" else method)(rows)
        if method == "predict" and net.head.classes is not None:
            np.testing.assert_array_equal(net.head.classes[found(given)], wanted)
        else:
            np.testing.assert_allclose(found(given), wanted, 1e-9, 1e-9)
        assert found({column: values[:0] for column, values in given.items()}).shape == (0, *np.shape(wanted)[1:])


def test_the_errors_of_libraries_of_c_files(tmp_path: Path) -> None:
    model = opened(windtunnel.compile(fitted("logistic")), tmp_path, "c")
    rows = rows_for("logistic").to_dict("list")
    with pytest.raises(serving.BadRows, match="a number is missing, infinite or beyond float32"):
        model.predict(rows | {"size": [np.inf] * 60})
    with pytest.raises(serving.BadRows, match="texts are read there"):
        model.predict(rows | {"city": [3] * 60})
    with pytest.raises(ValueError, match=r"holds a program \(c\).*trusted=True"):
        serving.load(tmp_path / "net.so")
    shutil.copy(tmp_path / "net.so", tmp_path / "renamed.so")
    with pytest.raises(serving.BadModelFile, match="it has no renamed_facts; name a library after its C file"):
        serving.load(tmp_path / "renamed.so", trusted=True)


def test_a_library_that_replaces_another_is_read_anew(tmp_path: Path) -> None:
    rows = rows_for("logistic")
    for labels in (["no", "yes"], ["yes", "no"]):
        source = LogisticRegression().fit(rows[["size"]], np.where(rows["size"] > rows["size"].median(), *labels))
        model = opened(windtunnel.compile(source), tmp_path, "c")
        np.testing.assert_allclose(model.predict_proba(rows[["size"]]), source.predict_proba(rows[["size"]]), 1e-9)


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
    cells = [torch.arange(1, count, 2) for count in combined.values()]
    residual.set_interactions(
        list(combined), list(combined.values()), cells, [torch.zeros(len(each), 1) for each in cells]
    )
    with torch.no_grad():
        for parameter in residual.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    inputs = ResidualInputs([*range(len(net.encoder.numbers))], [*range(len(net.encoder.categories))])
    install_residual(net, InstallableResidual(residual, inputs))
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


def test_graphs_of_soft_trees_of_large_values(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(2000, 4))
    source = LGBMRegressor(n_estimators=30, verbosity=-1, n_jobs=1).fit(X, 300 * X[:, 0] + 100 * X[:, 1] ** 2)
    net = windtunnel.translate(source, calibrate=X).soften()  # which computes in float32
    model = opened(net, tmp_path, "exported")
    np.testing.assert_allclose(model.predict(columns_of(net, X)), net.predict(X), rtol=1e-5, atol=1e-2)


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
hidden |= {"torch"} if sys.argv[1].endswith((".onnx", ".so")) else {"onnxruntime"}
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
def test_files_name_no_path_of_this_machine(format: str, folder: Path) -> None:
    small(format, folder)
    file = folder / f"net{SUFFIX[format]}"
    parts = [file.read_bytes()]
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as package:
            parts = [package.read(name) for name in package.namelist()]
    package_folder = str(Path(windtunnel.__file__).parent).encode()
    assert not any(package_folder in part or b"site-packages" in part for part in parts)


@pytest.mark.parametrize("format", [*FORMATS, "c"])
def test_windtunnel_is_not_needed(format: str, folder: Path) -> None:
    small(format, folder)
    rows = rows_for("logistic")
    wanted = logistic().predict_proba(rows)[:, 1]
    np.testing.assert_allclose(ask_elsewhere(folder, f"net{SUFFIX[format]}", rows), wanted, 1e-9)


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
