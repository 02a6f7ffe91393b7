from __future__ import annotations

import gzip
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from catboost import CatBoostClassifier
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import ClassifierChain
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import windtunnel
from windtunnel.errors import BadInput
from windtunnel.experiment.files import (
    predict_frame,
    read_rows_of,
    read_table_file,
    read_target_rows_of,
    write_table_file,
)


def test_a_csv_file_has_the_values_of_a_parquet_file(tmp_path: Path) -> None:
    """Texts such as NULL are categories; among numbers, and nowhere else, they are missing."""
    frame = pd.DataFrame(
        {
            "company": ["NULL", "NA", None, "7"],
            "coded": ["01", "NULL", "nan", None],
            "price": [1.5, np.nan, np.nan, 3.0],
            "nights": [1, 2, 3, 4],
            "paid": [True, False, True, True],
        }
    )
    frame.to_parquet(tmp_path / "rows.parquet")
    frame.to_csv(tmp_path / "rows.csv", index=False, na_rep="")
    tables = [read_table_file(tmp_path / f"rows.{suffix}", text=["coded"]) for suffix in ("csv", "parquet")]
    pd.testing.assert_frame_equal(*tables, check_dtype=False)


def test_numbers_may_be_written_as_missing(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("price,text\n1.5,1.5\nNaN,x\nNA,NA\n,\n")
    frame = read_table_file(tmp_path / "rows.csv")
    np.testing.assert_array_equal(frame["price"], [1.5, np.nan, np.nan, np.nan])
    assert frame["text"].tolist()[:3] == ["1.5", "x", "NA"] and frame["text"].isna().tolist() == [False] * 3 + [True]


def test_a_text_does_not_depend_on_the_other_values_of_a_parquet_file(tmp_path: Path) -> None:
    midnight, noon = datetime(2020, 1, 1), datetime(2020, 1, 2, 12)
    whole = pa.table({"zip": [1007, 12], "paid": [True, False], "seen": [midnight, noon], "share": [1.0, 1.5]})
    gaps = pa.table({"zip": [1007, None], "paid": [True, None], "seen": [midnight, None], "share": [1.0, None]})
    frames = []
    for table in (whole, gaps):
        pq.write_table(table, tmp_path / "rows.parquet")
        frames.append(read_table_file(tmp_path / "rows.parquet", text=table.column_names))
    assert frames[0].loc[0].tolist() == frames[1].loc[0].tolist()
    assert frames[0].loc[0, ["zip", "paid", "share"]].tolist() == ["1007", "True", "1.0"]
    assert frames[1].loc[1].isna().all()


def test_dates_decimals_and_bytes_of_a_parquet_file_are_texts(tmp_path: Path) -> None:
    table = pa.table({"day": [date(2020, 1, 1), None], "price": [Decimal("1.50"), None], "code": [b"ab", None]})
    pq.write_table(table, tmp_path / "rows.parquet")
    frame = read_table_file(tmp_path / "rows.parquet")
    assert frame.loc[0].tolist() == ["2020-01-01", "1.50", "ab"] and frame.loc[1].isna().all()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.csv", b"a,b\n1,2,\n", "have more fields than its header"),
        ("rows.csv", b'a,b\n1,"2\n3"\n\n 4\n', "Row #3: Expected 2 columns, got 1: 4"),
        ("rows.csv", b"a,b,a\n1,2,3\n", "columns of the same name: 'a'"),
        ("rows.csv.gz", b"\x1f\x8b\x08\x00\x00\x00\x00\x00", "rows.csv.gz cannot be read"),
        ("rows.csv.gz", b"a,b", "rows.csv.gz cannot be read"),
        ("rows.csv", b"a,b\n\xfc,2\n", "rows.csv is no text in UTF-8"),
        ("rows.parquet", b"PAR1....PAR1", "rows.parquet cannot be read"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput, match=message):
        read_table_file(tmp_path / name)


def test_empty_fields_and_blank_lines_are_no_short_rows(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n1,\n\nx,2\n   \n")
    assert read_table_file(tmp_path / "rows.csv", text=["a"])["a"].tolist() == ["1", "x"]


@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_of_several_targets_are_a_column_each(classes: int) -> None:
    X = np.random.default_rng(0).normal(size=(100, 3))
    Y = np.column_stack([X[:, 0] > 0, np.digitize(X[:, 1], [-0.5, 0.5][: classes - 1])]).astype(int)
    source = RandomForestClassifier(3, random_state=0).fit(X, Y)
    frame = predict_frame(windtunnel.compile(source), X)
    names = ["0_0", "0_1", *(f"1_{label}" for label in range(classes))]
    assert frame.columns.tolist() == ["prediction_0", "prediction_1", *(f"probability_{name}" for name in names)]
    np.testing.assert_allclose(frame.iloc[:, 2:], np.hstack(source.predict_proba(X)), atol=1e-9)
    labels = ClassifierChain(LogisticRegression()).fit(X, Y.clip(max=1))
    assert [*predict_frame(windtunnel.compile(labels), X).columns[2:]] == ["probability_0", "probability_1"]


@pytest.mark.parametrize(("fitted", "written"), [("1000.0", "1000"), ("1000", "1000.0")])
def test_whole_numbers_are_found_however_they_are_written(fitted: str, written: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"zip": [fitted, "-7", "x1", None] * 20, "n": range(80)})
    columns = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["zip"]), ("passthrough", ["n"]))
    net = windtunnel.compile(make_pipeline(columns, LogisticRegression()).fit(frame, frame["zip"] == fitted))
    texts = [written, "-7.0", "x1", "5", None]
    pd.DataFrame({"zip": texts, "n": range(5)}).to_csv(tmp_path / "rows.csv", index=False)
    rows = read_rows_of(net, tmp_path / "rows.csv")
    assert rows["zip"].tolist()[:4] == [fitted, "-7", "x1", "5"] and pd.isna(rows["zip"][4])
    pd.DataFrame({"zip": [1000, 5], "n": [0, 1]}).to_parquet(tmp_path / "rows.parquet")
    rows = read_rows_of(net, tmp_path / "rows.parquet")
    assert rows["zip"].tolist() == [fitted, "5"]


def test_versions_are_no_whole_numbers(tmp_path: Path) -> None:
    frame = pd.DataFrame({"version": ["1", "2", "1.5", "2"] * 20, "n": range(80)})
    columns = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["version"]), ("passthrough", ["n"]))
    net = windtunnel.compile(make_pipeline(columns, LogisticRegression()).fit(frame, frame["version"] == "2"))
    (tmp_path / "rows.csv.GZ").write_bytes(gzip.compress(b"version,n\n1.0,\n"))
    assert read_rows_of(net, tmp_path / "rows.csv.GZ")["version"].tolist() == ["1.0"]


def test_categories_that_catboost_hashes_stay_as_they_are_written(tmp_path: Path) -> None:
    frame = pd.DataFrame({"code": ["007", "12", "7"] * 60, "n": range(180)})
    y = frame["code"] == "007"
    source = CatBoostClassifier(iterations=5, cat_features=["code"], one_hot_max_size=1, verbose=0).fit(frame, y)
    net = windtunnel.compile(source)
    pd.DataFrame({"code": ["007", "7", "12.0", "x"], "n": range(4)}).to_csv(tmp_path / "rows.csv", index=False)
    rows = read_rows_of(net, tmp_path / "rows.csv")
    assert rows["code"].tolist() == ["007", "7", "12", "x"]
    np.testing.assert_allclose(net.predict_proba(rows), source.predict_proba(rows), atol=1e-9)


def test_columns_of_one_name_cannot_be_written_as_parquet(tmp_path: Path) -> None:
    frame = pd.DataFrame([[1, 2]], columns=["base", "base"])
    with pytest.raises(BadInput, match="no two columns of one name: base"):
        write_table_file(frame, tmp_path / "rows.parquet")
    write_table_file(frame, tmp_path / "rows.csv")


def test_nullable_types_become_those_of_numpy(tmp_path: Path) -> None:
    values = {"whole": [1, None], "number": [0.5, None], "flag": [True, None], "full": [1, 2], "id": [2**60 + 1, None]}
    types = {"whole": "Int32", "number": "Float64", "flag": "boolean", "full": "Int64", "id": "Int64"}
    table = pd.DataFrame({name: pd.array(values[name], types[name]) for name in values})
    table.to_parquet(tmp_path / "rows.parquet")
    read = read_table_file(tmp_path / "rows.parquet")
    assert [str(dtype) for dtype in read.dtypes] == ["float64", "float64", "object", "int64", "Int64"]
    assert read.flag[0] is True and np.isnan(read.flag[1]) and read.id[0] == 2**60 + 1
    table[["id"]].to_csv(tmp_path / "rows.csv", index=False)
    assert read_table_file(tmp_path / "rows.csv").id.tolist() == [2**60 + 1, pd.NA]
    (tmp_path / "rows.csv").write_text(f"id,wide,large\n{2**60 + 1},1e17,1e300\nNA,,inf\n7,0.5,2\n")
    read = read_table_file(tmp_path / "rows.csv")
    assert read.id.tolist() == [2**60 + 1, pd.NA, 7] and [str(read[name].dtype) for name in ("wide", "large")] == [
        "float64",
        "float64",
    ]


def test_equal_names_in_a_parquet_file_are_told(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), tmp_path / "rows.parquet")
    with pytest.raises(BadInput, match="columns of the same name: 'a'"):
        read_table_file(tmp_path / "rows.parquet")


def test_a_column_of_lists_is_no_column_of_texts(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [["x"], ["y"]]}), tmp_path / "rows.parquet")
    with pytest.raises(BadInput, match=r"rows.parquet cannot be read: .*list"):
        read_table_file(tmp_path / "rows.parquet", text=["a"])


def test_not_x_stands_for_all_other_labels(tmp_path: Path) -> None:
    net = windtunnel.compile(LogisticRegression().fit(np.arange(4)[:, None], ["not b", "b", "b", "not b"]))
    pd.DataFrame({"x": [1, 2, 3], "y": ["a", "b", "c"]}).to_csv(tmp_path / "rows.csv", index=False)
    assert read_target_rows_of(net, tmp_path / "rows.csv", "y")[1].tolist() == ["not b", "b", "not b"]
    numbered = windtunnel.compile(LogisticRegression().fit(np.arange(4)[:, None], ["not 3", "3", "3", "not 3"]))
    pd.DataFrame({"x": [1, 2], "y": [3.0, 1.0]}).to_parquet(tmp_path / "rows.parquet")
    assert read_target_rows_of(numbered, tmp_path / "rows.parquet", "y")[1].tolist() == ["3", "not 3"]
