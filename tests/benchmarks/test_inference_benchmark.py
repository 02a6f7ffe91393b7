"""The benchmark of inference: a cell for every engine, ratios within turns, what an engine rejects said in its cell."""

import json
import os
import pickle
import subprocess
import sys
from functools import partial

import pytest
from lightgbm import LGBMRegressor
from typer.testing import CliRunner

from benchmarks import tree_costs
from benchmarks.inference import cells, operators, pipelines, trees
from benchmarks.inference.__main__ import app
from benchmarks.inference.cells import _cells, measure
from benchmarks.inference.model import Model
from benchmarks.inference.models import GROUPS, MODELS
from benchmarks.inference.peers import Seconds
from benchmarks.inference.quick import quick_cells
from benchmarks.inference.report import counts, table
from windtunnel.compiler.cost_model import TREE_STRATEGIES, strategies_of
from windtunnel.compiler.tree_costs import SHIPPED, fit_costs, read, write


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(trees, "FITTED_ON", 300)
    monkeypatch.setattr(pipelines, "FITTED_ON", 200)
    monkeypatch.setattr(cells, "TURNS", (3, 3))
    deep = LGBMRegressor(n_estimators=3, num_leaves=90, min_child_samples=1, n_jobs=1, verbosity=-1)
    monkeypatch.setitem(MODELS, "small", Model(partial(trees.fitted, deep), trees.rows, "predict", trees.PEERS))


def test_a_cell_for_every_engine():
    found = list(measure("small", [1, 5], 1, ["torch", "torch/tree_traversal", "torch/bitvectors"], seconds=0.0))
    assert [cell["batch"] for cell in found] == [1] * 4 + [5] * 4
    times = {cell["engine"]: cell["median_s"] for cell in found if cell["batch"] == 5}
    assert times["source"] > 0 and times["windtunnel torch/tree_traversal"] > 0
    assert times["windtunnel torch/bitvectors"] is None
    assert all("64 leaves" in cell["note"] for cell in found if cell["median_s"] is None)


def test_models_of_all_groups_are_known_by_one_name():
    assert sum(map(len, GROUPS.values())) == len(MODELS) - 1  # and the small one
    assert len(operators.OPERATORS) == 13


@pytest.mark.parametrize("name", ["PolynomialFeatures", "SVC", "LogisticRegression", *pipelines.PIPELINES])
def test_operators_and_pipelines_are_timed(name):
    found = list(measure(name, [3], 1, ["torch", "torch/float32"], seconds=0.0))
    assert [cell["engine"] for cell in found] == ["source", "windtunnel torch", "windtunnel torch/float32"]
    assert all(cell["median_s"] > 0 and cell["model"] == name for cell in found)


def test_outputs_are_compared(monkeypatch):
    monkeypatch.setattr(cells, "_compiled", lambda *_: trees.fitted(LGBMRegressor(verbosity=-1)))
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        next(measure("small", [3], 1, ["torch"]))


def test_ratios_are_of_turns():
    times = {"source": [1.0, 2.0, 4.0], "windtunnel torch": [2.0, 2.0, 4.0], "lleaves": [1.0, 4.0, 1.0],
             "treelite": [9.0, 9.0, 9.0]}  # fmt: skip
    times = {name: [Seconds(wall, 0.0) for wall in taken] for name, taken in times.items()}
    source, ours, best, other = _cells("m", 1, 1, times, {})
    assert (ours.ratio_to_source, ours.ratio_to_best_peer) == (1.0, 2.0)
    assert source.ratio_to_best_peer is best.ratio_to_best_peer is None
    assert (best.median_s, other.ratio_to_source) == (1.0, 4.5)
    _, ours, off, _ = _cells("m", 1, 1, times, {"lleaves": "answers are off"})
    assert (ours.ratio_to_best_peer, off.note) == (2.0 / 9.0, "answers are off")


def test_lines_are_json():
    ran = CliRunner().invoke(
        app,
        ["--json", "--model", "small", "--engine", "torch", "--batch", "2", "--threads", "1", "--clock", "processor"],
    )
    assert ran.exit_code == 0, ran.output
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [(line["engine"], line["clock"]) for line in lines] == [
        ("source", "processor"),
        ("windtunnel torch", "processor"),
    ]


def test_quick_cells_are_of_known_models():
    assert {cells.model for cells in quick_cells()} <= set(MODELS)


def test_the_report_counts_cells_in_which_ours_is_the_fastest():
    def line(batch, engine, seconds, note="", to_source=None, to_best=None):
        place = {"model": "m", "threads": 1, "batch": batch, "engine": engine, "median_s": seconds, "note": note}
        return {**place, "ratio_to_source": to_source, "ratio_to_best_peer": to_best}

    ours = "windtunnel native"
    lines = [line(1, "source", 2.0), line(1, ours, 1.0, "", 0.5), line(1, "lleaves", 0.5, "outputs are off")]
    lines += [line(10, "source", 4.0), line(10, ours, 3.3, "", 0.82, 1.1), line(10, "pylignum", 3.2)]
    assert counts(lines) == "2 cells: fastest in 1 (50 %), within 1.2 times the best in 2 (100 %)"
    assert table(lines)[2:] == ["| m | 1 | 1e+03 ms; 0.5; 0.50 | 3.3e+03 ms; 0.82; **1.10** |"]


def test_fitted_models_are_kept(tmp_path):
    written = []
    for _ in range(2):
        list(measure("small", [2], 1, ["native"], seconds=0.0, kept=tmp_path))
        written.append((tmp_path / "small" / "fitted.pkl").stat().st_mtime_ns)
    assert written[0] == written[1]


WITH_TWICE = """
from benchmarks.inference import peer_job

peer_job.ENGINES["twice"] = lambda job: lambda x: 2 * job.source.predict(x)
peer_job.main()
"""


def said_of(engine, method, folder):
    source, rows = MODELS["small"].fitted(), trees.rows(5, seed=0)
    (folder / "source.pkl").write_bytes(pickle.dumps(source))
    (folder / "rows.pkl").write_bytes(pickle.dumps(rows))
    command = [sys.executable, "-c", WITH_TWICE, engine, str(folder), method, "1"]
    ran = subprocess.run(command, input="", capture_output=True, text=True, env=dict(os.environ))
    return json.loads(ran.stdout)


def test_a_peer_that_fails_says_why(tmp_path):
    said = said_of("lleaves", "predict", tmp_path)
    assert not said["ready"] and "lleaves" in said["why"]


def test_a_peer_with_other_outputs_is_marked(tmp_path):
    said = said_of("twice", "predict", tmp_path)
    assert said["ready"] and "off by 1 of" in said["why"]


def test_costs_are_fitted(monkeypatch, tmp_path):
    monkeypatch.setattr(tree_costs, "TREES", (10,))
    both = [next(tree_costs.ensembles()), next(tree_costs.oblivious())]
    measured = [tree_costs.timed(trees, rows) for trees in both for rows in (1, 50)]
    write(tmp_path / "costs.csv", measured)
    cells = read(tmp_path / "costs.csv")
    assert [(cell.shape, cell.rows, set(cell.seconds)) for cell in cells] == [
        (cell.shape, cell.rows, set(cell.seconds)) for cell in measured
    ]
    costs = fit_costs(cells)
    assert set(costs) == set(TREE_STRATEGIES)
    assert all(len(one) == 5 and min(one) >= 0 < max(one) for one in costs.values())


def test_measurements_ship_and_are_of_what_the_benchmark_measures():
    cells = read(SHIPPED)
    assert {cell.device for cell in cells} == {"cpu"}
    assert set().union(*(cell.seconds for cell in cells)) == set(TREE_STRATEGIES)
    assert all(value > 0 for cell in cells for value in cell.seconds.values())
    # Strategies that take an ensemble, and no others, were measured on it.
    assert all({*strategies_of(cell.shape)} == set(cell.seconds) for cell in cells)
    assert min(tree_costs.regrets(cells)) == 1
