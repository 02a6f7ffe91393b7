"""Few rows are told by the values in them, as their dtypes would tell them, or not at all."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from scipy import sparse

from windtunnel.encode import NONE_CATEGORY, CategoryColumn, RowEncoder, Vocabulary
from windtunnel.encode.vocabulary import FEW_ROWS

NAN = float("nan")
TEXT, NUMBER, MIXED = Vocabulary(("a", "b")), Vocabulary((1, 2.5, 3)), Vocabulary(("a", 1))
KNOWN = {
    "text": TEXT,
    "number": NUMBER,
    "mixed": MIXED,
    "booleans": Vocabulary((False, True)),
    "None among them": Vocabulary(("a", NONE_CATEGORY)),
    "nothing": Vocabulary(()),
    "buckets": Vocabulary(("a",), buckets=3),
    "hashed": Vocabulary(("a", "1"), hashes=(7,)),
    "twice": Vocabulary((1, True)),
    "beyond 2^53": Vocabulary((2.0**53, 1e300)),
}
NO_UNICODE = "\ud800"
CELLS: list[Any] = [
    "a", "b", "x", "1", "", np.str_("a"), b"a", NO_UNICODE, None, NAN, np.nan, np.float64("nan"), pd.NA, pd.NaT,
    1, 0, 3, 1.0, 2.5, -0.0, True, False, np.bool_(True), np.float32(2.5), np.int64(3), np.inf, 2**53, 2**53 + 1, 1e300,
    10**400, 1 + 0j, Decimal(1), Decimal("2.5"), Fraction(5, 2), pd.Timestamp(1), pd.Timedelta(1), object, frozenset(),
]  # fmt: skip


def few_rows() -> Iterator[Any]:
    """Rows of one or two awkward values."""
    pairs = product(CELLS, ["a", 1, 2.5, None, True])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what pandas makes of odd values
        for cells in [*([one] for one in CELLS), *map(list, pairs)]:
            objects = pd.DataFrame({"c": pd.Series(cells, dtype=object)})
            yield from ({"c": cells}, objects, objects.to_numpy())
            if cells[0] is not NO_UNICODE:  # of which pandas makes no column of texts
                yield pd.DataFrame({"c": pd.Series(cells)})
            yield from _single_rows(objects)


def _single_rows(objects: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """A single row as a category, and in the dtypes of Arrow and of pandas that can hold it."""
    texts, dictionary = pa.large_string(), pa.dictionary(pa.int8(), pa.string())
    arrow = [pd.ArrowDtype(dtype) for dtype in (pa.string(), texts, dictionary, pa.int64(), pa.float64(), pa.bool_())]
    for dtype in ["category", *arrow, "Int64", "Float64", "boolean"] if len(objects) == 1 else []:
        with suppress(TypeError, ValueError, OverflowError, pa.ArrowException):
            yield objects.astype(dtype)
            yield objects.astype(dtype).assign(other="text")


def told(encoder: RowEncoder) -> int:
    """How many of these rows are told by their values; which are then encoded as by their dtypes."""
    count = 0
    for rows in few_rows():
        if (found := encoder.encode_few(rows)) is not None:
            wanted = encoder.encode(encoder.select(rows))
            assert found.numbers.dtype == wanted.numbers.dtype and found.ids.dtype == wanted.ids.dtype
            np.testing.assert_array_equal(found.numbers, wanted.numbers)
            assert found.ids.tolist() == wanted.ids.tolist(), rows
            count += 1
    return count


@pytest.mark.parametrize("known", KNOWN)
def test_categories_of_few_rows_are_told_by_their_values_or_not_at_all(known: str) -> None:
    count = told(RowEncoder(["c"], 1, [], [CategoryColumn(0, KNOWN[known])]))
    assert (count > 100) if known in ("text", "number", "booleans", "beyond 2^53") else count == 0


@pytest.mark.parametrize("flag", ["unknown", "missing", "infinite", "fractions"])
@pytest.mark.parametrize("known", ["text", "number", "beyond 2^53"])
def test_few_rows_that_the_source_rejects_are_never_told(known: str, flag: str) -> None:
    assert told(RowEncoder(["c"], 1, [], [CategoryColumn(0, KNOWN[known], **{f"rejects_{flag}": True})])) > 20


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numbers_of_few_rows_are_told_by_their_values_or_not_at_all(dtype: str) -> None:
    assert told(RowEncoder(["c"], 1, [0], dtype=dtype)) > 100


TOLD: dict[str, Any] = {
    "in order": {"age": [1.5, None], "city": ["b", "x"], "income": [3, True]},
    "in another order": {"income": [3, True], "more": [0, 0], "city": ["b", "x"], "age": [1.5, NAN]},
    "an array": np.array([[1.5, "b", 3], [None, "x", True]], dtype=object),
}


@pytest.mark.parametrize("name", TOLD)
def test_few_rows_are_told_by_their_values(name: str) -> None:
    encoder = RowEncoder(["age", "city", "income"], 3, [2, 0], [CategoryColumn(1, TEXT)])
    for rows in (TOLD[name], TOLD[name] if isinstance(TOLD[name], np.ndarray) else pd.DataFrame(TOLD[name])):
        found = encoder.encode_few(rows)
        assert found is not None and found.ids.tolist() == [[3], [0]] and found.ids.dtype == torch.int64
        np.testing.assert_array_equal(found.numbers, [[3, 1.5], [1, np.nan]])
        assert found.numbers.dtype == torch.float32


def test_counts_beside_few_rows() -> None:
    encoder = RowEncoder(["age", "note"], 2, [0, 4, 2], [])
    rows, counts = {"age": [1.5, 2.5], "note": ["x y", ""]}, {2: sparse.coo_array([[3, 9, 0], [0, 0, 5]])}
    found = encoder.encode_few(rows)
    assert found is not None
    wanted = encoder.encode(encoder.select(rows), counts=counts)
    assert encoder.add_counts(found, counts).numbers.tolist() == wanted.numbers.tolist() == [[1.5, 0, 3], [2.5, 5, 0]]


NOT_TOLD: dict[str, Any] = {
    "no rows": {"age": [], "city": []},
    "many rows": {"age": [1.0] * (FEW_ROWS + 1), "city": ["a"] * (FEW_ROWS + 1)},
    "a column missing": {"age": [1.0]},
    "a column given twice": pd.DataFrame([[1.0, "a", "b"]], columns=["age", "city", "city"]),
    "a column that is a number's": {"age": [1.0], "city": ["a"], 1: [2]},
    "columns of other lengths": {"age": [1.0], "city": ["a"], "more": [1, 2]},
    "a column of two dimensions": {"age": [1.0], "city": ["a"], "more": [[1, 2]]},
    "an array for a list": {"age": np.array([1.0]), "city": ["a"]},
    "a dtype of its own": pd.DataFrame({"age": [1.0, 2.0], "city": pd.Series(["a", "b"]).astype("category")}),
    "sparse columns": pd.DataFrame({"age": [1.0], "city": [0.0]}).astype(pd.SparseDtype("float64")),
    "dates": pd.DataFrame({"age": pd.to_datetime(["2026-01-01"]), "city": ["a"]}),
    "an array of another width": np.array([[1.0, "a", 2]], dtype=object),
    "texts": [["a"]],
}


@pytest.mark.parametrize("name", NOT_TOLD)
def test_what_values_do_not_tell(name: str) -> None:
    assert RowEncoder(["age", "city"], 2, [0], [CategoryColumn(1, TEXT)]).encode_few(NOT_TOLD[name]) is None
