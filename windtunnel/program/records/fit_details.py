"""The results of a fit, as plain data: the strongest terms of the residual model, and calibration."""

from __future__ import annotations

from dataclasses import dataclass

from windtunnel.program.records.number_text import estimate_text


@dataclass(frozen=True)
class CellSummary:
    """A combination of values of the columns of a term."""

    values: str
    contribution: float  # mean over its training rows, in the unit of the raw score
    rows: int  # training rows
    output: str = ""  # the label that the score speaks for, if there are several scores

    def text(self, unit: str) -> str:
        """The cell in a line, such as "origin=ORD x hour=18: +0.41 log-odds, 1,204 rows"."""
        label = f" for class {self.output}" if self.output else ""
        rows = f"{self.rows:,} row{'s' * (self.rows != 1)}"
        return f"{self.values}: {self.contribution:+.3g}{_unit_text(unit)}{label}, {rows}"


@dataclass(frozen=True)
class TermSummary:
    """A column or interaction that the residual model or the boosted residual uses; both may use the same."""

    columns: tuple[str, ...]
    gain: float  # loss on validation rows without this term, less the loss with it
    standard_error: float  # of the gain
    rows: int  # the validation rows of the gain: all, or a sample
    low: float  # least contribution to a raw score on the training rows
    high: float  # greatest
    cells: tuple[CellSummary, ...]  # those whose contributions have the largest sums over the training rows
    boosted: bool = False  # whether it is a term of the boosted residual

    @property
    def name(self) -> str:
        """The columns, and whether it is a term of the boosted residual, such as "zip x age (boosted)"."""
        return " x ".join(self.columns) + " (boosted)" * self.boosted

    def text(self, unit: str) -> str:
        """The term in a sentence; ``unit`` is that of the raw scores."""
        cells = "; ".join(cell.text(unit) for cell in self.cells)
        return (
            f"{self.name}: loss without it {estimate_text(self.gain, self.standard_error)} on {self.rows:,} rows; "
            f"adds {self.low:+.3g} to {self.high:+.3g}{_unit_text(unit)}; most in total: {cells}"
        )


def _unit_text(name: str) -> str:
    """The unit behind a number; none where it would only say that the number is part of a score."""
    return "" if name in ("prediction", "raw score") else f" {name}"


@dataclass(frozen=True)
class Reliability:
    """Predicted and observed frequencies of rows, in ten bins of equal width.

    For two classes the probability of the second one, for more classes that of the predicted one.
    """

    predicted: tuple[float, ...]  # mean probability in each bin that has rows
    observed: tuple[float, ...]  # part of the rows of the bin that are of this class
    weight: tuple[float, ...]  # part of all rows in each bin, by their weight

    @property
    def error(self) -> float:
        """Expected calibration error: sum over bins of weight |predicted - observed|."""
        return sum(w * abs(p - o) for p, o, w in zip(self.predicted, self.observed, self.weight, strict=True))


@dataclass(frozen=True)
class Calibration:
    """Reliability on the validation rows, before and after fit or refresh."""

    before: Reliability
    after: Reliability
    rows: int

    def __str__(self) -> str:
        return (
            f"expected calibration error {self.before.error:.4f} before, {self.after.error:.4f} after, "
            f"on {self.rows:,} of these rows"
        )
