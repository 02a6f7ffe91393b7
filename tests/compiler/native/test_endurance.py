"""Many calls of mixed sizes from many threads: the same predictions every time, and no memory that grows."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from export_cases import opened
from lightgbm import LGBMClassifier
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import windtunnel

CALLS = int(os.environ.get("WINDTUNNEL_CALLS", "4000"))
THREADS = 16
SIZES = (1, 1, 1, 7, 40, 600, 2_500)
GROWTH = 48 * 2**20
"""Bytes that a process may grow in a quarter and more of all calls; what threads keep for later calls is less."""


@pytest.fixture(scope="module")
def rows():
    random = np.random.default_rng(0)
    return pd.DataFrame({"city": random.choice(["Oslo", "Rome", "Bern"], 2_500), "age": random.normal(size=2_500)})


@pytest.fixture(scope="module")
def models(rows, tmp_path_factory):
    target = (rows["city"] == "Rome") ^ (rows["age"] > 0)
    columns = make_column_transformer((OneHotEncoder(), ["city"]), (StandardScaler(), ["age"]))
    trees = make_pipeline(columns, LGBMClassifier(n_estimators=20, verbosity=-1, n_jobs=1)).fit(rows, target)
    linear = windtunnel.compile(make_pipeline(columns, LogisticRegression()).fit(rows, target))
    native = windtunnel.compile(trees)
    return {"trees": native, "linear": linear, "library": opened(native, tmp_path_factory.mktemp("library"), "c")}


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("name", ["trees", "linear", "library"])
def test_many_calls_on_many_threads(models, rows, name):
    model, batches = models[name], [(rows[:size], rows[:size].to_dict("list")) for size in SIZES]
    wanted = [[model.predict_proba(given) for given in batch] for batch in batches]

    def calls(seed: int) -> None:
        random = np.random.default_rng(seed)
        for _ in range(CALLS // 4 // THREADS):
            at, kind = random.integers(len(SIZES)), random.integers(2)
            np.testing.assert_array_equal(model.predict_proba(batches[at][kind]), wanted[at][kind])

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(calls, range(THREADS)))
        before = resident()
        list(threads.map(calls, range(THREADS, 4 * THREADS)))
    assert resident() - before < GROWTH
