"""What a command imports: scoring needs no training code and no library of a source."""

import subprocess
import sys
from pathlib import Path

import pytest
from lightgbm import LGBMClassifier
from sklearn.datasets import load_iris

import windtunnel

HEAVY = ("pytorch_lightning", "torchmetrics", "torch._dynamo", "sklearn", "lightgbm", "xgboost", "catboost", "optuna")
SHOW = f"import sys; print([name for name in {(*HEAVY, 'torch')} if name in sys.modules])"


def imported(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", f"{code}\n{SHOW}"], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("code", ["import windtunnel", "import windtunnel.cli"])
def test_importing_the_package_imports_no_library(code: str) -> None:
    assert imported(code) == "[]"


def test_predict_imports_torch_but_no_training_code_and_no_source(tmp_path: Path) -> None:
    X, y = load_iris(return_X_y=True, as_frame=True)
    source = LGBMClassifier(n_estimators=3, num_leaves=4, verbosity=-1, n_jobs=1).fit(X, y)
    windtunnel.compile(source).save(tmp_path / "net.windtunnel")
    X.head(2).to_csv(tmp_path / "rows.csv", index=False)
    arguments = ["predict", str(tmp_path / "net.windtunnel"), str(tmp_path / "rows.csv")]
    code = f"from windtunnel.cli import app\napp({arguments!r}, standalone_mode=False)"
    assert imported(code) == "['torch']"


def test_a_loader_imports_no_training_code() -> None:
    assert "pytorch_lightning" not in imported("import windtunnel; windtunnel.loader, windtunnel.stream")
