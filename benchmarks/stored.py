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
