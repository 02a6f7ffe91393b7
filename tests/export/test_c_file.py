"""C files: compiled by the system's compiler, and called from C and through ctypes."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from c_library import CLibrary
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.kernel_approximation import AdditiveChi2Sampler
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    SplineTransformer,
    StandardScaler,
)
from sklearn.svm import SVC

import windtunnel
from windtunnel.errors import UnfaithfulOption
from windtunnel.export import serving

FLAGS = ["cc", "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-DWT_PORTABLE"]
GENERATOR = np.random.default_rng(0)
ROWS = 300
TABLE = pd.DataFrame(
    {
        "the city": pd.Series(GENERATOR.choice(["Oslo", 'a "b"\\?', "Åsgård"], ROWS), dtype=object),
        "size": GENERATOR.choice([1.0, 2.5, 40.0], ROWS),
        "double": GENERATOR.normal(size=ROWS),
        "0": GENERATOR.normal(size=ROWS),
    }
)
LABELS = np.array(["no", "mäybe", "yes"])[(TABLE["double"] > 0).to_numpy().astype(int) + (TABLE["0"] > 1)]


class Row(ctypes.Structure):
    _fields_ = (
        ("the_city", ctypes.c_char_p),
        ("size", ctypes.c_double),
        ("double_", ctypes.c_double),
        ("x0", ctypes.c_double),
    )

    @classmethod
    def of(cls, table):
        texts = [None if pd.isna(text) else text.encode() for text in table["the city"]]
        return (cls * len(table))(*map(cls, texts, *(table[name] for name in ("size", "double", "0"))))


def built(net, folder: Path):
    net.export(folder / "my model.c")
    subprocess.run([*FLAGS, "-shared", "-fPIC", folder / "my model.c", "-lm", "-o", folder / "model.so"], check=True)
    return ctypes.CDLL(str(folder / "model.so"))


def called(library, method, table, width, kind):
    output, workspace = np.zeros((len(table), width), kind), ctypes.create_string_buffer(2**22)
    place = ctypes.c_void_p(output.ctypes.data)
    error = getattr(library, f"my_model_{method}")(Row.of(table), ctypes.c_size_t(len(table)), place, workspace)
    return error, output


@pytest.fixture(scope="module")
def trees():
    encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    columns = make_column_transformer((encoder, ["the city", "size"]), remainder="passthrough")
    return make_pipeline(columns, LGBMClassifier(n_estimators=8, verbosity=-1, n_jobs=1)).fit(TABLE, LABELS)


def test_a_library_gives_what_the_source_gives(trees, tmp_path):
    library = built(windtunnel.compile(trees), tmp_path)
    rows = TABLE.copy()
    rows.loc[0, "the city"], rows.loc[1, "size"], rows.loc[2, "0"] = "Rome", 7.0, np.nan
    error, output = called(library, "predict_proba", rows, 3, np.float64)
    assert error == 0
    np.testing.assert_allclose(output, trees.predict_proba(rows), rtol=0, atol=1e-12)
    _, positions = called(library, "predict", rows, 1, np.int32)
    labels = (ctypes.c_char_p * 3).in_dll(library, "my_model_labels")
    assert [labels[at].decode() for at in positions[:, 0]] == trees.predict(rows).tolist()


def test_scores_of_a_library_are_those_of_transformers_alone(tmp_path):
    X = TABLE[["size", "double"]].to_numpy()
    for source, has_scores in ((LinearDiscriminantAnalysis(), False), (PCA(1), True)):
        net = windtunnel.compile(source.fit(X, LABELS))
        built(net, tmp_path)
        (tmp_path / "model.so").rename(tmp_path / "my model.so")
        model = serving.load(tmp_path / "my model.so", trusted=True)
        columns = {"0": X[:, 0], "1": X[:, 1]}
        if has_scores:
            np.testing.assert_array_equal(model.scores(columns), net.transform(X))
        else:
            with pytest.raises(AttributeError, match="has no scores"):
                model.scores(columns)


def test_what_the_source_rejects_has_an_error_code(tmp_path):
    scaled = make_pipeline(SimpleImputer(), StandardScaler())
    columns = make_column_transformer(
        (OneHotEncoder(), ["the city", "size"]), (scaled, ["double"]), (StandardScaler(), ["0"]), (scaled, ["0"])
    )
    pipeline = make_pipeline(columns, LogisticRegression()).fit(TABLE, LABELS)
    library = built(windtunnel.compile(pipeline), tmp_path)
    library.my_model_message.restype = ctypes.c_char_p
    changes = {
        "rejected_number": [{"double": np.inf}, {"0": np.nan}, {"0": -np.inf}],
        "unknown_category": [{"the city": "Rome"}, {"size": 7.0}],
        "missing_category": [{"the city": None}, {"size": np.nan}],
        "infinite_category": [{"size": np.inf}],
    }
    header = (tmp_path / "my model.h").read_text()
    codes = header.split("enum { ")[1].split(" }")[0].split(", ")
    for name, rejected in changes.items():
        for change in rejected:
            row = TABLE[:1].assign(**change)
            with pytest.raises(ValueError):
                pipeline.predict(row)
            error, _ = called(library, "predict", row, 1, np.int32)
            assert codes[error] == f"MY_MODEL_{name.upper()}" and library.my_model_message(error)
    assert codes[called(library, "predict", TABLE[:0], 1, np.int32)[0]] == "MY_MODEL_NO_ROWS"
    taken = TABLE[:50].assign(double=[np.nan] * 50)
    error, output = called(library, "decision_function", taken, 3, np.float64)
    assert error == 0
    np.testing.assert_allclose(output, pipeline.decision_function(taken), rtol=0, atol=1e-12)


@pytest.mark.filterwarnings("ignore:overflow")
def test_computed_columns_are_checked(tmp_path):
    columns = make_column_transformer((PCA(1), ["double", "0"]), (OrdinalEncoder(), ["the city", "size"]))
    forest = RandomForestClassifier(3, max_depth=3, random_state=0)
    pipeline = make_pipeline(columns, forest).fit(TABLE, LABELS)
    library = built(windtunnel.compile(pipeline), tmp_path)
    error, output = called(library, "predict_proba", TABLE, 3, np.float64)
    assert error == 0
    np.testing.assert_allclose(output, pipeline.predict_proba(TABLE), rtol=0, atol=1e-12)
    huge = TABLE[:1].assign(double=1e300)  # only its projection reaches the forest, which computes in float32
    with pytest.raises(ValueError, match="too large"):
        pipeline.predict_proba(huge)
    assert called(library, "predict_proba", huge, 3, np.float64)[0] == 2


MAIN = r"""
#include <math.h>
#include <stdio.h>
#include "tiny.h"
static unsigned char workspace[TINY_WORKSPACE];
int main(void) {
    tiny_row rows[] = {{.the_city = "Oslo", .size = 1, .double_ = 0.5, .x0 = NAN}, {NULL, 2.5, -1, 3}};
    double out[2 * TINY_PREDICT_PROBA_WIDTH];
    int error = tiny_predict_proba(rows, 2, out, workspace);
    for (int at = 0; at < 6; at++) printf("%.17g\n", out[at]);
    return error;
}
"""


def test_a_program_in_c(trees, tmp_path):
    windtunnel.translate(trees).export(tmp_path / "tiny.c")
    (tmp_path / "main.c").write_text(MAIN)
    subprocess.run([*FLAGS, "main.c", "tiny.c", "-lm", "-o", "main"], cwd=tmp_path, check=True)
    printed = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout
    rows = pd.DataFrame([["Oslo", 1.0, 0.5, np.nan], [None, 2.5, -1.0, 3.0]], columns=TABLE.columns)
    expected = trees.predict_proba(rows.astype({"the city": object}))
    np.testing.assert_allclose(np.array(printed.split(), float).reshape(2, 3), expected, rtol=0, atol=1e-12)


def test_what_c_files_cannot_hold(tmp_path):
    from sklearn.feature_extraction.text import CountVectorizer

    texts = make_pipeline(CountVectorizer(), LogisticRegression()).fit(["ab bc", "bc cd", "cd"] * 5, [0, 1, 1] * 5)
    with pytest.raises(UnfaithfulOption, match="countvectorizer"):
        windtunnel.compile(texts).export(tmp_path / "model.c")


def test_null_is_nan_where_the_source_distinguishes_none(tmp_path):
    cells = np.array(["Oslo", "Åsgård", "Oslo", np.nan] * (ROWS // 4), dtype=object)
    table = pd.DataFrame({"city": pd.Series(cells, dtype=object)})
    source = make_pipeline(
        SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore"), LogisticRegression()
    ).fit(table, LABELS)
    rows = pd.DataFrame({"city": pd.Series(["Oslo", "Rome", np.nan, None], dtype=object)})
    library = CLibrary(windtunnel.compile(source), tmp_path)
    np.testing.assert_allclose(library.predict_proba(rows), source.predict_proba(rows), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("step", "outside"),
    [
        (PowerTransformer("box-cox"), -1.0),
        (SplineTransformer(extrapolation="error"), 99.0),
        (MissingIndicator(error_on_new=True), np.nan),
        (AdditiveChi2Sampler(), -1.0),
    ],
    ids=str,
)
def test_rows_that_a_step_rejects_are_errors_in_c(step, outside, tmp_path):
    numbers = pd.DataFrame(GENERATOR.uniform(0.1, 2.0, (ROWS, 2)), columns=["a", "b"])
    numbers.loc[0, "a"] = np.nan if isinstance(step, MissingIndicator) else 1.0  # missing in the first column alone
    source = make_pipeline(step, StandardScaler(), LogisticRegression()).fit(numbers, LABELS)
    library = CLibrary(windtunnel.compile(source), tmp_path)
    np.testing.assert_allclose(library.predict_proba(numbers), source.predict_proba(numbers), rtol=0, atol=1e-9)
    rows = numbers[1:5].copy()
    rows.loc[2, "b"] = outside
    for model in (source, library):
        with pytest.raises(ValueError):  # noqa: PT011  # each library has its own words
            model.predict(rows)


@pytest.mark.parametrize(
    "steps",
    [
        (PolynomialFeatures(2), LogisticRegression()),
        (SimpleImputer(), MinMaxScaler((0, 1000)), SVC()),
        (SimpleImputer(), StandardScaler(), StandardScaler(), Ridge()),
    ],
    ids=["polynomial", "kernel", "scalers"],
)
def test_numbers_that_overflow_on_their_way_are_errors_in_c(steps, tmp_path):
    numbers = pd.DataFrame(GENERATOR.uniform(0.1, 0.2, (ROWS, 2)), columns=["a", "b"])
    source = make_pipeline(*steps).fit(numbers, np.arange(ROWS) % 2)
    library = CLibrary(windtunnel.translate(source), tmp_path)
    np.testing.assert_allclose(library.predict(numbers), source.predict(numbers), rtol=0, atol=1e-9)
    for huge in ((1.5e308, 0.1), (-1.5e308, 1e308)):
        rows = pd.DataFrame([huge], columns=["a", "b"])
        for model in (source, library):
            # Each library has its own words, and NumPy warns of the overflow in the source.
            with pytest.raises(ValueError), np.errstate(over="ignore", invalid="ignore"):  # noqa: PT011
                model.predict(rows)


def test_every_column_has_a_member_of_its_own_in_c_and_in_cpp(tmp_path):
    names = ["a_b_2", "a b", "a-b", "new", "delete", "bool", "and", "x", "a/*", "*/"]
    names += ["linux", "unix", "NULL", "NAN", "INFINITY", "HUGE_VAL", "SIZE_MAX", "INT64_MAX", "EOF", "M_PI", "EDOM"]
    names += ["_Bool", "_Generic", "__LINE__", "__func__", "__int128", "__STDC__", "_x"]
    rows = pd.DataFrame(np.random.default_rng(0).normal(size=(50, len(names))), columns=names)
    windtunnel.compile(LogisticRegression().fit(rows, rows["x"] > 0)).export(tmp_path / "net.c")
    assert 'double a_b_2; /* "a_b_2" */' in (tmp_path / "net.h").read_text().replace("'", '"')
    headers = "".join(f"#include <{header}>\n" for header in ("cerrno", "cmath", "cstdio"))
    code = "int main() { net_row row = {}; return row.new_ != 0; }\n"
    (tmp_path / "main.cpp").write_text(f'{headers}#include "net.h"\n{code}')
    subprocess.run([*FLAGS, "-c", "net.c"], cwd=tmp_path, check=True)
    subprocess.run(["c++", "-Wall", "-Werror", "-c", "main.cpp"], cwd=tmp_path, check=True)
    for name in ("wt", "WT", "7", "full"):
        windtunnel.compile(LogisticRegression().fit(rows, rows["x"] > 0)).export(tmp_path / f"{name}.c")
        subprocess.run([*FLAGS, "-shared", "-fPIC", f"{name}.c", "-lm", "-o", f"{name}.so"], cwd=tmp_path, check=True)
        assert serving.load(tmp_path / f"{name}.so", trusted=True).facts["format"] == "c"


@pytest.mark.parametrize("order", [("one", "two"), ("two", "one")])
def test_two_models_in_one_program(order, tmp_path):
    """Functions of one are never those of the other, which may be of another version of the library."""
    X = np.random.default_rng(0).normal(size=(300, 3))
    steps = {"one": (StandardScaler(), LogisticRegression()), "two": (LGBMClassifier(n_estimators=3, verbosity=-1),)}
    for name, parts in steps.items():
        windtunnel.compile(make_pipeline(*parts).fit(X, X[:, 0] > 0)).export(tmp_path / f"{name}.c")
        subprocess.run([*FLAGS, "-c", f"{name}.c", "-o", f"{name}.o"], cwd=tmp_path, check=True)
        symbols = subprocess.check_output(["nm", "-g", "--defined-only", f"{name}.o"], cwd=tmp_path, text=True)
        assert symbols and all(line.split()[-1].startswith(f"{name}_") for line in symbols.splitlines())
    (tmp_path / "main.c").write_text("int main(void) { return 0; }\n")
    sources = [f"{name}.c" for name in order]
    subprocess.run([*FLAGS, "main.c", *sources, "-lm", "-o", "program"], cwd=tmp_path, check=True)


def test_a_score_of_nan_is_rejected(tmp_path):
    X = GENERATOR.normal(size=(400, 2))
    source = LGBMRegressor(n_estimators=9, linear_tree=True, verbosity=-1, n_jobs=1).fit(X, X[:, 0] - X[:, 1])
    windtunnel.compile(source).export(tmp_path / "net.c")
    subprocess.run([*FLAGS, "-shared", "-fPIC", tmp_path / "net.c", "-lm", "-o", tmp_path / "net.so"], check=True)
    model = serving.load(tmp_path / "net.so", trusted=True)
    rows = np.array([[np.inf, np.inf], [0.0, 0.0]])
    assert np.isnan(source.predict(rows)).tolist() == [True, False]  # infinity less infinity
    with pytest.raises(serving.BadRows, match="1 of 2 rows have no finite score"):
        model.predict(dict(zip(model.number_columns, rows.T, strict=True)))


def test_a_column_that_was_empty_in_fitting_is_a_number(tmp_path):
    """Both steps read it: an encoder with an empty vocabulary, and an imputer."""
    rows = pd.DataFrame({"c": [np.nan] * 40, "x": np.random.default_rng(0).normal(size=40)})
    zero = SimpleImputer(strategy="constant", fill_value=0.0, keep_empty_features=True)
    columns = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["c"]), (zero, ["c", "x"]))
    pipeline = make_pipeline(columns, LogisticRegression()).fit(rows, rows["x"] > 0)
    library = CLibrary(windtunnel.translate(pipeline, calibrate=rows), tmp_path)
    np.testing.assert_allclose(library.predict_proba(rows), pipeline.predict_proba(rows), atol=1e-12)


def test_source_is_compiled_before_it_is_loaded(tmp_path):
    windtunnel.compile(Ridge().fit([[0.0], [1.0]], [0.0, 1.0])).export(tmp_path / "m.c")
    with pytest.raises(serving.BadModelFile, match=r"compiled first: cc .* -shared -fPIC m.c -lm -o m.so"):
        serving.load(tmp_path / "m.c", trusted=True)
