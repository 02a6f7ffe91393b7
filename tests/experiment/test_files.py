from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from windtunnel.experiment.files import read_table_file


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
