"""The measurements that the cost model of trees is learned from: ``tree_costs.csv``, a line per ensemble and row count.

``python -m benchmarks.tree_costs`` writes them. On a kind of device that none were taken on there is no model.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path

import numpy as np
from scipy.optimize import nnls

from windtunnel.compiler.cost_model import WORK, Shape

SHIPPED = Path(__file__).with_name("tree_costs.csv")
SHAPE = [field.name for field in fields(Shape)]


@dataclass(frozen=True)
class Cell:
    """One ensemble, answered for so many rows by one thread.

    Attributes
    ----------
    device : str
        The kind of device: "cpu", "cuda".
    shape : Shape
    rows : int
    seconds : dict of str to float
        Of a call, for each strategy that takes the ensemble.
    """

    device: str
    shape: Shape
    rows: int
    seconds: dict[str, float]


def write(path: Path, cells: Iterable[Cell]) -> None:
    """Write cells as CSV: seconds are empty for a strategy that does not take the ensemble."""
    with path.open("w", newline="") as file:
        to = csv.DictWriter(file, ["device", *SHAPE, "rows", *WORK], lineterminator="\n")
        to.writeheader()
        for cell in cells:
            seconds = {strategy: f"{value:.4g}" for strategy, value in cell.seconds.items()}
            to.writerow({"device": cell.device, **asdict(cell.shape), "rows": cell.rows, **seconds})


def read(path: Path) -> list[Cell]:
    """Read what ``write`` wrote."""
    with path.open(newline="") as file:
        return [
            Cell(
                line["device"],
                Shape(**{name: int(line[name]) for name in SHAPE}),
                int(line["rows"]),
                {strategy: float(line[strategy]) for strategy in WORK if line[strategy]},
            )
            for line in csv.DictReader(file)
        ]


def fitted(cells: Sequence[Cell]) -> dict[str, list[float]]:
    """Coefficients of ``Shape.terms`` by strategy, none below 0, with the least squares of relative errors."""
    costs = {}
    for strategy in WORK:
        known = [
            (cell.shape.terms(strategy, cell.rows), cell.seconds[strategy])
            for cell in cells
            if strategy in cell.seconds
        ]
        if known:
            terms, seconds = (np.array(one) for one in zip(*known, strict=True))
            costs[strategy] = nnls(terms / seconds[:, None], np.ones(len(known)))[0].tolist()
    return costs


@cache
def coefficients(device: str) -> dict[str, list[float]]:
    """What the measurements that ship say of a kind of device; empty where there are none."""
    return fitted([cell for cell in read(SHIPPED) if cell.device == device])
