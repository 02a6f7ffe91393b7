import math
import pickle
from math import ceil, sqrt

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from windtunnel.errors import BadInput, InvalidOption
from windtunnel.estimators import RareCategories, TwoHotEncoder
from windtunnel.translators.conversions import CategoryEncoding
from windtunnel.translators.registry import convert

DTYPES = ["str", "object", "category", "string"]


@parametrize_with_checks([TwoHotEncoder(), TwoHotEncoder(columns=[0]), TwoHotEncoder(columns=[-1])])
def test_sklearn_checks(estimator, check):
    check(estimator)


def two_hots(values, vocabulary):
    """The definition, one row at a time."""
    m = ceil(sqrt(len(vocabulary)))
    high = ceil(len(vocabulary) / m)
    out = np.zeros((len(values), high + m))
    for row, value in enumerate(values):
        if value in vocabulary:
            c = vocabulary.index(value)
            out[row, c // m] = 1
            out[row, high + c % m] = 1
    return out


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 9, 10, 50])
def test_codes(count, dtype):
    vocabulary = sorted(f"v{number}" for number in range(count))
    values = [*reversed(vocabulary), None]
    encoder = TwoHotEncoder().fit(pd.DataFrame({"a": pd.Series(values, dtype=dtype)}))
    assert encoder.categories_ == [vocabulary]
    shown = [*values, "new", vocabulary[-1]]
    out = encoder.transform(pd.DataFrame({"a": pd.Series(shown, dtype=dtype)}))
    assert out.dtype == np.float64 and out.flags.c_contiguous
    np.testing.assert_array_equal(out, two_hots(shown, vocabulary))
    assert len(np.unique(out[:count], axis=0)) == count


def test_columns_stay_in_their_order():
    X = pd.DataFrame({"n": [1, 2, 3], "city": ["b", "a", "c"], "f": [0.5, np.nan, 2], "flag": [True, False, True]})
    encoder = TwoHotEncoder().fit(X)
    expected = np.column_stack([X["n"], two_hots(X["city"].tolist(), ["a", "b", "c"]), X["f"], X["flag"]])
    np.testing.assert_array_equal(encoder.transform(X), expected.astype(np.float64))
    names = ["n", "city_a0", "city_a1", "city_b0", "city_b1", "f", "flag"]
    assert encoder.get_feature_names_out().tolist() == names
    framed = clone(encoder).set_output(transform="pandas").fit_transform(X.set_index(pd.Index([7, 8, 9])))
    assert framed.columns.tolist() == names and framed.index.tolist() == [7, 8, 9]


@pytest.mark.parametrize(
    "X",
    [
        [["a", 1], ["b", 2.5], [None, None]],
        np.array([["a", 1], ["b", 2.5], [np.nan, np.nan]], dtype=object),
        pd.DataFrame({"x": ["a", "b", None], "y": pd.array([1, 2.5, None], dtype="Float64")}),
    ],
    ids=["lists", "objects", "frame"],
)
def test_numbers_pass_through(X):
    expected = [[1, 1, 0, 1], [1, 0, 1, 2.5], [0, 0, 0, np.nan]]
    np.testing.assert_array_equal(TwoHotEncoder().fit_transform(X), expected)


def test_numbers_as_categories():
    X = np.array([[30.0, 1], [10, 2], [20, 3], [np.nan, 4]])
    encoder = TwoHotEncoder(columns=[0]).fit(X)
    assert encoder.categories_ == [[10, 20, 30], None]
    np.testing.assert_array_equal(
        encoder.transform(X), np.column_stack([two_hots([30, 10, 20, None], [10, 20, 30]), X[:, 1]])
    )
    np.testing.assert_array_equal(TwoHotEncoder().fit_transform(X), X)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rare_categories_as_input(dtype):
    values = ["x"] * 5 + ["y"] * 4 + ["z"]
    X = pd.DataFrame({"a": pd.Series(values, dtype=dtype), "n": np.arange(10.0)})
    pipeline = make_pipeline(RareCategories(min_count=2), TwoHotEncoder(handle_unknown="error")).fit(X)
    assert pipeline[-1].categories_ == [["x", "y"], None]
    np.testing.assert_array_equal(pipeline.transform(X)[:, :-1], two_hots(values, ["x", "y"]))
    array = make_pipeline(RareCategories(min_count=2), TwoHotEncoder()).fit_transform(X.to_numpy(dtype=object))
    np.testing.assert_array_equal(array, pipeline.transform(X))


def test_no_categories():
    X = pd.DataFrame({"a": pd.Series([None, None], dtype="str"), "n": [1.0, 2.0]})
    encoder = TwoHotEncoder().fit(X)
    assert encoder.categories_ == [[], None]
    assert encoder.get_feature_names_out().tolist() == ["n"]
    np.testing.assert_array_equal(encoder.transform(X.assign(a="new")), [[1], [2]])
    assert encoder.transform(X.iloc[:0]).shape == (0, 1)


def test_unused_categories_of_a_dtype_are_not_in_the_vocabulary():
    X = pd.DataFrame({"a": pd.Categorical(["x"], categories=["w", "x"])})
    assert TwoHotEncoder().fit(X).categories_ == [["x"]]


def test_handle_unknown_error():
    X = pd.DataFrame({"a": ["x", "y", None], "b": ["u", "v", "w"]})
    encoder = TwoHotEncoder(handle_unknown="error").fit(X)
    assert encoder.transform(X)[2, :3].tolist() == [0, 0, 0]
    with pytest.raises(BadInput, match=r"\['q'\] in column 'a'; \['r'\] in column 'b'"):
        encoder.transform(pd.DataFrame({"a": ["q", "x", None], "b": ["u", "r", "w"]}))


def test_bad_input():
    with pytest.raises(InvalidOption, match="handle_unknown='skip'"):
        TwoHotEncoder(handle_unknown="skip").fit([["a"]])
    with pytest.raises(ValueError, match="column 1 passes through as a number"):
        TwoHotEncoder(columns=[0]).fit(np.array([["a", "b"]], dtype=object))
    fitted = TwoHotEncoder().fit(pd.DataFrame({"a": ["x"], "n": [1.0]}))
    with pytest.raises(ValueError, match="column 'n' passes through as a number"):
        fitted.transform(pd.DataFrame({"a": ["x"], "n": ["one"]}))


def test_clone_pickle_and_column_transformer():
    X = pd.DataFrame({"a": ["x", "y", "z"], "n": [1.0, 2.0, 3.0]})
    encoder = TwoHotEncoder().fit(X)
    expected = encoder.transform(X)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(encoder)).transform(X), expected)
    np.testing.assert_array_equal(clone(encoder).fit_transform(X), expected)
    split = ColumnTransformer([("two_hot", TwoHotEncoder(), ["a"])], remainder="passthrough")
    np.testing.assert_array_equal(split.fit_transform(X), expected)
    assert split.get_feature_names_out()[0] == "two_hot__a_a0"


@pytest.mark.parametrize("handle_unknown", ["ignore", "error"])
def test_converter(handle_unknown):
    fitted = TwoHotEncoder(handle_unknown=handle_unknown).fit(pd.DataFrame({"a": ["y", "x"], "n": [1.0, 2.0]}))
    reading = convert(fitted)
    assert isinstance(reading, CategoryEncoding)
    # NaN among the categories: a missing value is all zeros even where unknown categories are rejected.
    assert reading.categories == [["x", "y", math.nan], None]
    assert reading.rejects_unknown == (handle_unknown == "error")
