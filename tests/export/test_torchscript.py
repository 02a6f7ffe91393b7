from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from export_cases import PIPELINES, binary, fitted, frame, rows_for, target, translated, with_host_step
from parity import compiled
from sklearn.decomposition import NMF
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.neighbors import NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, OneHotEncoder, QuantileTransformer
from torch import nn

import windtunnel
from windtunnel.compiler.scripted import script
from windtunnel.encode import CategoryColumn, RowEncoder, Vocabulary, hash_bucket
from windtunnel.errors import BadInput, InvalidOption, UnfaithfulOption
from windtunnel.export import export
from windtunnel.export.guarded import CHUNK, Guarded
from windtunnel.export.md5 import bucket_of_bytes
from windtunnel.modules.base import MODULES, Module
from windtunnel.modules.linear.linear import Linear
from windtunnel.modules.outputs import links
from windtunnel.program.head import Head
from windtunnel.program.program import Program, ProgramStep, Take
from windtunnel.program.records.origin import Origin

RAISED = (torch.jit.Error, RuntimeError)


def read(path: Path) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`torch\.jit", DeprecationWarning)
        return torch.jit.load(path)


def exported(net: windtunnel.Translation, tmp_path: Path) -> Any:
    net.export(tmp_path / "net.ts")
    return read(tmp_path / "net.ts")


def given(program: Any, rows: pd.DataFrame, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, list[Any]]:
    numbers = torch.tensor(rows[program.number_columns()].to_numpy(dtype=np.float64), dtype=dtype)
    texts = [[None if pd.isna(text) else str(text) for text in rows[name]] for name in program.string_columns()]
    return numbers, texts


@pytest.mark.parametrize("exact", [False, True], ids=["soft", "exact"])
@pytest.mark.parametrize("name", PIPELINES)
def test_the_file_scores_as_the_translation_does(name: str, exact: bool, tmp_path: Path) -> None:
    net = windtunnel.compile(fitted(name)) if exact else translated(name)
    program, rows = exported(net, tmp_path), rows_for(name)
    data = given(program, rows)
    for _ in range(3):  # the interpreter optimises with what it has seen
        torch.testing.assert_close(program(*data), net.scores(rows), rtol=1e-6, atol=1e-6)
    if "predict_proba" in net.head.methods:
        torch.testing.assert_close(program.predict_proba(*data).numpy(), net.predict_proba(rows), rtol=1e-6, atol=1e-6)
    if net.head.classes is not None:
        np.testing.assert_array_equal(net.classes_[program.predict(*data)], net.predict(rows))
        assert program.classes() == [str(label) for label in net.classes_]
    elif "predict" in net.head.methods:
        torch.testing.assert_close(program.predict(*data).numpy(), net.predict(rows), rtol=1e-6, atol=1e-6)
    assert hasattr(program, "predict_proba") == ("predict_proba" in net.head.methods)


@pytest.mark.parametrize("count", [0, 1, 2, 9000])
@pytest.mark.parametrize("name", ["logistic", "lightgbm_categories", "transformer"])
def test_any_number_of_rows(name: str, count: int, tmp_path: Path) -> None:
    net = translated(name)
    program, rows = exported(net, tmp_path), rows_for(name)
    rows = rows.iloc[np.arange(count) % len(rows)]
    scores = program(*given(program, rows))
    assert scores.shape == (count, net.scores(rows_for(name)).shape[1])
    if count:
        torch.testing.assert_close(scores, net.scores(rows), rtol=1e-6, atol=1e-6)
    if name != "transformer":
        assert program.predict_proba(*given(program, rows)).shape == (count, 2)
        assert program.predict(*given(program, rows)).shape == (count,)


def test_trained_weights_go_into_the_file(tmp_path: Path) -> None:
    net = translated("logistic")
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
    net.train()
    program = exported(net, tmp_path)
    assert net.training and next(net.parameters()).requires_grad
    assert not any(parameter.requires_grad for parameter in program.parameters())
    torch.testing.assert_close(program(*given(program, frame())), net.scores(frame()), rtol=1e-6, atol=1e-6)


BLOCKED = """
import importlib.abc, json, sys, warnings

class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"windtunnel", "sklearn", "lightgbm", "pandas", "category_encoders", "pyarrow"}:
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Blocker())
try:
    import sklearn
except ImportError:
    pass
else:
    raise SystemExit("the blocker does not work")
import torch
warnings.simplefilter("ignore")
program = torch.jit.load(sys.argv[1])
rows = json.loads(sys.argv[2])
numbers = torch.tensor([[float("nan") if v is None else v for v in rows[name]] for name in program.number_columns()])
output = program.predict_proba(numbers.t().double(), [rows[name] for name in program.string_columns()])
print(json.dumps({"classes": program.classes(), "proba": output.tolist()}))
"""


def test_the_file_needs_torch_alone(tmp_path: Path) -> None:
    net = translated("lightgbm_binary")
    net.export(tmp_path / "net.ts")
    rows = frame(20, seed=2)
    rows["code"] = 2.0  # the script makes a float32 tensor first
    rows = rows.astype({"size": np.float32, "price": np.float32})
    columns = {
        name: [None if pd.isna(value) else value for value in rows[name].astype(object)] for name in rows.columns
    }
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED, "net.ts", json.dumps(columns)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    output = json.loads(done.stdout)
    assert output["classes"] == ["no", "yes"]
    np.testing.assert_allclose(output["proba"], net.predict_proba(rows), rtol=1e-6, atol=1e-6)


LINKS = {
    "identity": ("regression", {}, 2),
    "probabilities": ("multiclass", {}, 3),
    "shares": ("multiclass", {}, 3),
    "exp": ("regression", {}, 1),
    "expm1": ("regression", {}, 1),
    "logistic": ("regression", {"scale": 0.7}, 1),
    "log1p_exp": ("regression", {}, 1),
    "signed_square": ("regression", {}, 1),
    "sigmoid": ("binary", {"scale": 2.5}, 1),
    "softmax": ("multiclass", {}, 3),
    "sigmoids": ("multiclass", {"scale": 0.3}, 3),
    "one_vs_rest": ("multiclass", {}, 3),
    "modified_huber": ("multiclass", {}, 3),
}


def linear(head: Head, outputs: int = 1) -> windtunnel.Translation:
    weight = torch.randn(outputs, 2, generator=torch.Generator().manual_seed(0))
    step = ProgramStep(Linear(weight, torch.zeros(outputs)), [Take(0, [0, 1])], "model")
    return windtunnel.Translation(Program([step]), RowEncoder(None, 2, [1, 0]), head, [Origin("model", "Model")])


@pytest.mark.parametrize("link", links.LINKS)
def test_every_link(link: str, tmp_path: Path) -> None:
    task, options, outputs = LINKS[link]
    classes = None if task == "regression" else np.arange(2 if outputs == 1 else outputs)
    methods = ("predict",) if task == "regression" else ("predict", "predict_proba")
    net = linear(Head(task, link, "logistic", options, classes=classes, methods=methods, flat=outputs == 1), outputs)
    program = exported(net, tmp_path)
    assert program.number_columns() == ["0", "1"]
    rows = np.random.default_rng(0).normal(size=(50, 2))
    np.testing.assert_array_equal(program.predict(torch.tensor(rows), []), net.predict(rows))
    if task != "regression":
        np.testing.assert_array_equal(program.predict_proba(torch.tensor(rows), []), net.predict_proba(rows))


def test_steps_of_methods_that_are_not_in_the_file_are_left_out(tmp_path: Path) -> None:
    rows = frame()[["size", "code"]]
    net = windtunnel.compile(RandomForestClassifier(2, max_depth=2, random_state=0).fit(rows, rows["code"] > 1))
    assert "apply" in net.program.method_steps  # which no module can be called
    program = exported(net, tmp_path)
    torch.testing.assert_close(program(*given(program, rows)), net.scores(rows))


def test_one_class_is_always_predicted(tmp_path: Path) -> None:
    head = Head("binary", "sigmoid", "logistic", classes=np.array(["only"]), methods=("predict",))
    program = exported(linear(head), tmp_path)
    assert program.predict(torch.randn(4, 2), []).tolist() == [0, 0, 0, 0]


# Categories


def test_buckets_are_those_of_python() -> None:
    compiled = script(Bucket())
    texts = ["", "a", "Ålesund 東京", *("x" * length for length in (55, 56, 63, 64, 65, 119, 120, 200))]
    for text in texts:
        expected = hash_bucket(text, 1009)
        assert bucket_of_bytes(list(text.encode()), 1009) == expected
        assert compiled(text, 1009) == expected


class Bucket(nn.Module):
    def forward(self, text: str, buckets: int) -> int:
        return bucket_of_bytes([ord(byte) for byte in text], buckets)


def test_rejected_categories_raise_with_the_column(tmp_path: Path) -> None:
    program = exported(windtunnel.compile(binary(LogisticRegression(), OneHotEncoder())), tmp_path)
    rows = frame()
    numbers, texts = given(program, rows)
    program(numbers, texts)
    with pytest.raises(RAISED, match="column 'city': its encoder rejects the category Paris"):
        program(numbers, [["Paris", *texts[0][1:]]])
    numbers[3, program.number_columns().index("code")] = 3.25
    with pytest.raises(RAISED, match=r"column 'code': its encoder rejects the category 3.25"):
        program(numbers, texts)


def test_rejected_missing_values_raise_with_the_column(tmp_path: Path) -> None:
    rows = frame()[["code", "city"]].fillna({"city": "none"})
    pipeline = make_pipeline(OneHotEncoder(), LogisticRegression()).fit(rows, rows["code"] > 1)
    program = exported(windtunnel.compile(pipeline), tmp_path)
    numbers, texts = given(program, rows)
    with pytest.raises(RAISED, match="column 'city': its encoder rejects missing values"):
        program(numbers, [[None, *texts[0][1:]]])
    numbers[0] = float("nan")
    with pytest.raises(RAISED, match="column 'code': its encoder rejects missing values"):
        program(numbers, texts)


def test_float32_is_rejected_where_it_would_miss_categories(tmp_path: Path) -> None:
    program = exported(translated("logistic"), tmp_path)
    with pytest.raises(RAISED, match="'code'.* hold categories that float32 cannot tell; give numbers as float64"):
        program(*given(program, frame(), torch.float32))
    rows = frame().assign(code=lambda rows: rows["code"].replace(0.1, 0.5))
    pipeline = binary(LogisticRegression()).fit(rows, target(rows) > 0)
    net = windtunnel.translate(pipeline, calibrate=rows)
    program = exported(net, tmp_path)
    numbers, texts = given(program, rows, torch.float32)
    torch.testing.assert_close(program(numbers, texts), net.scores(rows), rtol=1e-5, atol=1e-6)


def test_texts_and_numbers_side_by_side_are_rejected(tmp_path: Path) -> None:
    net = linear(Head("regression", methods=("predict",)))
    net.encoder.add_category(CategoryColumn(1, Vocabulary(("a", 1))))
    with pytest.raises(UnfaithfulOption, match="column number 1 has texts and numbers among its categories"):
        net.export(tmp_path / "net.ts")


def test_a_column_read_as_text_and_as_a_number_is_rejected(tmp_path: Path) -> None:
    net = linear(Head("regression", methods=("predict",)))
    net.encoder.add_category(CategoryColumn(1, Vocabulary(("a", "b"))))
    with pytest.raises(UnfaithfulOption, match="columns number 1 are read as text in one place and as numbers"):
        net.export(tmp_path / "net.ts")


# Rows that do not fit


@pytest.mark.parametrize(
    ("numbers", "texts", "message"),
    [
        (torch.zeros(3, 2), [["a"] * 3], "numbers of shape .* expected one column for each of .size, price, code"),
        (torch.zeros(3), [["a"] * 3], "numbers of shape"),
        (torch.zeros(3, 3), [], "0 lists of texts; expected one for each of .city"),
        (torch.zeros(3, 3), [["a"] * 2], "2 texts in column city, 3 rows"),
    ],
)
def test_rows_that_do_not_fit(numbers: Any, texts: Any, message: str, tmp_path: Path) -> None:
    program = exported(translated("logistic"), tmp_path)
    with pytest.raises(RAISED, match=message):
        program(numbers, texts)


def test_scores_that_are_not_finite_raise(tmp_path: Path) -> None:
    head = Head("binary", "sigmoid", "logistic", classes=np.array([0, 1]), methods=("predict",))
    program = exported(linear(head), tmp_path)
    rows = torch.zeros(5, 2)
    rows[2, 0] = float("nan")
    with pytest.raises(RAISED, match="1 rows have no finite score"):
        program(rows, [])


# What the source rejects

ODD = (0.0, -1.0, 0.5, 3.0, 1e5, np.nan, np.inf, -np.inf, 1e39, -1e300)
BOUNDED = {
    "BinTables": "bins two-hot, with the numbers",
    "Chi2Features": "additive chi2 features",
    "Chi2KernelMap": "kernel ridge, chi2",
    "CodeTables": "categorical naive bayes",
    "Interpolated": "isotonic",
    "KernelSum": "kernel density, gaussian",
    "LogCosineFeatures": "skewed chi2 features",
    "MissingFlags": "flags of missing numbers",
    "MultiplicativeUpdates": "nmf, multiplicative, frobenius",
    "NonNegativeDescent": "nmf",
    "Power": "power, yeo-johnson",
    "RadiusNeighborsOrReject": "within a radius, euclidean, uniform",
    "Spline": "splines, constant",
    "SublinearTfidf": "TfidfVectorizer(max_df=0.8, min_df=2, sublinear_tf=True)",
    "TopicProportions": "topics",
    "VotesByDistance": "neighbours, euclidean, distance, ball_tree",
    "WhitenedKernel": "nystroem, rbf",
}
"""A case for every module that says itself what its source rejects."""


def test_every_bounded_module_has_a_case() -> None:
    ours = {name: one for name, one in MODULES.items() if one.__module__.startswith("windtunnel.")}
    assert {name for name, one in ours.items() if one.rejected_rows is not Module.rejected_rows} == BOUNDED.keys()


@pytest.mark.parametrize("name", BOUNDED)
def test_what_a_bounded_module_rejects(name: str) -> None:
    (one, *_) = (one for one in compiled(BOUNDED[name]).program.steps if type(one.module).__name__ == name)
    width = sum(take.count for take in one.takes)
    step = ProgramStep(one.module, [Take(0, [*range(width)])], name, one.rejects).eval()
    guarded, told = script(Guarded(step)), set()
    for value in ODD:
        values = [torch.full((3, width), 0.5, dtype=torch.float64), torch.zeros(3, 0, dtype=torch.int64)]
        values[0][1, -1] = value
        told.add(count := int(step.rejected(values).sum()))
        if count:
            with pytest.raises(RAISED, match=f"{count} of 3 rows scored at once have no finite score: step {name}"):
                guarded(values, True)
        else:
            torch.testing.assert_close(guarded(values, True), step(values), equal_nan=True)
    assert max(told) > 0


REJECTING: dict[str, Any] = {
    "trees": lambda: GradientBoostingClassifier(n_estimators=3, random_state=0),
    "bins": lambda: make_pipeline(KBinsDiscretizer(3, strategy="uniform"), LogisticRegression()),
    "quantiles": lambda: make_pipeline(QuantileTransformer(n_quantiles=20), LogisticRegression()),
    "a transformer": lambda: QuantileTransformer(n_quantiles=20),
    "all rows together": lambda: NMF(2, init="nndsvda", max_iter=500),
    "probabilities past the scores": lambda: NearestCentroid(),
    "labels past the scores": lambda: FixedThresholdClassifier(RandomForestClassifier(3, random_state=0)),
}


def rejecting(name: str, dtype: str) -> tuple[windtunnel.Translation, pd.DataFrame]:
    rows = frame()[["size", "code"]].abs()
    return windtunnel.compile(REJECTING[name]().fit(rows, rows["size"] > 0.7), dtype=dtype), rows


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", REJECTING)
def test_the_file_rejects_what_the_translation_rejects(name: str, dtype: str, tmp_path: Path) -> None:
    net, rows = rejecting(name, dtype)
    program, rejected = exported(net, tmp_path), 0
    methods = ["scores", *(one for one in ("predict", "predict_proba") if hasattr(program, one))]
    for value in ODD:
        odd = rows[:3].copy()
        odd.iloc[1, 0] = value
        for method in methods:
            ask = program if method == "scores" else getattr(program, method)
            try:
                wanted = getattr(net, method)(odd)
            except BadInput:
                rejected += 1
                with pytest.raises(RAISED, match="1 of 3 rows scored at once have no finite score: step"):
                    ask(*given(program, odd))
            else:
                if "predict" in methods and net.scores(odd).isnan().any():  # the difference of what is infinite
                    with pytest.raises(RAISED, match="1 rows have no finite score"):
                        ask(*given(program, odd))
                    continue
                np.testing.assert_allclose(ask(*given(program, odd)), wanted, 1e-5, 1e-6)
    assert rejected >= 2 * len(methods)


@pytest.mark.parametrize("name", REJECTING)
def test_rejected_rows_in_a_later_slice_and_no_rows(name: str, tmp_path: Path) -> None:
    net, rows = rejecting(name, "float64")
    program = exported(net, tmp_path)
    numbers = given(program, rows.iloc[np.arange(CHUNK + 10) % len(rows)])[0]
    scores = program(numbers, [])
    assert program(numbers[:0], []).shape == (0, scores.shape[1])
    numbers[CHUNK + 5, 1] = np.inf
    with pytest.raises(RAISED, match=f"1 of {CHUNK + 10 if net.program.needs_all_rows() else 10} rows scored at once"):
        program(numbers, [])


# What cannot be exported


def test_host_steps_are_rejected_by_name(tmp_path: Path) -> None:
    net = windtunnel.translate(with_host_step(), calibrate=frame())
    with pytest.raises(UnfaithfulOption, match=r"'columns.custom' \(Custom\) stayed on the host"):
        net.export(tmp_path / "net.ts")
    assert not list(tmp_path.iterdir())


def test_a_typo_in_the_format_is_met_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="format='Torch-Script' is not known; did you mean torchscript"):
        export(linear(Head("regression")), tmp_path / "net", "Torch-Script")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "net.onx",
            r"no format has the suffix .onx; take .c \(c\), .json \(xgboost\), .onnx \(onnx\), .pt2",
        ),
        ("net", "no format has files without a suffix; take "),
        ("net.windtunnel", r"call net.save\(path\)"),
    ],
)
def test_a_suffix_of_no_format_is_met_with_those_of_all(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        export(linear(Head("regression")), tmp_path / name)


def test_a_module_that_does_not_compile_is_met_with_the_words_of_the_compiler() -> None:
    class Lambda(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (lambda: x)()

    with pytest.raises(UnfaithfulOption, match="cannot be compiled as TorchScript"):
        script(Lambda())
