"""The benchmark of peak memory: what its lines say."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks import peak_memory


class Holding:
    """Holds 64 MiB while it scores."""

    def predict(self, X: np.ndarray) -> np.ndarray:
        held = np.ones(8 * peak_memory.MIB)
        return X[:, 0] + held[0]


def test_peaks_are_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peak_memory, "scoring", lambda model, engine: Holding().predict)
    found = peak_memory.measured("lightgbm 100 x 64", "torch", 40_000, 1)
    assert found["rows_mb"] == pytest.approx(40_000 * 28 * 8 / peak_memory.MIB)
    assert found["outputs_mb"] == pytest.approx(40_000 * 8 / peak_memory.MIB)
    assert found["allowed_mb"] == pytest.approx(1.5 * (found["rows_mb"] + found["outputs_mb"]) + 300)
    assert 60 < found["peak_mb"] - found["rows_mb"] < 80


@pytest.mark.parametrize("engine", ["torch", "torchscript file", "onnx file"])
def test_engines_take_the_rows(engine: str) -> None:
    outputs = peak_memory.scoring("MLPClassifier", engine)(peak_memory.given("MLPClassifier", engine, 9))
    assert len(outputs) == 9


@pytest.mark.slow
def test_graphs_that_torch_steps_through_stay_in_bounds() -> None:
    for engine in ("exported", "exported file"):
        result = CliRunner().invoke(peak_memory.app, ["--engine", engine, "--json"], catch_exceptions=False)
        line = json.loads(result.stdout)
        assert line["engine"] == engine and line["peak_mb"] < line["allowed_mb"] / 2


def test_names_that_are_not_known() -> None:
    for option, name in (("--engine", "exportd"), ("--model", "lightgbm")):
        result = CliRunner().invoke(peak_memory.app, [option, name])
        assert result.exit_code == 1 and f"{option[2:]} '{name}' is not known" in result.stderr
