"""What a new user does first, in an environment that has the installed package and no extras: ``make test-package``."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import lightgbm
import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import windtunnel
from windtunnel.errors import InvalidOption

EXPERIMENT = """
data: {train: labelled.csv, target: target}
pipeline: {categories: TwoHotEncoder, numbers: StandardScaler, model: LogisticRegression}
output: run
"""


def main() -> None:
    """Translate, fit, compile, save, load, export and the command line."""
    assert "site-packages" in windtunnel.__file__, f"{windtunnel.__file__} is not the installed package"
    assert not any(map(find_spec, ("onnx", "xgboost", "optuna", "starlette", "pytest"))), "an extra is installed"
    random = np.random.default_rng(0)
    rows = pd.DataFrame({"city": random.choice(["Oslo", "Rome"], 400), "age": random.normal(size=400)})
    labels = np.where(rows.age + (rows.city == "Rome") > 0.3, "yes", "no")
    columns = make_column_transformer((OneHotEncoder(), ["city"]), (StandardScaler(), ["age"]))
    source = make_pipeline(columns, lightgbm.LGBMClassifier(n_estimators=5, verbose=-1)).fit(rows, labels)
    expected = source.predict_proba(rows)
    for net in (windtunnel.translate(source, calibrate=rows), windtunnel.compile(source)):
        np.testing.assert_allclose(net.predict_proba(rows), expected, 1e-9, 1e-9)
    net = windtunnel.translate(source, calibrate=rows)
    net.fit((rows[:300], labels[:300]), (rows[300:], labels[300:]), epochs=1, progress=False)
    assert net.history is not None and str(net.report())
    with TemporaryDirectory() as folder:
        check_files(net, rows, Path(folder))
    print(f"windtunnel {windtunnel.__version__} works in {sys.prefix}, Python {sys.version.split()[0]}")


def check_files(net: windtunnel.Translation, rows: pd.DataFrame, folder: Path) -> None:
    """Save, load, export, and predict on the command line."""
    net.save(folder / "net.windtunnel")
    loaded = windtunnel.load(folder / "net.windtunnel")
    np.testing.assert_array_equal(loaded.predict(rows), net.predict(rows))
    for name in ("net.c", "net.ts", "net.pt2"):
        net.export(folder / name)
        assert (folder / name).stat().st_size > 1000
    try:
        net.export(folder / "net.onnx")
    except InvalidOption as error:
        assert "pip install '.[onnx]'" in str(error), error
    else:
        raise AssertionError("exported ONNX without the onnx extra")
    rows.to_csv(folder / "rows.csv", index=False)
    for arguments in (["--help"], ["predict", folder / "net.windtunnel", folder / "rows.csv"]):
        run(folder, *arguments)
    rows.assign(target=loaded.predict(rows)).to_csv(folder / "labelled.csv", index=False)
    (folder / "experiment.yaml").write_text(EXPERIMENT, encoding="utf-8")
    run(folder, "fit", "--config", "experiment.yaml")


def run(folder: Path, *arguments: str | Path) -> None:
    """Run the command line."""
    command = Path(sys.executable).with_name("windtunnel")
    done = subprocess.run([command, *arguments], capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0 and done.stdout, done.stderr


if __name__ == "__main__":
    main()
