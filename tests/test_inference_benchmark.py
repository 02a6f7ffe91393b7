"""The benchmark of inference: a cell for every engine, ratios within turns, what an engine refuses said in its cell."""

import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from lightgbm import LGBMRegressor
from typer.testing import CliRunner

from benchmarks import tree_costs
from benchmarks.inference import cells, models
from benchmarks.inference.__main__ import app
from benchmarks.inference.cells import _cells, measure
from benchmarks.inference.peers import JOB
from windtunnel.compiler.cost_model import Shape
from windtunnel.compiler.strategies import FORMS


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(models, "FITTED_ON", 300)
    monkeypatch.setattr(cells, "TURNS", (3, 3))
    deep = LGBMRegressor(n_estimators=3, num_leaves=90, min_child_samples=1, n_jobs=1, verbosity=-1)
    monkeypatch.setitem(models.MODELS, "small", lambda: deep)


def test_a_cell_for_every_engine():
    found = list(measure("small", [1, 5], 1, ["torch", "torch/tree_traversal", "torch/bitvectors"], seconds=0.0))
    assert [cell["batch"] for cell in found] == [1] * 4 + [5] * 4
    times = {cell["engine"]: cell["median_s"] for cell in found if cell["batch"] == 5}
    assert times["source"] > 0 and times["windtunnel torch/tree_traversal"] > 0
    assert times["windtunnel torch/bitvectors"] is None
    assert all("64 leaves" in cell["note"] for cell in found if cell["median_s"] is None)


def test_ratios_are_of_turns():
    times = {"source": [1.0, 2.0, 4.0], "windtunnel torch": [2.0, 2.0, 4.0], "lleaves": [1.0, 4.0, 1.0],
             "treelite": [9.0, 9.0, 9.0]}  # fmt: skip
    source, ours, best, other = _cells("m", 1, 1, times, {})
    assert (ours.ratio_to_source, ours.ratio_to_best_peer) == (1.0, 2.0)
    assert source.ratio_to_best_peer is best.ratio_to_best_peer is None
    assert (best.median_s, other.ratio_to_source) == (1.0, 4.5)


def test_lines_are_json():
    ran = CliRunner().invoke(app, ["--quick", "--json", "--model", "small", "--engine", "torch", "--batch", "2"])
    assert ran.exit_code == 0, ran.output
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [line["engine"] for line in lines] == ["source", "windtunnel torch"]


def test_a_peer_that_fails_says_why(tmp_path):
    source = models.fitted("small")
    (tmp_path / "source.pkl").write_bytes(pickle.dumps(source))
    np.save(tmp_path / "rows.npy", models.rows(5, seed=0).astype(np.float32))
    command = [sys.executable, str(JOB), "lleaves", str(tmp_path), "1"]
    ran = subprocess.run(command, input="", capture_output=True, text=True, env=dict(os.environ))
    said = json.loads(ran.stdout)
    assert not said["ready"] and "lleaves" in said["why"]


def test_costs_are_fitted(monkeypatch):
    trees = next(tree_costs.ensembles())
    measured = [(*tree_costs.timed(trees, rows)[::-1], rows) for rows in (1, 50)]
    costs = tree_costs.fitted([(shape, rows, seconds) for seconds, shape, rows in measured])
    assert set(costs) == set(FORMS)
    assert all(len(one) == 5 and min(one) >= 0 < max(one) for one in costs.values())
    assert isinstance(measured[0][1], Shape)
