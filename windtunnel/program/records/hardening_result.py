"""The change that hardening has made, measured on rows."""

from __future__ import annotations

from dataclasses import dataclass

from windtunnel.program.records.number_text import value_text


@dataclass(frozen=True)
class HardeningResult:
    """A translation before and after hardening, on the rows that ``harden`` was given."""

    rows: int
    change: float  # root mean square of the change of the raw scores, over their standard deviation
    metric: str  # what ``before`` and ``after`` are: the default metric of fine-tuning
    # before, after: NaN without targets
    before: float
    after: float
    # loss_before, loss_after: the default loss of fine-tuning; NaN without targets
    loss_before: float
    loss_after: float

    def __str__(self) -> str:
        text = f"raw scores moved by {self.change:.4f} of their standard deviation on {self.rows:,} rows"
        if self.before != self.before:
            return text
        return (
            f"{self.metric} {value_text(self.before)} before, {value_text(self.after)} after; "
            f"loss {value_text(self.loss_before)} before, {value_text(self.loss_after)} after; {text}"
        )
