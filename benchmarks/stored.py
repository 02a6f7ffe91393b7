"""Results that benchmarks store with ``--output FILE``: a line of JSON per measurement. Figures are drawn from them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"


def add(path: Path, result: Mapping[str, Any]) -> None:
    """Append a measurement."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        print(json.dumps(result), file=file)


def read(benchmark: str, *settings: str) -> list[dict[str, Any]]:
    """The measurements of ``results/BENCHMARK/results.jsonl``; of several with equal settings the last."""
    lines = (RESULTS / benchmark / "results.jsonl").read_text(encoding="utf-8").splitlines()
    measured = [json.loads(line) for line in lines]
    return list({json.dumps([result[name] for name in settings]): result for result in measured}.values())


def key(settings: Mapping[str, Any]) -> str:
    """Settings as one text."""
    return json.dumps(settings, sort_keys=True)


class Results:
    """Measurements in a file, found by what is under ``settings`` in each; of equal settings the last counts.

    A line is written once its measurement is finished.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def finished(self) -> dict[str, dict[str, Any]]:
        """Every measurement, by ``key`` of its settings."""
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.is_file() else []
        results = (json.loads(line) for line in lines)
        return {key(result["settings"]): result for result in results}

    def repair(self) -> None:
        """Remove the unfinished last line that a killed run has left."""
        if self.path.is_file():
            whole = self.path.read_bytes()
            if (end := whole.rfind(b"\n") + 1) < len(whole):
                self.path.write_bytes(whole[:end])

    def add(self, result: Mapping[str, Any]) -> None:
        """Append a measurement."""
        add(self.path, result)
