"""The command ``windtunnel sweep``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import windtunnel
from windtunnel.cli import app
from windtunnel.clicklog import click_log

CONFIG = """
data: {train: rows.csv, target: clicked}
pipeline:
  categories: [RareCategories: {min_count: 5}, TwoHotEncoder]
  model: {LogisticRegression: {max_iter: 300}}
translate: {calibrate_rows: 50}
recipe: {epochs: 2, batch_size: 100}
sweep:
  trials: 2
  space:
    residual: [true, false]
    learning_rate: {low: 1e-4, high: 1e-1, log: true}
    table_rate: [1.0, 5.0]
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    X, y = click_log(400, seed=3)
    X.drop(columns=X.select_dtypes("number")).assign(clicked=y).to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "sweep.yaml").write_text(CONFIG)
    return tmp_path / "sweep.yaml"


def run_command(config: Path, *arguments: object) -> Any:
    fixed = ["sweep", "--config", config, "--data", config.parent, "--output", config.parent / "out"]
    return CliRunner().invoke(app, list(map(str, [*fixed, *arguments])))


def test_the_command_sweeps_and_continues(config: Path) -> None:
    out = config.parent / "out"
    assert run_command(config, "--timeout", 1e-9).exit_code == 0
    assert json.loads((out / "sweep_summary.json").read_text())["trials"] == 1
    done = run_command(config, "--trials", 3)
    assert done.exit_code == 0, done.output
    summary = json.loads((out / "sweep_summary.json").read_text())
    assert summary["trials"] == 3 == len((out / "history.csv").read_text().splitlines()) - 1
    assert summary["best"] >= summary["default"]
    assert summary["scores"]["best"]["valid"]["auroc"] == pytest.approx(summary["best"], abs=1e-6)
    assert "test auroc" in done.output and f"default {summary['default']:.6f}" in done.output
    assert windtunnel.load(out / "best.windtunnel").classes_.tolist() == [0, 1]
    assert {"sweep.db", "plots", "trials"} <= {path.name for path in out.iterdir()}


def test_the_best_model_predicts_the_labels_behind_positive(config: Path) -> None:
    done = run_command(config, "--trials", 1, "--set", "data.positive=0")
    assert done.exit_code == 0, done.output
    assert windtunnel.load(config.parent / "out" / "best.windtunnel").classes_.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "sweep.trails=3"], "unknown key 'sweep.trails': did you mean trials?"),
        (["--set", "sweep.space={learning_rat: [1.0]}"], "learning_rat is no option: did you mean learning_rate?"),
        (
            ["--trials", "0", "--timeout", "0"],
            "sweep.trials=0: input should be greater than or equal to 1; sweep.timeout=0",
        ),
        (["--storage", "sweep.db"], "give a URL such as sqlite:///sweep.db"),
        (["--set", "translate.calibrate_rows=0"], "give at least 1"),
    ],
)
def test_mistakes_in_the_config_are_one_line(config: Path, arguments: list[str], message: str) -> None:
    done = run_command(config, *arguments)
    assert done.exit_code == 1 and done.stdout == ""
    assert message in done.stderr and len(done.stderr.splitlines()) == 1
