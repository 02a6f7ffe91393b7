"""The benchmark of a training step: what its line says, and what it is asked for wrongly."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks import train_step

SMALL = ["--trees", "3", "--leaves", "5", "--features", "4", "--batch", "40", "--threads", "1", "--repeats", "2"]


@pytest.mark.parametrize("level", ["L1", "L4"])
def test_one_line_with_times_memory_and_settings(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = [*SMALL, "--level", level, "--json"]
    monkeypatch.setattr(sys, "argv", ["train_step", *arguments])  # the processes that measure memory get the same
    # Measured in this process, as a pair of processes takes ten seconds; the next test starts them.
    monkeypatch.setattr(train_step.subprocess, "run", peak_in_process)
    done = CliRunner().invoke(train_step.app, arguments, catch_exceptions=False)
    (line,) = done.stdout.splitlines()
    result = json.loads(line)
    assert result["ratio_to_matmul"] == pytest.approx(result["step_s"] / result["matmul_s"])
    assert result["speedup_over_direct"] == pytest.approx(result["direct_s"] / result["step_s"])
    assert all(result[name] > 0 for name in ("step_s", "matmul_s", "direct_s", "process_mb"))
    assert min(result["peak_mb"], result["direct_peak_mb"]) >= 0
    settings = {"trees": 3, "leaves": 5, "features": 4, "batch": 40, "level": level, "threads": 1, "device": "cpu"}
    assert result.items() >= settings.items()


def peak_in_process(command: list[str], **options: Any) -> SimpleNamespace:
    return SimpleNamespace(stdout=CliRunner().invoke(train_step.app, command[3:], catch_exceptions=False).stdout)


def test_processes_measure_the_memory_of_their_form(monkeypatch: pytest.MonkeyPatch) -> None:
    options = "--trees 60 --leaves 32 --features 8 --batch 4096 --threads 1 --repeats 1"
    monkeypatch.setattr(sys, "argv", ["train_step", *options.split()])
    result = train_step.peaks(direct=True)
    kept = 60 * 4096 * (31 + 32) * 4 / 2**20
    assert result["direct_peak_mb"] > kept and result["peak_mb"] < kept / 2 and result["process_mb"] > 0


def test_rows_per_second_without_the_direct_form() -> None:
    of = train_step.Settings(3, 5, 4, 40, "L4", 0.0, 1, "cpu")
    found = train_step.times(of, 1, direct=False)
    assert found["samples_per_s"] == pytest.approx(40 / found["step_s"])
    assert train_step.matmul(of)() is None


@pytest.mark.parametrize("wrong", [["--level", "L9"], ["--peak-of", "theirs"]])
def test_what_is_wrong_is_named(wrong: list[str]) -> None:
    done = CliRunner().invoke(train_step.app, [*SMALL, *wrong])
    assert done.exit_code == 1 and f"{wrong[0]} {wrong[1]}; choose from" in done.stderr
