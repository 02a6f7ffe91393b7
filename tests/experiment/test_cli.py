import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes, load_iris
from typer.testing import CliRunner

import windtunnel
from windtunnel.cli import app
from windtunnel.clicklog import click_log

CONFIG = """
data: {{folder: {folder}, train: {train}, target: {target}}}
pipeline:
  categories: [RareCategories: {{min_count: 5}}, TwoHotEncoder]
  numbers: {numbers}
  model: {model}
recipe: {{epochs: 2, batch_size: 256, schedule: constant}}
output: {folder}/run
"""
TREES = "{LGBMClassifier: {n_estimators: 4, num_leaves: 4, verbosity: -1, n_jobs: 1}}"


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, list(map(str, arguments)))


def write_config(
    folder: Path, train: str, *, target: str = "clicked", numbers: str = "passthrough", model: str = TREES
) -> Path:
    path = folder / "experiment.yaml"
    path.write_text(CONFIG.format(folder=folder, train=train, target=target, numbers=numbers, model=model))
    return path


def clicks(rows: int = 900) -> pd.DataFrame:
    X, y = click_log(rows, seed=3)
    return X.assign(clicked=np.where(y == 1, "yes", "no"), part=["train", "valid", "test"] * (rows // 3))


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("fitted")
    clicks().drop(columns="part").to_csv(folder / "rows.csv.gz", index=False)
    done = run("fit", "--config", write_config(folder, "rows.csv.gz"), "--set", "data.categorical=[hour]")
    assert done.exit_code == 0, done.output
    assert "fine-tuned" in done.output
    yield folder


def test_fit_writes_model_report_summary_checkpoint_and_logs(fitted: Path) -> None:
    out = fitted / "run"
    summary = json.loads((out / "summary.json").read_text())
    assert list(summary["stages"]) == ["source", "warm start", "fine-tuned"]
    assert set(summary["stages"]["source"]) == {"valid", "test", "seconds"}
    assert summary["config"]["pipeline"]["categories"][0] == {"name": "RareCategories", "options": {"min_count": 5}}
    assert "<html" in (out / "report.html").read_text()
    assert (out / "checkpoints" / "last.ckpt").is_file()
    assert list((out / "logs").rglob("metrics.csv"))
    assert windtunnel.load(out / "model.windtunnel").classes_.tolist() == ["no", "yes"]


@pytest.mark.parametrize("name", ["levels", "joint", "cascade", "refresh"])
def test_the_first_line_of_a_config_is_its_command(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = clicks().drop(columns="part").assign(seen="2024-01-01")  # as docs/start.md makes them
    for file in ("rows.csv", "new.csv"):
        rows.to_csv(tmp_path / file, index_label="id")
    configs = Path(__file__).parents[2] / "configs"
    shorter = {
        "levels": "--trials 1 --set sweep.space.max_steps=2 --set sweep.space.val_check_interval=1",
        "joint": "--set recipe.max_steps=2 --set recipe.val_check_interval=1",
    }
    monkeypatch.chdir(tmp_path)
    line = (configs / f"{name}.yaml").read_text().splitlines()[0].removeprefix("# ")
    for command in line.replace("configs/", f"{configs}/").replace("FOLDER", str(tmp_path)).split(" && "):
        done = run(*command.split()[1:], *shorter.get(name, "").split())
        assert done.exit_code == 0, done.output
    written = {"levels": "best.windtunnel", "cascade": "model.cascade", "refresh": "new.windtunnel"}
    model = tmp_path / "runs" / name / written.get(name, "model.windtunnel")
    load = windtunnel.Cascade.load if name == "cascade" else windtunnel.load
    assert load(model).predict_proba(pd.read_csv("new.csv").head(30)).shape == (30, 2)


def test_a_cascade_keeps_auc_and_predicts_the_labels_of_the_target(tmp_path: Path) -> None:
    clicks().to_csv(tmp_path / "rows.csv", index=False)
    options = ("--set", "data.split=part", "--set", "data.positive='no'", "--metric", "auc", "--accuracy-loss", "0.1")
    done = run("cascade", "--config", write_config(tmp_path, "rows.csv"), *options)
    assert done.exit_code == 0 and "with 95 % confidence, at most 0.1 is lost" in done.output, done.output
    made = windtunnel.Cascade.load(tmp_path / "run" / "model.cascade")
    assert made.threshold is not None and made.threshold.metric == "auroc" and made.threshold.early > 0
    assert made.small.classes_.tolist() == made.classes_.tolist() == ["yes", "no"]
    rows = pd.read_csv(tmp_path / "rows.csv")
    no = made.predict_proba(rows)[:, 1]
    assert made.predict(rows).tolist() == np.where(no > 0.5, "no", "yes").tolist()
    rejected = run("predict", tmp_path / "run" / "model.cascade", tmp_path / "rows.csv")
    assert rejected.exit_code == 1 and "windtunnel.Cascade.load" in rejected.output
    assert no[rows["clicked"] == "no"].mean() > no[rows["clicked"] == "yes"].mean()


def test_resume_continues_from_the_checkpoint(fitted: Path) -> None:
    options = ("--resume", "--set", "recipe.epochs=3", "--set", "data.categorical=[hour]")
    done = run("fit", "--config", fitted / "experiment.yaml", *options)
    assert done.exit_code == 0, done.output
    assert json.loads((fitted / "run" / "summary.json").read_text())["epochs"] == 3


def test_predict_reads_text_columns_as_text(fitted: Path, tmp_path: Path) -> None:
    model, rows = fitted / "run" / "model.windtunnel", clicks(30)
    rows.to_csv(tmp_path / "rows.csv", index=False)
    rows.to_parquet(tmp_path / "rows.parquet")
    net = windtunnel.load(model)
    assert run("predict", model, tmp_path / "rows.csv", "--output", tmp_path / "out.csv").exit_code == 0
    assert run("predict", model, tmp_path / "rows.parquet", "--output", tmp_path / "out.parquet").exit_code == 0
    for predictions in (pd.read_csv(tmp_path / "out.csv"), pd.read_parquet(tmp_path / "out.parquet")):
        assert predictions.columns.tolist() == ["prediction", "probability_no", "probability_yes"]
        assert predictions["prediction"].tolist() == net.predict(rows).tolist()
        np.testing.assert_allclose(predictions.iloc[:, 1:], net.predict_proba(rows), rtol=1e-12)


def test_predict_writes_csv_to_stdout_without_output(fitted: Path, tmp_path: Path) -> None:
    clicks(3).to_csv(tmp_path / "rows.csv", index=False)
    done = run("predict", fitted / "run" / "model.windtunnel", tmp_path / "rows.csv")
    assert done.stdout.splitlines()[0] == "prediction,probability_no,probability_yes"
    assert len(done.stdout.splitlines()) == 4


def test_explain_writes_contributions_that_add_up(fitted: Path, tmp_path: Path) -> None:
    model, rows = fitted / "run" / "model.windtunnel", clicks(21)
    rows.to_csv(tmp_path / "rows.csv", index=False)
    done = run(
        "explain", model, tmp_path / "rows.csv", "--output", tmp_path / "out.csv", "--plot", tmp_path / "bars.png"
    )
    assert done.exit_code == 0 and "Mean absolute contribution (log-odds)" in done.output
    frame = pd.read_csv(tmp_path / "out.csv")
    np.testing.assert_allclose(frame["score"], windtunnel.load(model).scores(rows)[:, 0], atol=1e-6)
    np.testing.assert_allclose(frame["score"], frame.drop(columns="score").sum(axis=1), atol=1e-9)
    assert (tmp_path / "bars.png").read_bytes().startswith(b"\x89PNG")


def test_refresh_writes_a_model_that_new_rows_have_moved(fitted: Path, tmp_path: Path) -> None:
    model, rows = fitted / "run" / "model.windtunnel", clicks(900)
    rows["clicked"] = np.where(rows["hour"].astype(int) % 2, "no", "yes")  # the world has changed
    rows[:600].to_csv(tmp_path / "new.csv", index=False)
    rows[600:].to_parquet(tmp_path / "valid.parquet")
    done = run("refresh", model, tmp_path / "new.csv", "--target", "clicked", "--valid", tmp_path / "valid.parquet",
               "--output", tmp_path / "new.windtunnel", "--html", tmp_path / "report.html")  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "Drift of the inputs" in done.output and "300 validation rows" in done.output
    before, after = (
        (windtunnel.load(path).predict(rows[600:]) == rows["clicked"][600:]).mean()
        for path in (model, tmp_path / "new.windtunnel")
    )
    assert after > before + 0.1
    assert "refreshed" in (tmp_path / "report.html").read_text()
    failed = run("refresh", model, tmp_path / "new.csv", "--target", "y", "--output", tmp_path / "x.windtunnel")
    assert failed.exit_code == 1 and "has no column 'y'" in failed.stderr and not (tmp_path / "x.windtunnel").exists()
    failed = run("refresh", model, tmp_path / "new.csv", "--target", "clicked", "--loss", "gamma",
                 "--output", tmp_path / "x.windtunnel")  # fmt: skip
    assert failed.exit_code == 1 and "loss='gamma'" in failed.stderr


def test_export_and_report(fitted: Path, tmp_path: Path) -> None:
    model = fitted / "run" / "model.windtunnel"
    assert run("export", model, tmp_path / "model.ts", "--format", "torchscript").exit_code == 0
    assert (tmp_path / "model.ts").stat().st_size > 0
    done = run("report", model, "--html", tmp_path / "report.html")
    assert done.exit_code == 0
    assert "LGBMClassifier" in done.output
    assert "LGBMClassifier" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("bunch", [load_iris(as_frame=True), load_diabetes(as_frame=True)], ids=["classes", "values"])
def test_fit_on_other_targets_and_a_split_column(tmp_path: Path, bunch: Any) -> None:
    frame = bunch.frame.sample(frac=1, random_state=0)
    frame["part"] = np.resize(["train", "train", "valid", "test"], len(frame))
    frame.to_parquet(tmp_path / "rows.parquet")
    classes = bunch.target.nunique() == 3
    model = "{LogisticRegression: {max_iter: 200}}" if classes else "Ridge"
    config = write_config(tmp_path, "rows.parquet", target="target", numbers="StandardScaler", model=model)
    done = run("fit", "--config", config, "--set", "data.split=part")
    assert done.exit_code == 0, done.output
    stages = json.loads((tmp_path / "run" / "summary.json").read_text())["stages"]
    metrics = {"log_loss", "accuracy"} if classes else {"rmse", "r2"}
    assert all(set(stage["test"]) == metrics for stage in stages.values())


@pytest.mark.parametrize(
    "model",
    [
        "{LGBMRegressor: {objective: quantile, alpha: 0.8, n_estimators: 5, verbosity: -1}}",
        "{XGBRegressor: {objective: 'reg:quantileerror', quantile_alpha: [0.1, 0.9], n_estimators: 5}}",
    ],
    ids=["one quantile", "mean over two quantiles"],
)
def test_the_main_metric_of_a_regressor_is_that_of_its_loss(tmp_path: Path, model: str) -> None:
    load_diabetes(as_frame=True).frame.to_parquet(tmp_path / "rows.parquet")
    done = run("fit", "--config", write_config(tmp_path, "rows.parquet", target="target", model=model))
    assert done.exit_code == 0, done.output
    assert "test pinball_loss" in done.output
    stages = json.loads((tmp_path / "run" / "summary.json").read_text())["stages"]
    assert all(set(stage["test"]) == {"pinball_loss", "rmse", "r2"} for stage in stages.values())
    assert 0 < stages["source"]["test"]["pinball_loss"] < stages["source"]["test"]["rmse"]


def test_early_stopping_uses_the_validation_rows(tmp_path: Path) -> None:
    clicks().drop(columns="part").to_csv(tmp_path / "rows.csv", index=False)
    model = "{LGBMClassifier: {n_estimators: 300, learning_rate: 0.5, early_stopping_rounds: 3, verbosity: -1}}"
    done = run("fit", "--config", write_config(tmp_path, "rows.csv", model=model))
    assert done.exit_code == 0, done.output


def test_positive_makes_a_binary_target_and_drop_removes_columns(tmp_path: Path) -> None:
    clicks().to_parquet(tmp_path / "rows.parquet")
    config = write_config(tmp_path, "rows.parquet")
    options = ("data.positive=yes", "data.positive='yes'", "data.split=part", "data.drop=[bid, app]")
    failed = run("fit", "--config", config, "--set", options[0])
    assert failed.exit_code == 1
    assert "training rows have the target 'clicked' = True (positive=)" in failed.stderr
    assert 'write "yes"' in failed.stderr
    done = run("fit", "--config", config, *(argument for option in options[1:] for argument in ("--set", option)))
    assert done.exit_code == 0, done.output
    net = windtunnel.load(tmp_path / "run" / "model.windtunnel")
    assert net.classes_.tolist() == ["no", "yes"]
    assert "bid" not in net.encoder.names


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ("data.train=nothing.csv", 2, "no file"),
        ("data.train=experiment.yaml", 1, "is neither .csv, .csv.gz nor .parquet"),
        ("data.train=broken.parquet", 1, "broken.parquet cannot be read"),
        ("data.target=clickd", 1, "columns missing: 'clickd' (given: 'clicked'). Given: 'site'"),
        ("data.split=site", 1, "each row needs one of train, valid, test"),
        ("data.positive=maybe", 1, "training rows have the target 'clicked' = 'maybe'"),
        ("data.target=recency", 1, "of the target 'recency' are missing in"),
        ("data.test_fraction=0.001", 1, "the test part has no rows"),
        ("pipeline.categories=[]", 1, "hold text and pipeline.categories has no step"),
        ("pipeline.model=LogisticRegression", 1, "the pipeline cannot be fitted on the training rows"),
        ("recipe.epoch=1", 1, "did you mean epochs?"),
        ("recipe.epochs=0", 1, "experiment.yaml: recipe: epochs=0 must be a whole number from 1"),
        ("pipeline.model={LGBMClassifier: {objective: foo, verbosity: -1}}", 1, "the pipeline cannot be fitted"),
        ("data.drop=[clicked]", 1, "drop has 'clicked'"),
        ("data.trian=x", 1, "unknown key 'data.trian': did you mean train?"),
        ("no assignment", 1, "write KEY=VALUE, such as recipe.epochs=3"),
    ],
)
def test_mistakes_are_one_line_on_stderr(tmp_path: Path, change: str, code: int, message: str) -> None:
    clicks(300).drop(columns="part").to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "broken.parquet").write_text("not Parquet")
    done = run("fit", "--config", write_config(tmp_path, "rows.csv"), "--set", change)
    assert (done.exit_code, done.stdout) == (code, "")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["fit", "--config", "nothing.yaml"], 2, "No such file or directory: nothing.yaml"),
        (["predict", "nothing.windtunnel", "rows.csv"], 2, "no file nothing.windtunnel"),
        (["report", __file__], 1, "is damaged, cut short, or no windtunnel artefact"),
        (["explain", "model.windtunnel", "rows.csv", "--plot", "x.foo"], 1, "--plot x.foo: give a file that ends in"),
        (["explain", "model.windtunnel", "rows.csv", "--output", "nowhere/x.csv"], 2, "there is no folder 'nowhere'"),
        (["predict", "model.windtunnel", "rows.csv", "--output", "nowhere/x.csv"], 2, "there is no folder 'nowhere'"),
        (["export", "model.windtunnel", "nowhere/x.onnx"], 2, "there is no folder 'nowhere'"),
        (
            ["refresh", "m.windtunnel", "rows.csv", "--target", "y", "--output", "nowhere/x.windtunnel"],
            2,
            "there is no folder 'nowhere'",
        ),
        (["demo", "--rows", "10"], 1, "rows=10; the demo needs at least"),
    ],
)
def test_mistakes_of_other_commands_are_one_line_too(arguments: list[str], code: int, message: str) -> None:
    done = run(*arguments)
    assert (done.exit_code, done.stdout) == (code, "")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_unexpected_errors_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("windtunnel.demo.run", fail)
    assert isinstance(run("demo").exception, ZeroDivisionError)


def test_version() -> None:
    assert run("--version").output.strip() == f"windtunnel {windtunnel.__version__}"


def test_the_package_runs_as_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "windtunnel", "--help"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: windtunnel ")
    assert [line.split()[0] for line in done.stdout.partition("Commands:")[2].split("\n") if line.strip()] == [
        command.name or command.callback.__name__ for command in app.registered_commands
    ]


def test_the_waiting_policy_is_set_before_torch_is_imported() -> None:
    code = (
        "import os, sys; os.environ.pop('OMP_WAIT_POLICY', None); import windtunnel.cli;"
        "print(os.environ['OMP_WAIT_POLICY'], sorted({'torch', 'lightgbm', 'sklearn'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "passive []"
