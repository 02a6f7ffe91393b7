import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import windtunnel
from windtunnel import demo
from windtunnel.errors import BadInput

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.skipif(find_spec("matplotlib") is None, reason="the demo draws with matplotlib")
def test_the_demo_writes_its_files_and_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    returned = demo.run(tmp_path, rows=1500, seed=1)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary == returned
    assert {"source_auc", "warm_auc", "finetuned_auc", "export_max_abs_diff", "seconds"} <= set(summary)
    assert abs(summary["warm_auc"] - summary["source_auc"]) < 0.01  # 225 test rows: a few swapped pairs
    assert summary["export_max_abs_diff"] < 1e-6
    assert "fine-tuned" in capsys.readouterr().out
    assert (tmp_path / "learning_curve.png").read_bytes().startswith(PNG)
    assert "LGBMClassifier" in (tmp_path / "report.html").read_text()
    rows = pd.read_csv(tmp_path / "test_rows.csv", dtype={"hour": "str"})
    scored = pd.read_csv(tmp_path / "scores.csv").to_numpy()
    net = windtunnel.load(tmp_path / "model.windtunnel")
    np.testing.assert_allclose(scored, net.predict_proba(rows), atol=1e-6)


def test_too_few_rows_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="rows=10; the demo needs at least 1000"):
        demo.run(tmp_path / "out", rows=10)
    assert not (tmp_path / "out").exists()


def test_a_missing_matplotlib_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windtunnel.demo.job.find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"pip install 'windtunnel\[track\]'"):
        demo.run(tmp_path / "out", rows=1500)
