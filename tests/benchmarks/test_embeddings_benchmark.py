"""The benchmarks of large tables and of the loop: what their lines say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks import feeding


def embeddings(*arguments: str) -> dict[str, float]:
    options = "--rows 500000 --width 32 --samples 4000 --batch 512 --epochs 1 --json".split()
    command = [sys.executable, "-m", "benchmarks.embeddings", *options, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(feeding.__file__).parents[1])
    return json.loads(ran.stdout)


@pytest.mark.slow
def test_a_large_table_is_not_copied() -> None:
    assert embeddings("--checkpoints")["over_table"] < 2
    assert embeddings("--dense")["over_table"] > 4


@pytest.mark.parametrize("case", ["L4", "logistic"])
def test_what_lightning_adds(case: str) -> None:
    options = "--trees 3 --leaves 4 --features 5 --batch 64 --steps 6 --turns 2 --json".split()
    done = CliRunner().invoke(feeding.app, [*options, "--case", case], catch_exceptions=False)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("{")]
    result = json.loads(line)
    assert result["case"] == case and min(result["lightning_s"], result["loop_s"], result["wait_s"]) > 0
    assert result["overhead"] == pytest.approx(result["lightning_s"] / result["loop_s"] - 1)
    assert result["compute_share"] == pytest.approx(1 - result["wait_s"] / result["lightning_s"])
