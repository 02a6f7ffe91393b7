"""Columns as servers give them: whatever holds the values, each is read as it is alone, and as the encoder reads it."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pytest
import torch
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder

import windtunnel
from windtunnel.errors import BadInput
from windtunnel.export import serving

NAN, NA = float("nan"), pd.NA
FLOATS = [1.5, -0.0, NAN, 5e-324, 0.1, 1e300]
GAPS = [1.5, None, NAN, -2.0]


def read_only(values: Any) -> Any:
    values.flags.writeable = False
    return values


NUMBERS: dict[str, Any] = {
    "floats": FLOATS,
    "a tuple": tuple(FLOATS),
    "gaps": GAPS,
    "kinds of numbers": [1, True, 2.5, None, np.float32(0.1), np.int8(-3), Decimal("0.1"), Fraction(1, 3), 2**70],
    "nothing": [],
    "nothing but gaps": [None, NAN, NA],
    "an array": np.array(FLOATS),
    "no rows of an array": np.array(FLOATS)[:0],
    "float32": np.array(FLOATS[:-1], np.float32),
    "float16": np.array([0.1, NAN, 3], np.float16),
    "long doubles": np.array([0.1, NAN], np.longdouble) / 3,
    "int64": np.array([2**53 + 1, -(2**63), 2**63 - 1]),
    "uint64": np.array([2**64 - 1, 2**63 + 1025, 2**53 + 1], np.uint64),
    "booleans": np.array([True, False]),
    "other bytes first": np.array(FLOATS, ">f8"),
    "every other": np.arange(9.0)[::-2],
    "a column of a block": np.arange(12.0).reshape(4, 3)[:, 1],
    "read only": read_only(np.array(FLOATS)),
    "masked": np.ma.array([1.0, 2.0, 3.0], mask=[False, True, False]),
    "objects": np.array([1, 2.5, None, NAN, True], object),
    "a tensor": torch.tensor(FLOATS),
    "pandas": pd.Series(FLOATS, index=range(5, 11)),
    "pandas, int8": pd.Series([1, -3], dtype="int8"),
    "pandas, objects": pd.Series([*GAPS, NA], dtype=object),
    "pandas, Int64": pd.Series([2**62 + 1, None], dtype="Int64"),
    "pandas, Float64": pd.Series(GAPS, dtype="Float64"),
    "pandas, boolean": pd.Series([True, None, False], dtype="boolean"),
    "pandas, categories": pd.Series([1.5, NAN, 1.5, 2.0], dtype="category"),
    "pandas, Arrow": pd.Series([1.5, None], dtype=pd.ArrowDtype(pa.float64())),
    "pandas, sparse": pd.Series([0.0, 1.5, NAN], dtype=pd.SparseDtype("float64")),
    "Arrow": pa.array([1.5, None]),
    "Polars": polars.Series([1.5, None, NAN]),
}
NO_NUMBERS: dict[str, Any] = {
    "texts": ["a", "b"],
    "a text among numbers": [1.0, None, "1", b"2"],
    "bytes": [1, b"1"],
    "lists": [[1.0], [2.0]],
    "complex": np.array([1j]),
    "texts of an array": np.array(["1", "2"]),
    "days": [1.0, pd.Timestamp("2020-01-01")],
    "days of NumPy": [1.0, np.datetime64("2020-01-01", "ns")],
    "durations": pd.Series([np.timedelta64(1, "s")], dtype=object),
    "complex numbers": [np.complex128(1j)],
    "long complex numbers": [np.clongdouble(1j)],
    "days of pandas": pd.Series(pd.to_datetime(["2020-01-01"])),
    "pandas, texts": pd.Series(["1", None]),
    "pandas, categories": pd.Series(["1", None], dtype="category"),
}
TEXTS = ["Oslo", "", "Bergen", "Oslo", "東京", "x" * 70, "Oslo"]
HOLDERS: dict[str, Callable[[list[Any]], Any]] = {
    "a list": list,
    "objects": lambda values: np.array([*values, None], object)[:-1],
    "pandas": pd.Series,
    "pandas, objects": lambda values: pd.Series(values, dtype=object),
    "pandas, Python's": lambda values: pd.Series(values, dtype=pd.StringDtype("python", na_value=NA)),
    "pandas, Arrow's": lambda values: pd.Series(values, dtype=pd.StringDtype("pyarrow", na_value=NA)),
    "pandas, Arrow": lambda values: pd.Series(values, dtype=pd.ArrowDtype(pa.string())),
    "pandas, categories": lambda values: pd.Series(values, dtype="category"),
    "pandas, more categories": lambda values: pd.Series(values, dtype="category").cat.add_categories(["Pisa"]),
    "an index": pd.Index,
    "Arrow": pa.array,
    "Polars": polars.Series,
}


def values_of(column: Any) -> list[Any]:
    return list(column.tolist() if hasattr(column, "tolist") else column)


@cache
def identity() -> windtunnel.Translation:
    return windtunnel.compile(FunctionTransformer().fit(pd.DataFrame({"x": [1.0]})))


@pytest.fixture(scope="module")
def cities(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[windtunnel.Translation, serving.Model]]:
    """A model over one column of texts, and its file: of an encoder that takes every text, or rejects unknown ones."""
    folder = tmp_path_factory.mktemp("cities")

    @cache
    def opened(unknown: str) -> tuple[windtunnel.Translation, serving.Model]:
        rows = pd.DataFrame({"city": ["Oslo", "Bergen", "", "東京"] * 5 + [None] * 5 * (unknown == "ignore")})
        net = windtunnel.compile(
            make_pipeline(OneHotEncoder(handle_unknown=unknown), LogisticRegression()).fit(rows, rows["city"] > "P")
        )
        net.export(folder / f"{unknown}.pt2", format="exported")
        return net, serving.load(folder / f"{unknown}.pt2", trusted=True)

    return opened


# Numbers


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_is_read_as_alone(name: str) -> None:
    column = NUMBERS[name]
    found = np.asarray(serving._numbers("x", column))
    alone = [serving._numbers("x", [value])[0] for value in values_of(column)]
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found.view(np.int64), np.array(alone, np.float64).view(np.int64))


@pytest.mark.parametrize("name", [name for name in NUMBERS if len(NUMBERS[name])])
def test_numbers_are_those_of_the_encoder(name: str) -> None:
    column = NUMBERS[name]
    rows = pd.DataFrame({"x": column.to_pandas() if name in ("Arrow", "Polars") else column})
    wanted = identity().encode(rows).numbers[:, 0]
    np.testing.assert_array_equal(np.asarray(serving._numbers("x", column)), wanted.numpy())


@pytest.mark.parametrize("name", NO_NUMBERS)
def test_what_is_no_number_is_named(name: str) -> None:
    column = NO_NUMBERS[name]
    with pytest.raises(serving.BadRows, match=r"^column 'x' holds .*; numbers are read there") as among:
        serving._numbers("x", column)
    rejected = []
    for value in values_of(column):
        try:
            serving._numbers("x", [value])
        except serving.BadRows as alone:
            rejected.append(str(alone))
    assert str(among.value) == rejected[0]
    with pytest.raises(BadInput):
        identity().encode(pd.DataFrame({"x": column}))


TABLES: dict[str, Any] = {
    "a block": np.ones((2, 2)),
    "a number": np.array(1.0),
    "a tensor": torch.ones(2, 1),
    "pandas": pd.DataFrame({"1": [1.0]}),
    "Polars": polars.DataFrame({"1": [1.0]}),
    "Arrow": pa.table({"1": [1.0]}),
    "a dict": {"1": 1.0},
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_no_column(name: str) -> None:
    for read in (serving._numbers, serving._strings):
        with pytest.raises(serving.BadRows, match="^column '1' is a .*, no single column; give a list or an array"):
            read("1", TABLES[name], *[None] * (read is serving._strings))


def test_whole_numbers_beyond_float64() -> None:
    with pytest.raises(serving.BadRows, match="float64 cannot hold"):
        serving._numbers("x", [1.0, 10**400])


def test_long_doubles_beyond_float64() -> None:
    assert serving._numbers("x", np.array(["-1e400"], np.longdouble))[0] == -np.inf


def test_what_is_given_is_left_alone() -> None:
    column = np.array(FLOATS)
    assert not np.shares_memory(np.asarray(serving._numbers("x", column)), column)


# Texts


@pytest.mark.parametrize("times", [1, serving.FEW_ROWS])
@pytest.mark.parametrize("gaps", [[], [None], [NAN, None, NAN]], ids=["whole", "gaps", "NaN and None"])
@pytest.mark.parametrize("holder", HOLDERS)
def test_a_text_is_read_as_alone(holder: str, gaps: list[Any], times: int, cities: Any) -> None:
    if holder in ("an index", "Arrow", "Polars") and NAN in gaps:
        pytest.skip("they hold no NaN among texts")
    column = HOLDERS[holder]((TEXTS[:3] + gaps + TEXTS[3:]) * times)
    texts = serving._strings("city", column, serving.NONE)
    found = texts.listed()
    assert found == [serving._strings("city", [value], serving.NONE).listed()[0] for value in values_of(column)]
    assert len(texts) == len(column) and set(texts.distinct) == set(found)
    net, model = cities("ignore")
    rows = pd.DataFrame({"city": pd.Series(values_of(column), dtype=object)})
    np.testing.assert_allclose(model.predict_proba({"city": column}), net.predict_proba(rows), 1e-12)


@pytest.mark.parametrize("times", [1, serving.FEW_ROWS])
@pytest.mark.parametrize("bad", ["Os\0lo", "Oslo\0"])
@pytest.mark.parametrize("holder", HOLDERS)
def test_texts_with_a_nul(holder: str, bad: str, times: int) -> None:
    column = HOLDERS[holder]([*TEXTS, None, bad, "\0"] * times)
    with pytest.raises(serving.BadRows) as among:
        serving._strings("city", column, None)
    assert str(among.value).startswith(f"column 'city' holds {bad!r}, with a NUL in it")


@pytest.mark.parametrize("times", [1, serving.FEW_ROWS])
@pytest.mark.parametrize("holder", ["a list", "objects", "pandas, objects", "pandas, categories"])
@pytest.mark.parametrize("odd", [3, 2.5, b"Oslo", True, pd.Timestamp("2020-01-01")])
def test_what_is_no_text_is_named(odd: Any, holder: str, times: int) -> None:
    column = HOLDERS[holder](["Oslo", None, odd, "Os\0lo"] * times)
    with pytest.raises(serving.BadRows) as among:
        serving._strings("city", column, None)
    assert str(among.value) == f"column 'city' holds {odd!r}; texts are read there, None or NaN where missing"


@pytest.mark.parametrize("column", [[["Oslo"]], [1.0, "Os\0lo"], [np.str_("Oslo"), {}]], ids=str)
def test_what_is_no_text_comes_first(column: list[Any]) -> None:
    with pytest.raises(serving.BadRows, match="texts are read there"):
        serving._strings("city", column, None)


@pytest.mark.parametrize("times", [1, serving.FEW_ROWS])
@pytest.mark.parametrize("holder", HOLDERS)
def test_what_an_encoder_rejects(holder: str, times: int, cities: Any) -> None:
    _, model = cities("error")
    hold = HOLDERS[holder]
    fine = hold(["Oslo", "", "Bergen"] * times)
    assert model.predict({"city": fine}).shape == (3 * times,)
    with pytest.raises(serving.BadRows, match="column 'city': its encoder rejects the category 'Rome'$"):
        model.predict({"city": hold(["Oslo", None, "Rome", "Paris"] * times)})
    with pytest.raises(serving.BadRows, match="column 'city': its encoder rejects missing values"):
        model.predict({"city": hold(["Oslo", None, ""] * times)})


# Rows


ROWS = {"city": ["Oslo", None, "Rome", "\u6771\u4eac"], "more": [1.0, None, 2.0, 3.0]}


@pytest.mark.parametrize("make", [polars.DataFrame, pa.table, pa.RecordBatch.from_pydict])
def test_tables_are_read_as_the_translation_reads_them(make: Any, tmp_path: Any) -> None:
    values = np.array(["Oslo", "Rome", None, np.nan, "Rome", "Rome"] * 10, dtype=object)
    rows = pd.DataFrame({"city": pd.Series(values, dtype=object)})
    encode = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore"))
    model = make_pipeline(encode, LogisticRegression(C=100)).fit(rows, [one in (None, "Oslo") for one in values])
    net, given = windtunnel.compile(model), make(ROWS)
    net.export(tmp_path / "net.pt2", format="exported")
    found = np.asarray(serving.load(tmp_path / "net.pt2", trusted=True).predict_proba(given))
    np.testing.assert_allclose(found, net.predict_proba(given), 1e-12)
    missing = None if make is polars.DataFrame else NAN
    alike = pd.DataFrame({"city": pd.Series(["Oslo", missing, "Rome", "\u6771\u4eac"], dtype=object)})
    np.testing.assert_allclose(found, model.predict_proba(alike), 1e-9)


@pytest.mark.parametrize("column", ["1", 1])
def test_names_that_are_the_same_text(column: Any) -> None:
    lists = dict.fromkeys(("string_columns", "none_columns", "told_by_text", "classes"), [])
    facts = lists | {"number_columns": ["1"], "outputs": ["scores"], "task": "transform"}
    model = serving.Model(facts, lambda method, numbers, strings: (None, numbers[0].tolist()))
    assert model.scores({0: [1.0], column: [2.0]}) == [2.0]
    with pytest.raises(serving.BadRows, match=r"^columns given twice: \['1'\]"):
        model.scores({"1": [1.0], 1: [2.0]})
    twice = pd.DataFrame([[1.0, 2.0, 3.0]], columns=[0, 0, column])
    assert model.scores(twice) == [3.0]  # what is not read does not matter


# Scores


@pytest.mark.parametrize("make", [np.array, torch.tensor])
def test_rows_that_are_rejected_are_counted_and_infinite_scores_are_not(make: Any) -> None:
    scores = make([[1.0, NAN], [-np.inf, 1.0], [1.0, -1e30], [NAN, NAN]])
    assert serving._count_nan_rows(scores) == 2
    assert serving._count_nan_rows(scores[1:3]) == serving._count_nan_rows(scores[:0]) == 0


@pytest.mark.parametrize("kind", ["datetime64[ns]", "timedelta64[ns]", "datetime64[D]"])
def test_dates_and_huge_numbers_are_no_numbers(kind: str, tmp_path: Path) -> None:
    net = windtunnel.compile(LogisticRegression().fit(pd.DataFrame({"a": [0.0, 1.0]}), [0, 1]))
    net.export(tmp_path / "net.ts")
    model = serving.load(tmp_path / "net.ts", trusted=True)
    with pytest.raises(serving.BadRows, match="numbers are read there"):
        model.predict({"a": np.array([1, "NaT"], dtype=kind)})
    with pytest.raises(serving.BadRows, match="float64 cannot hold"):
        model.predict({"a": [10**400]})


@pytest.mark.parametrize("name", ["UP.ONNX", "model.bin", "model"])
def test_an_onnx_file_is_known_by_its_content(name: str, tmp_path: Path) -> None:
    rows = pd.DataFrame({"size": [0.0, 1.0, 2.0, 3.0]})
    net = windtunnel.compile(LogisticRegression().fit(rows, [0, 1, 0, 1]))
    net.export(tmp_path / name, format="onnx")
    model = serving.load(tmp_path / name)
    np.testing.assert_allclose(model.predict_proba(rows), net.predict_proba(rows), 1e-9)
    with pytest.raises(serving.BadRows, match=r"LazyFrame, which holds none yet; give rows.collect\(\)"):
        model.predict(polars.DataFrame({"size": [0.0]}).lazy())


def test_a_column_of_polars_that_pandas_cannot_take_is_named() -> None:
    rows = pd.DataFrame({"size": [0.0, 1.0, 2.0, 3.0]})
    net = windtunnel.compile(LogisticRegression().fit(rows, [0, 1, 0, 1]))
    with pytest.raises(BadInput, match="the polars table has a column that pandas cannot take"):
        net.predict(polars.DataFrame({"size": [1]}, schema={"size": polars.Int128}))
