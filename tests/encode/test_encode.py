"""Raw rows to tensors: vocabularies, kinds of columns, missing and unknown values, names and positions."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from category_encoders import HashingEncoder
from hypothesis import given, strategies as st
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

import windtunnel
from windtunnel.encode import NONE_CATEGORY, Batch, CategoryColumn, RowEncoder, Vocabulary, as_frame, hash_bucket
from windtunnel.encode.vocabulary import FEW_ROWS, UNKNOWN_ID
from windtunnel.errors import BadInput, UnsupportedEstimator

NAN = float("nan")
TEXT, NUMBER, MIXED = Vocabulary(("a", "b")), Vocabulary((1, 2.5, 3)), Vocabulary(("a", 1))
LONG = Vocabulary((7, 2**60, 2**60 + 1))

IDS: dict[str, tuple[Vocabulary, pd.Series, list[int]]] = {
    "str": (TEXT, pd.Series(["b", "x", None], dtype="str"), [3, 0, 1]),
    "object": (TEXT, pd.Series(["b", "x", None, NAN, pd.NA], dtype=object), [3, 0, 1, 1, 1]),
    "category": (TEXT, pd.Series(["b", "x", None]).astype("category"), [3, 0, 1]),
    "nullable string": (TEXT, pd.Series(["b", "x", None], dtype="string"), [3, 0, 1]),
    "Arrow string": (TEXT, pd.Series(["b", "x", None], dtype=pd.ArrowDtype(pa.string())), [3, 0, 1]),
    "text and numbers": (TEXT, pd.Series(["b", 1, None], dtype=object), [3, 0, 1]),
    "no text at all": (TEXT, pd.Series([NAN, NAN]), [1, 1]),
    "None only": (TEXT, pd.Series([None], dtype=object), [1]),
    "missing text only": (NUMBER, pd.Series([None], dtype="str"), [1]),
    "missing dates only": (TEXT, pd.Series([pd.NaT]), [1]),
    "float": (NUMBER, pd.Series([1.0, 2.5, 2.4, NAN]), [2, 3, 0, 1]),
    "int": (NUMBER, pd.Series([3, 4]), [4, 0]),
    "uint8": (NUMBER, pd.Series([3, 4], dtype="uint8"), [4, 0]),
    "nullable int": (NUMBER, pd.Series([3, None], dtype="Int64"), [4, 1]),
    "bool": (NUMBER, pd.Series([True, False]), [2, 0]),
    "numbers as objects": (NUMBER, pd.Series([1, 2.5, None, True], dtype=object), [2, 3, 1, 2]),
    "decimals": (NUMBER, pd.Series([Decimal("2.5"), Decimal(9)], dtype=object), [3, 0]),
    "infinity": (NUMBER, pd.Series([np.inf]), [0]),
    "number categories": (NUMBER, pd.Series([3, 4, None]).astype("category"), [4, 0, 1]),
    "a text among numbers": (NUMBER, pd.Series([3, "x"], dtype=object), [4, 0]),
    "mixed": (MIXED, pd.Series(["a", 1, 1.0, "1", None], dtype=object), [2, 3, 3, 0, 1]),
    "numbers for mixed": (MIXED, pd.Series([1, 2]), [3, 0]),
    "booleans": (Vocabulary((False, True)), pd.Series([True, None], dtype=object), [3, 1]),
    "nothing known": (Vocabulary(()), pd.Series(["a", None]), [0, 1]),
    "long ids": (LONG, pd.Series([2**60, 2**60 + 2, 2**60 + 1]), [3, 0, 4]),
    "long ids as objects": (LONG, pd.Series([2**60 + 1, None, 7.0, True], dtype=object), [4, 1, 2, 0]),
    "nullable long ids": (LONG, pd.Series([2**60 + 1, None], dtype="Int64"), [4, 1]),
    "no rows": (TEXT, pd.Series([], dtype=object), []),
}


@pytest.mark.parametrize("name", IDS)
def test_ids(name: str) -> None:
    vocabulary, column, want = IDS[name]
    ids = vocabulary.ids(column)
    assert ids.dtype == np.int64 and ids.tolist() == want
    encoder = RowEncoder(["c"], 1, [], [CategoryColumn(0, vocabulary)])
    assert encoder.encode(encoder.select(column.to_frame("c"))).ids[:, 0].tolist() == want
    many = pd.concat([column] * (FEW_ROWS + 1))  # which are not looked up one by one
    assert vocabulary.ids(many).tolist() == want * (FEW_ROWS + 1)


@pytest.mark.parametrize("count", [1, FEW_ROWS + 1])
def test_what_neither_arrow_nor_float64_can_hold_is_unknown(count: int) -> None:
    for vocabulary, value in ((TEXT, "\ud800"), (NUMBER, 10**400)):
        column = pd.Series([value] * count, dtype=object)
        assert vocabulary.ids(column).tolist() == [UNKNOWN_ID] * count
        assert vocabulary.ids_of_values(column.tolist()) in (None, [UNKNOWN_ID] * count)
    with pytest.raises(BadInput, match=r"values such as 1000.*\.\.\. of dtype object; the pipeline reads numbers"):
        RowEncoder(["c"], 1, [0]).encode({0: pd.Series([10**400] * count, dtype=object)}, rows=count)


def frames() -> dict[str, pd.DataFrame]:
    """Tables whose columns are found in different ways."""
    plain = pd.DataFrame({"age": [1.5, np.nan], "city": ["a", "x"], "income": [3, 4]})
    return {
        "in order": plain,
        "in another order": plain[["income", "city", "age"]],
        "with more": plain.assign(more=1),
        "one given twice": pd.concat([plain, pd.DataFrame({"more": [1, 2], "again": 3})], axis=1).rename(
            columns={"again": "more"}
        ),
        "labels of two parts": pd.concat([plain], axis=1, keys=["part"]),
        "Arrow dictionary": plain.assign(
            city=pd.Series(["a", "x"], dtype=pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string())))
        ),
    }


@pytest.mark.parametrize("name", frames())
def test_columns_are_those_that_are_selected(name: str) -> None:
    frame = frames()[name]
    fitted = [*map(str, frame.columns)] if name == "labels of two parts" else ["age", "city", "income"]
    encoder = RowEncoder(fitted, 3, [0, 2], [CategoryColumn(1, TEXT)])
    found, wanted = encoder.encode(encoder.columns(frame), rows=2), encoder.encode(encoder.select(frame))
    torch.testing.assert_close(found.numbers, wanted.numbers, rtol=0, atol=0, equal_nan=True)
    assert found.ids.tolist() == wanted.ids.tolist() == [[2], [0]]
    np.testing.assert_array_equal(found.numbers, [[1.5, 3], [np.nan, 4]])


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "bool", "Int64", "object"])
@pytest.mark.parametrize("names", [["a", "b"], None])
def test_a_table_of_numbers_is_read_as_its_columns_are(dtype: str, names: list[str] | None) -> None:
    frame = pd.DataFrame({"a": [1, 0], "b": [0, 1]}).astype(dtype).assign(b=[0.5, np.nan])
    encoder = RowEncoder(names, 2, [1, 0], dtype="float64")
    block = encoder.encode_array(frame)
    assert (block is None) == (dtype in ("Int64", "object"))
    for found in (block or encoder.encode(encoder.select(frame)), encoder.encode(encoder.columns(frame), rows=2)):
        np.testing.assert_array_equal(found.numbers, [[0.5, 1.0], [np.nan, 0.0]])
    assert encoder.encode_array(frame.assign(c=1)) is None


@given(st.lists(st.one_of(st.text(max_size=3), st.none()), max_size=8), st.sets(st.text(max_size=2), max_size=5))
def test_ids_of_any_text(values: list[Any], known: set[str]) -> None:
    vocabulary = Vocabulary(tuple(sorted(known)))
    place = {value: index + 2 for index, value in enumerate(vocabulary.values)}
    want = [1 if value is None else place.get(value, 0) for value in values]
    assert vocabulary.ids(pd.Series(values, dtype=object)).tolist() == want
    assert vocabulary.ids(pd.Series(values, dtype="str")).tolist() == want


@pytest.mark.parametrize("dtype", [object, "str", "category"])
def test_buckets_are_those_of_the_hashing_encoder(dtype: Any) -> None:
    column = pd.Series([f"value {k % 40}" for k in range(90)], dtype=dtype)
    hashed = HashingEncoder(n_components=7, max_process=1).fit_transform(column.astype(object).to_frame())
    vocabulary = Vocabulary(("value 3",), buckets=7)
    ids = vocabulary.ids(column)
    known = column.astype(object).to_numpy() == "value 3"
    assert (ids[known] == 2).all()
    np.testing.assert_array_equal(ids[~known] - 3, hashed.to_numpy().argmax(axis=1)[~known])
    assert hash_bucket("value 3", 7) == hashed.to_numpy()[3].argmax() and len(vocabulary) == 10


NUMBERS: dict[str, tuple[pd.Series, list[float]]] = {
    "float": (pd.Series([1.5, NAN, np.inf]), [1.5, NAN, np.inf]),
    "beyond float32": (pd.Series([1e39, -1e39, 1e-60]), [np.inf, -np.inf, 0.0]),
    "nullable": (pd.Series([1, None], dtype="Int64"), [1, NAN]),
    "nullable bool": (pd.Series([True, None], dtype="boolean"), [1, NAN]),
    "Arrow": (pd.Series([1.5, None], dtype=pd.ArrowDtype(pa.float64())), [1.5, NAN]),
    "objects": (pd.Series([1, None, 2.5, Decimal("0.5"), True], dtype=object), [1, NAN, 2.5, 0.5, 1]),
    "category": (pd.Series([7, 8, None]).astype("category"), [7, 8, NAN]),
    "integer category": (pd.Series(pd.Categorical([7, 8, None], categories=[7, 8])), [7, 8, NAN]),
    "missing text": (pd.Series([None, None], dtype="str"), [NAN, NAN]),
    "missing objects": (pd.Series([None], dtype=object), [NAN]),
    "missing dates": (pd.Series([pd.NaT]), [NAN]),
    "missing categories": (pd.Series([None]).astype("category"), [NAN]),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers(name: str) -> None:
    column, want = NUMBERS[name]
    encoder = RowEncoder(["c"], 1, [0])
    numbers = encoder.encode(encoder.select(column.to_frame("c"))).numbers
    assert numbers.dtype == torch.float32
    np.testing.assert_array_equal(numbers[:, 0], np.array(want, dtype=np.float32))


WRONG_NUMBERS: dict[str, tuple[pd.Series, str]] = {
    "text": (pd.Series(["1", "x"]), "values such as 'x' of dtype str"),
    "text after missing": (pd.Series([None, "x"], dtype=object), "values such as 'x' of dtype object"),
    "dates": (
        pd.Series(pd.to_datetime(["2026-01-01"])),
        "values such as Timestamp('2026-01-01 00:00:00') of dtype dat",
    ),
    "durations": (pd.Series(pd.to_timedelta([1])), "of dtype timedelta64"),
    "text categories": (pd.Series(["x"]).astype("category"), "values such as 'x' of dtype category"),
    "numbers and text": (pd.Series([1, "x"], dtype=object), "values such as 'x' of dtype object"),
    "complex": (pd.Series([1j]), "values such as 1j of dtype complex128"),
    "lists": (pd.Series([[1]]), "values such as [1] of dtype object"),
}


@pytest.mark.parametrize("name", WRONG_NUMBERS)
def test_what_is_no_number(name: str) -> None:
    column, message = WRONG_NUMBERS[name]
    encoder = RowEncoder(["age"], 1, [0])
    with pytest.raises(BadInput) as error:
        encoder.encode(encoder.select(column.to_frame("age")))
    assert str(error.value).startswith("column 'age' holds values such as ")
    assert message in str(error.value)
    assert "the pipeline reads numbers there." in str(error.value)
    assert ("FunctionTransformer" in str(error.value)) == (name == "dates")
    assert str(error.value).endswith("Convert the column, or encode it in the pipeline before fitting.")


WRONG_CATEGORIES: dict[str, tuple[Vocabulary, pd.Series, str]] = {
    "numbers for text": (
        TEXT,
        pd.Series([3, 4]),
        "3 of dtype int64, which is number; its categories are text, such as 'a'",
    ),
    "text for numbers": (
        NUMBER,
        pd.Series(["3"]),
        "'3' of dtype str, which is text; its categories are number, such as 1",
    ),
    "dates": (
        TEXT,
        pd.Series(pd.to_datetime(["2026-01-01"])),
        "which is datetime64; its categories are text, such as 'a'",
    ),
    "dates for numbers": (
        NUMBER,
        pd.Series(pd.to_datetime(["2026-01-01"])),
        "which is datetime64; its categories are n",
    ),
    "bytes for mixed": (
        MIXED,
        pd.Series([b"a"]),
        "b'a' of dtype object, which is bytes; its categories are mixed, such",
    ),
    "dates where nothing is known": (
        Vocabulary(()),
        pd.Series(pd.to_datetime([1])),
        "datetime64; its categories are empty.",
    ),
}


@pytest.mark.parametrize("name", WRONG_CATEGORIES)
def test_what_is_no_category(name: str) -> None:
    vocabulary, column, message = WRONG_CATEGORIES[name]
    encoder = RowEncoder(["city"], 1, [], [CategoryColumn(0, vocabulary)])
    with pytest.raises(BadInput) as error:
        encoder.encode(encoder.select(column.to_frame("city")))
    assert str(error.value).startswith("column 'city' holds values such as ") and message in str(error.value)
    assert str(error.value).endswith(". Convert the column to what the pipeline saw.")


def rejecting(**rejects: bool) -> RowEncoder:
    return RowEncoder(["city", "more"], 2, [1], [CategoryColumn(0, TEXT, **rejects)])


def test_unknown_categories_are_named() -> None:
    frame = pd.DataFrame({"city": ["a", "x", "z", "x", None], "more": 1.0})
    with pytest.raises(BadInput) as error:
        rejecting(rejects_unknown=True).encode(rejecting().select(frame))
    assert str(error.value) == (
        "column 'city' holds categories that were not there in fitting and are rejected: 'x', 'z'. Fit the "
        "encoder with handle_unknown='ignore' or a value for unknown ones; for a model that reads categories without "
        "an encoder, such as XGBoost, make them missing; or fine-tune on rows with them first."
    )
    with pytest.raises(BadInput, match="are rejected: missing values. Fit"):
        rejecting(rejects_missing=True).encode(rejecting().select(frame))


def test_training_lets_unknown_categories_through_for_good() -> None:
    encoder, frame = rejecting(rejects_unknown=True), pd.DataFrame({"city": ["a", "x"], "more": 1.0})
    rows = encoder.select(frame)
    assert encoder.encode(rows, training=True).ids[:, 0].tolist() == [2, 0]
    assert encoder.encode(rows).ids[:, 0].tolist() == [2, 0]
    assert len(encoder.categories) == 1 and len(encoder.categories[0].vocabulary) == 4


def test_training_on_known_categories_goes_on_rejecting() -> None:
    encoder = rejecting(rejects_unknown=True, rejects_missing=True)
    encoder.encode(encoder.select(pd.DataFrame({"city": ["a"], "more": 1.0})), training=True)
    assert encoder.categories[0].rejects_unknown and encoder.categories[0].rejects_missing


def test_the_same_column_twice() -> None:
    encoder = RowEncoder(["zip"], 1)
    assert [encoder.add_number(0), encoder.add_number(0)] == [0, 0]
    column = CategoryColumn(0, NUMBER)
    assert [
        encoder.add_category(column),
        encoder.add_category(CategoryColumn(0, NUMBER)),
        encoder.add_category(CategoryColumn(0, TEXT)),
    ] == [0, 0, 1]
    assert encoder.used_columns() == [0]


NAMES = ["age", "city", "income"]


@pytest.fixture
def encoder() -> RowEncoder:
    return RowEncoder(NAMES, 3, [0, 2])


def test_only_columns_that_are_read_need_be_there(encoder: RowEncoder) -> None:
    frame = pd.DataFrame({"income": [2.0], "age": [1.0]})
    assert encoder.encode(encoder.select(frame)).numbers.tolist() == [[1.0, 2.0]]
    with pytest.raises(BadInput, match="columns missing: 'city'. Given: 'income', 'age'"):
        encoder.select(frame, range(encoder.width))


def test_a_text_among_numbers_as_text_is_named(encoder: RowEncoder) -> None:
    rows = pd.DataFrame({"age": ["1.5", "unknown", "2"], "income": [1.0, 2.0, 3.0]})
    with pytest.raises(BadInput, match="column 'age' holds values such as 'unknown' of dtype"):
        encoder.encode(encoder.select(rows))


def test_no_column_that_is_read_is_taken_for_a_missing_one(encoder: RowEncoder) -> None:
    with pytest.raises(BadInput, match=r"columns missing: 'income'\. Given: 'age', 'town'"):
        encoder.select(pd.DataFrame({"age": [1.0], "town": ["x"]}))
    with pytest.raises(BadInput, match="is the file separated by commas"):
        encoder.select(pd.DataFrame({"age;income;city": ["1;2;x"]}))


def test_missing_columns_and_their_nearest(encoder: RowEncoder) -> None:
    with pytest.raises(BadInput) as error:
        encoder.select(pd.DataFrame({"Age": [1.0], "town": ["x"]}))
    assert str(error.value) == (
        "columns missing: 'age' (given: 'Age'), 'income'. Given: 'Age', 'town'. "
        "The pipeline reads 'age', 'income'; rename or add the missing ones."
    )


def test_many_missing_columns_are_counted() -> None:
    names = [f"column {k}" for k in range(100)]
    with pytest.raises(BadInput) as error:
        RowEncoder(names, 100, list(range(100))).select(pd.DataFrame({"x": [1.0]}))
    assert "'column 11' and 88 more. Given: 'x'." in str(error.value) and len(str(error.value)) < 600


def test_duplicated_columns(encoder: RowEncoder) -> None:
    frame = pd.DataFrame([[1.0, 2.0, 3.0]], columns=["age", "age", "income"])
    with pytest.raises(BadInput, match="^columns given twice: 'age'; each name must be there once.$"):
        encoder.select(frame)
    unread = pd.DataFrame([[1.0, 2.0, 3.0, 4.0]], columns=["age", "city", "city", "income"])
    assert encoder.encode(encoder.select(unread)).numbers.tolist() == [[1.0, 4.0]]


@pytest.mark.parametrize("rows", [np.ones((1, 2)), [[1.0, 2.0]], torch.ones(1, 2)], ids=["array", "list", "tensor"])
def test_arrays_of_another_width(encoder: RowEncoder, rows: Any) -> None:
    with pytest.raises(BadInput) as error:
        encoder.select(rows)
    assert str(error.value) == (
        "got 2 columns; the pipeline was fitted on 3: 'age', 'city', 'income'. Give a DataFrame with these names."
    )
    with pytest.raises(BadInput, match="^got 2 columns; the pipeline was fitted on 3.$"):
        RowEncoder(None, 3).select(rows)


FLAT = {
    "array": (np.ones(3), "ndarray with 1 dimensions"),
    "series": (pd.Series([1.0]), "Series with 1 dimensions"),
    "list": ([1.0, 2.0], "list with 1 dimensions"),
    "cube": (np.ones((1, 1, 1)), "ndarray with 3 dimensions"),
    "number": (3, "int with 0 dimensions"),
    "text": ("rows.csv", "str with 0 dimensions"),
    "nothing": (None, "NoneType with 0 dimensions"),
    "texts": (["age"], "list with 1 dimensions"),
}


@pytest.mark.parametrize("name", FLAT)
def test_what_is_no_table(name: str) -> None:
    rows, what = FLAT[name]
    with pytest.raises(BadInput) as error:
        as_frame(rows)
    assert str(error.value) == (
        f"rows given as {what}; accepted are a pandas DataFrame, an Arrow table, a dict of columns, a list of dicts, "
        "or an array with two dimensions. A single row is X.reshape(1, -1) of an array or X.iloc[[0]] of a DataFrame."
    )


def test_dicts_of_bad_columns() -> None:
    with pytest.raises(
        BadInput, match="^columns of different lengths: 'a' of 2, 'b' of 1; every column needs one value"
    ):
        as_frame({"a": [1, 2], "b": [1]})
    with pytest.raises(
        BadInput, match="^the columns 'a', 'b' of a dict must have one dimension; give a list or an array"
    ):
        as_frame({"a": 1, "b": "text", "c": [1]})


def test_dicts_of_series_with_other_indices() -> None:
    frame = as_frame({"a": pd.Series([1, 2], index=[5, 6]), "b": np.array([3, 4])})
    assert frame.to_numpy().tolist() == [[1, 3], [2, 4]]


def test_lists_keep_their_values() -> None:
    rows = [[1, "a", None], [2.5, None, float("nan")]]
    frame = as_frame(rows)
    assert frame.iloc[0].tolist() == rows[0] and frame.iloc[1, 1] is None and np.isnan(frame.iloc[1, 2])


def test_none_has_an_id_of_its_own_where_the_source_tells_it_from_nan() -> None:
    vocabulary = Vocabulary(("a", NONE_CATEGORY))
    assert vocabulary.ids(pd.Series(["a", None, np.nan, "x"], dtype=object)).tolist() == [2, 3, 1, 0]
    assert vocabulary.ids(pd.Series(["a", None], dtype="str")).tolist() == [2, 1]


def test_batches_of_another_translation(encoder: RowEncoder) -> None:
    ready = Batch(torch.zeros(2, 2), torch.zeros(2, 0, dtype=torch.int64))
    assert encoder.check_batch(ready).numbers is ready.numbers
    assert encoder.check_batch(Batch(ready.numbers.double(), ready.ids)).numbers.dtype == torch.float32
    with pytest.raises(BadInput) as error:
        encoder.check_batch(Batch(torch.zeros(2, 1), torch.zeros(2, 3, dtype=torch.int64)))
    assert str(error.value) == (
        "got a batch of 1 numbers in 2 rows and 3 ids in 2 rows; this translation reads 2 numbers and 0 ids. "
        "Give raw rows, or what its own encode gave."
    )


def test_a_column_that_float32_blurs_is_said_once() -> None:
    encoder = RowEncoder(["stamp", "age"], 2, numbers=[0, 1])
    rows = pd.DataFrame({"stamp": 1.6e9 + np.arange(50.0), "age": np.arange(50.0)})
    with pytest.warns(UserWarning, match="'stamp' runs from 1600000000 to 1600000049: float32.*Subtract a constant"):
        encoder.encode(encoder.select(rows))
    encoder.encode(encoder.select(rows))


def test_years_are_what_they_are_in_float32() -> None:
    encoder = RowEncoder(None, 1, numbers=[0])
    assert encoder.encode_array(np.array([[2016.0], [2017.0]] * 50)) is not None


@pytest.mark.parametrize(
    "vocabulary", [TEXT, NUMBER, Vocabulary(("a", NONE_CATEGORY))], ids=["text", "number", "None known"]
)
def test_none_in_a_list_is_missing_whatever_stands_beside_it(vocabulary: Vocabulary) -> None:
    encoder = RowEncoder(["x"], 1, categories=[CategoryColumn(0, vocabulary)])
    for column in ([None], [None, vocabulary.values[0]], [None] * 50, [None] * 50 + [vocabulary.values[0]]):
        (first, *_) = encoder.encode(encoder.select({"x": column})).ids[:, 0].tolist()
        assert first == 1


def test_an_array_that_float32_blurs_is_told_column_by_column() -> None:
    encoder = RowEncoder(None, 3, numbers=[0, 1, 2])
    given = np.arange(5000.0)
    rows = np.stack([1.6e9 + given, given, np.where(given == 3, np.inf, 2e9 + given)], axis=1)
    with pytest.warns(UserWarning) as said:
        found = encoder.encode_array(rows)
    assert [str(one.message).partition(" runs")[0] for one in said] == ["column number 0", "column number 2"]
    assert found is not None and torch.equal(found.numbers, torch.from_numpy(rows.astype(np.float32)))
    encoder.encode_array(rows)


def test_names_that_are_half_a_surrogate_pair() -> None:
    frame = as_frame([{"size": 1.0, "\ud800": "a"}, {"size": 2.0, "\ud800": "b"}])
    assert list(frame) == ["size", "\ud800"] and frame["size"].tolist() == [1.0, 2.0]


def test_a_known_category_may_be_half_a_surrogate_pair() -> None:
    column = pd.Series(["\ud800", "b", None, "other"], dtype=object)
    assert Vocabulary(("\ud800", "b")).ids(column).tolist() == [2, 3, 1, 0]
    many = pd.Series(["\ud800", "b", "other"] * 20, dtype=object)
    assert Vocabulary(("\ud800", "b")).ids(many).tolist() == [2, 3, 0] * 20


def test_booleans_of_numpy_among_objects_are_numbers() -> None:
    source = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    source.fit(pd.DataFrame({"c": [0, 1, 2] * 9}))
    rows, net = pd.DataFrame({"c": pd.Series([np.True_, 2, np.False_], dtype=object)}), windtunnel.compile(source)
    assert net.transform(rows).tolist() == source.transform(rows).tolist()
    assert [net.transform(rows[at : at + 1]).item() for at in range(3)] == [1, 2, 0]


def test_the_text_that_stands_for_none_is_no_category() -> None:
    rows = pd.DataFrame({"c": ["\ue000None", "a", "b"] * 9})
    source = OneHotEncoder(sparse_output=False).fit(rows)
    with pytest.raises(UnsupportedEstimator, match="stands for None"):
        windtunnel.translate(source, untranslated="error")
    np.testing.assert_array_equal(windtunnel.compile(source).transform(rows), source.transform(rows))


@pytest.mark.parametrize("column", [pa.array([1.5, None]), pa.chunked_array([[1.5], [None]])], ids=["array", "chunks"])
def test_a_dict_may_hold_columns_of_arrow(column: Any) -> None:
    encoder = RowEncoder(["a"], 1, [0], dtype="float64")
    np.testing.assert_array_equal(encoder.encode(encoder.select({"a": column})).numbers, [[1.5], [np.nan]])
