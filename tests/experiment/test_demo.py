import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import windtunnel
from windtunnel import demo
from windtunnel.errors import BadInput


def test_the_demo_writes_its_files_and_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    returned = demo.run(tmp_path, rows=1500, seed=1)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary == returned
    assert {"source_auc", "warm_auc", "finetuned_auc", "export_max_abs_diff", "seconds"} <= set(summary)
    assert abs(summary["warm_auc"] - summary["source_auc"]) < 0.01  # 225 test rows: a few swapped pairs
    assert summary["export_max_abs_diff"] < 1e-6
    assert "fine-tuned" in capsys.readouterr().out
    report = (tmp_path / "report.html").read_text()
    assert "LGBMClassifier" in report and 'aria-label="learning curve"' in report
    rows = pd.read_csv(tmp_path / "test_rows.csv", dtype={"hour": "str"})
    scored = pd.read_csv(tmp_path / "scores.csv").to_numpy()
    net = windtunnel.load(tmp_path / "model.windtunnel")
    np.testing.assert_allclose(scored, net.predict_proba(rows), atol=1e-6)


def test_too_few_rows_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="rows=10; the demo needs at least 1000"):
        demo.run(tmp_path / "out", rows=10)
    assert not (tmp_path / "out").exists()
