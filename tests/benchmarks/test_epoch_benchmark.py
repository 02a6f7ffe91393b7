"""``python -m benchmarks.epoch`` runs, and what it says follows from what it measured."""

import json

import pytest
from typer.testing import CliRunner

from benchmarks import epoch


def test_one_line_with_both_times() -> None:
    options = "--rows 1000 --trees 2 --leaves 4 --features 3 --batch 500 --level L2 --threads 1 --json"
    done = CliRunner().invoke(epoch.app, options.split(), catch_exceptions=False)
    said = json.loads(done.stdout)
    assert said["ratio"] == pytest.approx(said["epoch_s"] / said["fit_s"])
    assert said["samples_per_s"] == pytest.approx(1000 / said["epoch_s"]) and said["whole_s"] >= said["epoch_s"]
    assert said["rows"] == 1000 and said["device"] == "cpu"


def test_trees_find_something_in_the_rows() -> None:
    X, y = epoch.drawn(5_000, 6, seed=0)
    model = epoch.LGBMClassifier(n_estimators=20, n_jobs=1, verbosity=-1).fit(X, y)
    fresh, label = epoch.drawn(2_000, 6, seed=1)
    assert model.score(fresh, label) > max(label.mean(), 1 - label.mean()) + 0.05
