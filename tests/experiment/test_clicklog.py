import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from windtunnel.clicklog import CATEGORIES, click_log, write_click_log
from windtunnel.errors import BadInput

NUMBERS = ["bid", "views", "recency", "viewable"]


@pytest.fixture(scope="module")
def log():
    return click_log(20_000)


def test_shapes_and_types(log):
    frame, clicked = log
    assert frame.columns.tolist() == [*CATEGORIES, *NUMBERS] and len(frame) == len(clicked) == 20_000
    assert all(pd.api.types.is_string_dtype(frame[name]) for name in CATEGORIES)
    assert (frame[NUMBERS].dtypes == np.float64).all()
    assert clicked.dtype == np.int64 and set(clicked.tolist()) == {0, 1}
    assert click_log(1)[0].shape == (1, 12)


def test_ratios(log):
    frame, clicked = log
    assert 0.18 < clicked.mean() < 0.22
    missing = frame.isna().mean()
    assert 0.03 < missing.pop("recency") < 0.07
    assert (missing == 0).all()
    assert min(CATEGORIES.values()) == 5 and max(CATEGORIES.values()) == 3000
    for name, size in CATEGORIES.items():
        counts = frame[name].value_counts()
        assert 0.7 * size < len(counts) <= size
        assert counts.iloc[0] > 1.5 * counts.median()


def test_one_seed_gives_one_log(log):
    np.random.seed(1)
    again, clicked = click_log(20_000)
    pd.testing.assert_frame_equal(again, log[0])
    np.testing.assert_array_equal(clicked, log[1])
    other, clicks = click_log(20_000, seed=1)
    assert not other.equals(log[0]) and (clicks != log[1]).any()


def test_the_distribution_does_not_depend_on_the_number_of_rows(log):
    few, _ = click_log(3000)
    for name in ("app", "campaign", "device"):
        assert few[name].mode()[0] in log[0][name].value_counts().index[:3]


def test_clicks_can_be_learned(log):
    frame, clicked = log
    encode = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), [*CATEGORIES]))
    model = make_pipeline(encode, LogisticRegression(C=0.1)).fit(frame[:15_000], clicked[:15_000])
    assert roc_auc_score(clicked[15_000:], model.decision_function(frame[15_000:])) > 0.6


def test_no_rows_is_an_error():
    with pytest.raises(BadInput, match="rows=0"):
        click_log(0)


def test_a_written_log_has_the_same_distribution(log, tmp_path):
    files = write_click_log(tmp_path / "log", 25_000, at_once=10_000)
    assert [pq.read_metadata(file).num_rows for file in files] == [10_000, 10_000, 5_000]
    parts = [pd.read_parquet(file) for file in files]
    written, (frame, clicked) = pd.concat(parts), log
    assert written.columns.tolist() == [*frame.columns, "clicked"]
    assert written["clicked"].mean() == pytest.approx(clicked.mean(), abs=0.02)
    assert all(part["clicked"].mean() == pytest.approx(clicked.mean(), abs=0.02) for part in parts)
    for name in ("app", "campaign", "device"):
        frequencies = [table[name].value_counts(normalize=True) for table in (written, frame)]
        assert (frequencies[0] - frequencies[1]).abs().max() < 0.02
        rates = [table.groupby(name)["clicked"].mean() for table in (written, frame.assign(clicked=clicked))]
        frequent = frequencies[1].index[:5]
        assert (rates[0][frequent] - rates[1][frequent]).abs().max() < 0.05
    assert not parts[0].equals(parts[1])
    again = write_click_log(tmp_path / "again", 25_000, at_once=10_000)
    assert [file.read_bytes() for file in files] == [file.read_bytes() for file in again]


def test_a_log_that_cannot_be_written(tmp_path):
    with pytest.raises(BadInput, match="rows=0, at_once=1000000; give 1 or more"):
        write_click_log(tmp_path, 0)
    write_click_log(tmp_path, 10)
    with pytest.raises(BadInput, match="holds a click log already"):
        write_click_log(tmp_path, 10)


def test_the_command(tmp_path):
    command = [sys.executable, "-m", "windtunnel.clicklog", str(tmp_path / "log"), "--rows", "100"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "100 rows in 1 files" in done.stdout, done.stderr
    assert pq.read_metadata(tmp_path / "log" / "clicks-00000.parquet").num_rows == 100
