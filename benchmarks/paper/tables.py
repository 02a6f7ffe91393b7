"""The tables in the paper's form: which cells their lines and columns are made of, and the paper's own numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.paper.cells import LEVELS, Cell, Limits
from benchmarks.report import written
from benchmarks.stored import key

Fields = dict[str, Any]
Numbers = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Table:
    """A table of the paper.

    Attributes
    ----------
    title : str
    lines, columns : sequence of (str, dict)
        Labels, and what of a ``Cell`` they settle; the columns come again for each data set.
    """

    title: str
    lines: Sequence[tuple[str, Fields]]
    columns: Sequence[tuple[str, Fields]]

    def cells(self, data: str, seeds: Sequence[int]) -> list[Cell]:
        """Every cell on a data set."""
        return [self.cell(data, line, column, seed) for seed in seeds for line in self.lines for column in self.columns]

    def in_paper_form(
        self, data: Sequence[str], seeds: Sequence[int], limits: Limits, results: Mapping[str, Mapping[str, Any]]
    ) -> list[list[str]]:
        """A line per model, columns per data set; lines and columns without a result are left out."""
        rows = [["Model", *(f"{name.partition('=')[0]} {label}" for name in data for label, _ in self.columns)]]
        for line in self.lines:
            cells = [
                [self.cell(name, line, column, seed) for seed in seeds] for name in data for column in self.columns
            ]
            stored = [[results.get(key(cell.settings(limits))) for cell in of_seeds] for of_seeds in cells]
            rows.append([line[0], *(written([each["auc"] for each in of_seeds if each]) for of_seeds in stored)])
        columns = [column for column in zip(*rows, strict=True) if set(column[1:]) != {"-"}]
        return [[*row] for row in zip(*columns, strict=True) if set(row[1:]) != {"-"}]

    def cell(self, data: str, line: tuple[str, Fields], column: tuple[str, Fields], seed: int) -> Cell:
        """One cell."""
        return Cell(data=data, seed=seed, **line[1], **column[1])


PRE = tuple((f"Pre{at}", {"pre": at}) for at in (1, 2, 3))
PIPELINES = [(f"Pipe{pipe} {label}", {"pipe": pipe, **fields}) for pipe in (1, 2, 3) for label, fields in PRE]
WHOLE = "L1"
"""The level of a whole pipeline. The paper's is L4, whose steps take five times as long."""
PAPER: dict[str, Numbers] = {
    "Flight": (
        (0.6783, 0.6847, 0.7126),
        (0.7358, 0.7427, 0.7507),
        (0.7519, 0.7547, 0.7467),
        (0.6913, 0.6910, 0.7244),
        (0.7790, 0.7897, 0.7960),
        (0.7829, 0.7906, 0.7989),
    ),
    "Avazu": (
        (0.6896, 0.7264, 0.7553),
        (0.7521, 0.7550, 0.7718),
        (0.7597, 0.7616, 0.7728),
        (0.7588, 0.7589, 0.7637),
        (0.7753, 0.7742, 0.7763),
        (0.7746, 0.7718, 0.7753),
    ),
    "Criteo": (
        (0.7167, 0.7442, 0.7769),
        (0.7739, 0.7781, 0.7925),
        (0.7838, 0.7884, 0.7954),
        (0.7750, 0.7804, 0.7903),
        (0.8006, 0.8053, 0.8041),
        (0.8014, 0.8058, 0.8048),
    ),
}
"""AUC of table 5.3 of the paper with Pre1 to Pre3: the sources Pipe1 to Pipe3, then what they become."""
TABLES = {
    "5.3": Table(
        "Overall performance",
        [(f"ML (Pipe{at})", {"pipe": at, "variant": "source"}) for at in (1, 2, 3)]
        + [(f"W.T. (Pipe{at})", {"pipe": at, "variant": WHOLE}) for at in (1, 2, 3)],
        PRE,
    ),
    "5.4": Table(
        "Translation scopes",
        [
            ("ML (Pipe2)", {"pipe": 2, "variant": "source"}),
            ("GBDT2NN (Pipe2)", {"pipe": 2, "variant": "trees"}),
            ("W.T. (Pipe2)", {"pipe": 2, "variant": WHOLE}),
        ],
        PRE[1:],
    ),
    "5.5": Table(
        "Parameter initialization",
        [("W.T. (Pipe2)", {"pipe": 2}), ("W.T. (Pipe3)", {"pipe": 3})],
        [
            (f"{label} {start}", {**pre, "variant": variant})
            for label, pre in PRE[1:]
            for start, variant in (("Cold", "cold"), ("Warm", WHOLE))
        ],
    ),
    "5.6": Table(
        "Levels and sizes of the data",
        [("ML (Pipe2)", {"pre": 2, "pipe": 2, "variant": "source"})]
        + [(f"W.T. (Pipe2, {level})", {"pre": 2, "pipe": 2, "variant": level}) for level in ("L2", "L3", "L4")],
        [("100%", {"share": 1.0}), ("10%", {"share": 0.1}), ("1%", {"share": 0.01})],
    ),
    "more rows": Table(
        "Joint training and the residual model",
        [(label, {"variant": label}) for label in ("source", "L1", "L4", "joint", "sharp", "residual")],
        PIPELINES,
    ),
    "half": Table(
        "With half of the rows",
        [
            ("ML, all rows", {"variant": "source"}),
            ("ML", {"variant": "source", "trained_on": "seen"}),
            ("L1, other half", {"variant": "L1", "trained_on": "unseen"}),
            *(
                (variant, {"variant": variant, "trained_on": "seen"})
                for variant in (*LEVELS, "cold", "trees", "deepgbm", "joint", "sharp", "residual")
            ),
        ],
        PIPELINES,
    ),
}
