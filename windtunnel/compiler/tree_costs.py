"""Fits the cost model of trees to the measurements in ``tree_costs.csv``, a line per ensemble and number of rows.

``python -m benchmarks.tree_costs`` writes them. A device without measurements has no model.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path

import numpy as np
from scipy.optimize import nnls

from windtunnel.compiler.cost_model import TREE_STRATEGIES, EnsembleShape

SHIPPED = Path(__file__).with_name("tree_costs.csv")
SHAPE = [field.name for field in fields(EnsembleShape)]


@dataclass(frozen=True)
class TreeTiming:
    """The seconds of one ensemble for a number of rows on one thread."""

    device: str  # the kind of device: "cpu", "cuda"
    shape: EnsembleShape
    rows: int
    seconds: dict[str, float]  # of a call, for each strategy that can run the ensemble


def write(path: Path, timings: Iterable[TreeTiming]) -> None:
    """Write timings as CSV; seconds are empty for a strategy that cannot run the ensemble."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["device", *SHAPE, "rows", *TREE_STRATEGIES], lineterminator="\n")
        writer.writeheader()
        for timing in timings:
            seconds = {strategy: f"{value:.4g}" for strategy, value in timing.seconds.items()}
            writer.writerow({"device": timing.device, **asdict(timing.shape), "rows": timing.rows, **seconds})


def read(path: Path) -> list[TreeTiming]:
    """The timings of a file that ``write`` wrote."""
    with path.open(newline="") as file:
        return [
            TreeTiming(
                line["device"],
                EnsembleShape(**{name: int(line[name]) for name in SHAPE}),
                int(line["rows"]),
                {strategy: float(line[strategy]) for strategy in TREE_STRATEGIES if line[strategy]},
            )
            for line in csv.DictReader(file)
        ]


def fit_costs(timings: Sequence[TreeTiming]) -> dict[str, list[float]]:
    """Coefficients of ``TreeStrategy.terms`` by strategy: non-negative least squares of relative errors."""
    costs = {}
    for name, strategy in TREE_STRATEGIES.items():
        measured = [timing for timing in timings if name in timing.seconds]
        if measured:
            terms = np.array([strategy.terms(timing.shape, timing.rows) for timing in measured])
            seconds = np.array([timing.seconds[name] for timing in measured])
            costs[name] = nnls(terms / seconds[:, None], np.ones(len(measured)))[0].tolist()
    return costs


@cache
def coefficients(device: str) -> dict[str, list[float]]:
    """The coefficients of a kind of device, from the timings of the package; empty without timings."""
    return fit_costs([timing for timing in read(SHIPPED) if timing.device == device])
