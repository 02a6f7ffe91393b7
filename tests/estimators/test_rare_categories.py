import pickle
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, TargetEncoder
from sklearn.utils.estimator_checks import parametrize_with_checks

import windtunnel
from windtunnel.errors import BadInput, InvalidOption
from windtunnel.estimators import RareCategories
from windtunnel.translators.conversions import CategoryRecoding
from windtunnel.translators.registry import convert

DTYPES = ["str", "object", "category", "string"]
NAN = np.nan
"""The one object, which is found in lists by its identity."""


@parametrize_with_checks([RareCategories(), RareCategories(min_count=2, min_frequency_quantile=0.1, columns=[0])])
def test_sklearn_checks(estimator, check):
    check(estimator)


def words(rows: int = 400, seed: int = 0) -> list[str]:
    return [f"w{number}" for number in np.random.default_rng(seed).geometric(0.15, rows)]


def table(dtype: str = "str", rows: int = 400) -> pd.DataFrame:
    frame = pd.DataFrame({"word": words(rows), "size": np.arange(rows) / 2})
    frame.index = pd.Index(np.arange(rows)[::-1], name="row")
    frame["word"] = frame["word"].astype(dtype).mask(np.arange(rows) % 7 == 0)
    return frame


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("min_count", [0, 1, 5, 10_000])
def test_min_count(dtype, min_count):
    X = table(dtype)
    fitted = RareCategories(min_count=min_count).fit(X)
    counts = Counter(X["word"].dropna())
    assert fitted.categories_ == [sorted(word for word in counts if counts[word] >= min_count), None]
    assert fitted.rare_ == [sorted(word for word in counts if counts[word] < min_count), None]

    out = fitted.transform(X)
    kept = X["word"].isin(fitted.categories_[0])
    assert (out["word"].isna() == ~kept).all()
    assert out["word"][kept].tolist() == X["word"][kept].tolist()
    pd.testing.assert_series_equal(out["size"], X["size"])
    pd.testing.assert_index_equal(out.index, X.index)
    if dtype == "category":
        assert out["word"].cat.categories.tolist() == fitted.categories_[0]
    else:
        assert out["word"].dtype == ("str" if dtype == "string" else X["word"].dtype)


@pytest.mark.parametrize("quantile", [0.0, 0.01, 0.1, 0.5, 0.99])
def test_frequency_quantile(quantile):
    values = words()
    counts = Counter(values)

    def is_rare(word):
        return sum(n for n in counts.values() if n <= counts[word]) / len(values) <= quantile

    fitted = RareCategories(min_frequency_quantile=quantile).fit(pd.DataFrame({"word": values}))
    assert fitted.rare_ == [sorted(word for word in counts if is_rare(word))]


def test_equal_frequencies_are_treated_alike():
    X = pd.DataFrame({"a": ["x"] * 8 + ["p", "q"]})
    assert RareCategories(min_frequency_quantile=0.1).fit(X).rare_ == [[]]
    assert RareCategories(min_frequency_quantile=0.2).fit(X).rare_ == [["p", "q"]]


@pytest.mark.parametrize("dtype", DTYPES)
def test_missing_stays_missing_and_unseen_becomes_missing(dtype):
    fitted = RareCategories().fit(pd.DataFrame({"a": pd.Series(["x", "y", None], dtype=dtype)}))
    out = fitted.transform(pd.DataFrame({"a": pd.Series(["y", "new", None], dtype=dtype)}))
    assert out["a"].isna().tolist() == [False, True, True]
    assert out["a"].tolist() == ["y", NAN, NAN]


def test_every_missing_value_becomes_nan():
    X = pd.DataFrame({"a": pd.Series(["x", None, float("nan"), pd.NA, "x"], dtype=object)})
    assert RareCategories().fit_transform(X)["a"].tolist() == ["x", NAN, NAN, NAN, "x"]


@pytest.mark.parametrize("encoder", [OneHotEncoder(handle_unknown="ignore", sparse_output=False), TargetEncoder()])
@pytest.mark.parametrize("fitted_on", DTYPES)
def test_encoders_give_the_same_for_all_column_types(encoder, fitted_on):
    X, y = table(fitted_on)[["word"]], np.arange(400) % 2
    source = make_pipeline(RareCategories(min_count=30), clone(encoder)).fit(X, y)
    net, wanted = windtunnel.compile(source), source.transform(X)
    for dtype in DTYPES:
        rows = table(dtype)[["word"]]
        np.testing.assert_array_equal(source.transform(rows), wanted)
        np.testing.assert_allclose(net.transform(rows), wanted, rtol=1e-12)


@pytest.mark.parametrize(
    ("X", "expected"),
    [
        (np.array([["a", "u"], ["a", "v"], ["b", "u"]]), [["a", "u"], ["a", NAN], [NAN, "u"]]),
        (np.array([["a", 1.5], ["a", 2], [None, 1]], dtype=object), [["a", 1.5], ["a", 2], [NAN, 1]]),
        ([["a", 1.5], ["a", 2], ["b", 1]], [["a", 1.5], ["a", 2], [NAN, 1]]),
    ],
    ids=["strings", "objects", "lists"],
)
def test_arrays(X, expected):
    out = RareCategories(min_count=2).fit_transform(X)
    assert isinstance(out, np.ndarray) and out.dtype == object
    assert out.tolist() == expected


@pytest.mark.parametrize("dtype", ["int64", "float32", "float64", "bool"])
def test_numbers_pass_unless_named(dtype):
    X = np.array([[1, 1], [1, 0], [0, 1]]).astype(dtype)
    assert RareCategories(min_count=2).fit_transform(X) is X

    fitted = RareCategories(min_count=2, columns=[-1]).fit(X)
    out = fitted.transform(X)
    assert fitted.categories_ == [None, [1]] and fitted.rare_ == [None, [0]]
    assert out.dtype == (X.dtype if X.dtype.kind == "f" else object)
    assert pd.isna(out).tolist() == [[False, False], [False, True], [False, False]]
    assert (out[:, 0] == X[:, 0]).all()

    frame = RareCategories(min_count=2, columns=["b"]).fit_transform(pd.DataFrame(X, columns=["a", "b"]))
    assert frame["a"].dtype == X.dtype and frame["b"].dtype == out.dtype
    assert frame["b"].isna().tolist() == [False, True, False]


def test_mixed_types_sort_numbers_first():
    X = pd.DataFrame({"a": pd.Series(["b", 2, "a", 1.5, True], dtype=object)})
    assert RareCategories().fit(X).categories_ == [[True, 1.5, 2, "a", "b"]]


def test_columns_without_names_and_no_rows():
    X = pd.DataFrame([["a", "u"], ["a", "v"]])
    fitted = RareCategories(min_count=2, columns=[1]).fit(X)
    assert fitted.categories_ == [None, []]
    pd.testing.assert_series_equal(fitted.transform(X)[0], X[0])
    assert fitted.transform(X.iloc[:0]).shape == (0, 2)


def test_input_is_unchanged():
    X = table("object")
    before = X.copy(deep=True)
    RareCategories(min_count=20).fit_transform(X)
    pd.testing.assert_frame_equal(X, before)


def test_set_output_clone_and_pickle():
    fitted = RareCategories(min_count=5).fit(table())
    expected = fitted.transform(table())
    pd.testing.assert_frame_equal(pickle.loads(pickle.dumps(fitted)).transform(table()), expected)
    pd.testing.assert_frame_equal(clone(fitted).set_output(transform="pandas").fit_transform(table()), expected)
    pd.testing.assert_frame_equal(clone(fitted).set_output(transform="default").fit_transform(table()), expected)
    from_array = clone(fitted).set_output(transform="pandas").fit_transform(table().to_numpy(dtype=object))
    assert from_array.columns.tolist() == ["x0", "x1"]


def test_in_a_column_transformer_and_pipeline():
    X = table()
    steps = make_pipeline(RareCategories(min_count=30), OneHotEncoder(handle_unknown="ignore", sparse_output=False))
    out = ColumnTransformer([("words", steps, ["word"])], remainder="passthrough").fit(X)
    assert out.transform(X).shape == (len(X), len(out.named_transformers_["words"][1].categories_[0]) + 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_count": -1}, "min_count=-1"),
        ({"min_count": 2.5}, "min_count=2.5"),
        ({"min_frequency_quantile": 1}, "min_frequency_quantile=1"),
        ({"columns": "word"}, r"such as \['word'\]"),
        ({"columns": 1}, r"such as \[1\]"),
        ({"columns": ["wrod", 7]}, "'wrod' .did you mean 'word'.*, 7: the input has the columns"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(InvalidOption, match=message):
        RareCategories(**options).fit(table())


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (pd.DataFrame({"a": pd.Series([{"x": 1}], dtype=object)}), "column 'a' cannot be read as categories"),
        (pd.DataFrame({"a": []}, dtype="str"), "0 rows"),
    ],
)
def test_bad_tables(X, message):
    with pytest.raises(BadInput, match=message):
        RareCategories().fit(X)


@pytest.mark.parametrize("dtype", ["str", "object"])
def test_the_converter_recodes_as_the_source_does(dtype):
    fitted = RareCategories(min_count=5).fit(table(dtype))
    reading = convert(fitted)
    assert isinstance(reading, CategoryRecoding)
    assert sorted(reading.categories[0]) == sorted(table()["word"].dropna().unique()) and reading.categories[1] is None

    values = [*reading.categories[0], "new", None]
    source = fitted.transform(pd.DataFrame({"word": pd.Series(values, dtype=dtype), "size": 0.0}))["word"]
    recoded = reading.recode(0, values)
    assert [None if pd.isna(value) else value for value in recoded] == [
        None if pd.isna(value) else value for value in source
    ]
    # None stays apart from NaN, which an imputer that comes next may tell apart.
    assert {type(value) for value in recoded if pd.isna(value)} <= {type(value) for value in source if pd.isna(value)}
    assert reading.recode(1, [1.5, None]) == [1.5, None]
