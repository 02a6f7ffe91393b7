"""Tables of Arrow and polars: what pandas' metadata would make of them, and whole numbers beside missing ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import windtunnel
from windtunnel.errors import BadInput

IDS = [2**53 + k for k in range(6)]


def fitted(column: Any) -> Any:
    X = pd.DataFrame({"c": np.resize(np.array(column), 300), "x": np.linspace(-1, 1, 300)})
    columns = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["c"]), remainder="passthrough")
    return make_pipeline(columns, LogisticRegression(C=100)).fit(X, np.resize([0, 1], 300))


@pytest.mark.parametrize("translated", [windtunnel.translate, windtunnel.compile])
def test_an_index_of_pandas_changes_nothing(translated: Any) -> None:
    net = translated(fitted(IDS))
    rows = pd.DataFrame({"c": pd.Series([*IDS, None], dtype=object), "x": np.zeros(7)})
    expected = net.predict_proba(pa.Table.from_pandas(rows).replace_schema_metadata(None))
    assert len(np.unique(expected[:6, 1].round(3))) > 1
    for index in (pd.Index([5, 3, 8, 1, 9, 2, 7]), pd.Index([*"abcdefg"], name="c2")):
        table = pa.Table.from_pandas(rows.set_index(index))
        np.testing.assert_array_equal(net.predict_proba(table), expected)
    of_x = rows.set_index("x")  # in a frame, too, it is no column
    for without_x in (of_x, pa.Table.from_pandas(of_x)):
        with pytest.raises(BadInput, match="columns missing: 'x'"):
            net.predict(without_x)


@pytest.mark.parametrize("values", [pa.array([1, 2]), pa.array([b"1", b"2"])], ids=["numbers", "bytes"])
def test_texts_in_the_metadata_make_no_texts_of_other_values(values: pa.Array) -> None:
    net = windtunnel.translate(fitted(["1", "2"]))
    table = pa.Table.from_pandas(pd.DataFrame({"c": ["1", "2"], "x": [0.0, 0.0]}), preserve_index=False)
    assert net.predict(table).shape == (2,)
    with pytest.raises(BadInput, match="its categories are text"):
        net.predict(table.set_column(0, "c", values))


@pytest.mark.parametrize("metadata", [b"", b"[]", b"{}", b'{"columns": [{}]}', b'{"columns": [{"field_name": 3}]}'])
def test_metadata_that_pandas_did_not_write_are_ignored(metadata: bytes) -> None:
    net = windtunnel.translate(fitted(["1", "2"]))
    table = pa.table({"c": ["1", "2"], "x": [0.0, 0.0]})
    np.testing.assert_array_equal(net.predict(table.replace_schema_metadata({"pandas": metadata})), net.predict(table))


def test_numbers_that_are_names_of_columns_stay_numbers() -> None:
    X = pd.DataFrame({0: [*"abab"], 1: [0.0, 1.0, 2.0, 3.0]})
    columns = make_column_transformer((OneHotEncoder(), [0]), remainder="passthrough")
    net = windtunnel.translate(make_pipeline(columns, LogisticRegression()).fit(X, [0, 1, 0, 1]))
    np.testing.assert_array_equal(net.predict_proba(pa.Table.from_pandas(X)), net.predict_proba(X))


def test_a_value_without_a_hash_is_rejected_beside_others() -> None:
    net = windtunnel.translate(fitted([1, 2]))
    for value in ([1], {"a": 1}):
        rows = pd.DataFrame({"c": pd.Series([1, value], dtype=object), "x": [0.0, 0.0]})
        with pytest.raises(BadInput, match="its categories are number"):
            net.predict(rows)
