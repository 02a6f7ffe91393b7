"""Native nets in other processes: forked with everything in memory, and fresh ones that get a pickle."""

import subprocess
import sys
from multiprocessing import get_context

import joblib
import numpy as np
import pytest
from lightgbm import LGBMRegressor

import windtunnel

FRESH = """
import sys, joblib, numpy as np
folder = sys.argv[1]
rows = np.load(folder + "/rows.npy")
net = joblib.load(folder + "/net.joblib")
assert type(net.engine).__name__ == "NativeEngine"
np.save(folder + "/predicted.npy", np.concatenate([net.predict(rows[:1]), net.predict(rows)[1:]]))
"""


@pytest.fixture(scope="module")
def net_and_rows():
    X = np.random.default_rng(0).normal(size=(300, 4))
    source = LGBMRegressor(n_estimators=10, verbosity=-1, n_jobs=1).fit(X, X[:, 0] * X[:, 1])
    return windtunnel.compile(source, backend="native"), X


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process(net_and_rows):
    net, X = net_and_rows
    want = net.predict(X)
    with get_context("fork").Pool(1) as pool:
        few, many = pool.map(net.predict, [X[:1], X])
    np.testing.assert_array_equal(many, want)
    np.testing.assert_array_equal(few, want[:1])


def test_a_fresh_process(net_and_rows, tmp_path):
    net, X = net_and_rows
    net.predict(X)
    joblib.dump(net, tmp_path / "net.joblib")
    np.save(tmp_path / "rows.npy", X)
    subprocess.run([sys.executable, "-c", FRESH, str(tmp_path)], check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "predicted.npy"), net.predict(X))
