"""The changes by a refresh, and how far its rows are from the training rows, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

from windtunnel.errors import join_some
from windtunnel.program.records.number_text import value_text
from windtunnel.program.records.training_profile import ColumnDrift

LARGE_DRIFT = 0.25
"""Population stability index that a rule of thumb calls large."""


@dataclass(frozen=True)
class ScoreChange:
    """Loss and metric of rows that were not fitted, before and after a refresh.

    ``name`` says which: "validation rows", "held-out rows" (of the new ones) or "held-out old rows".
    """

    name: str
    rows: int
    loss_before: float
    loss_after: float
    metric_before: float
    metric_after: float

    def text(self, metric: str) -> str:
        """The change in a line, such as "auroc 0.810214 -> 0.833439, loss 0.451202 -> 0.429071 on 900 old rows"."""
        loss = f", loss {value_text(self.loss_before)} -> {value_text(self.loss_after)}"
        if (self.metric_before, self.metric_after) == (self.loss_before, self.loss_after):
            loss = ""
        values = f"{metric} {value_text(self.metric_before)} -> {value_text(self.metric_after)}"
        return f"{values}{loss} on {self.rows:,} {self.name}"


@dataclass(frozen=True)
class RefreshDetails:
    """The rows of a refresh."""

    # new_rows, old_rows: the rows of ``new=`` and of ``replay=``, held-out ones included; not those of ``valid=``
    new_rows: int
    old_rows: int
    changes: tuple[ScoreChange, ...]
    """The changes on the new validation rows, and on the held-out old rows if there are any. Held-out new rows take
    part in a last fit afterwards; these numbers are from before it."""
    profile_rows: int | None  # training rows in the profile that drift is measured against; None without a profile
    drift: tuple[ColumnDrift, ...]  # of each raw column of the new rows, the largest first

    @property
    def drifting(self) -> list[ColumnDrift]:
        """The columns that drift."""
        return [column for column in self.drift if column.drifts]

    def drift_text(self, limit: int) -> str:
        """The drift in a sentence, with at most ``limit`` columns."""
        if self.profile_rows is None:
            return "not measured: the translation has no profile of its training rows (fit and calibrate= make one)"
        against = f"against {self.profile_rows:,} training rows"
        if not self.drifting:
            return f"none of {len(self.drift)} columns drifts {against}"
        return (
            f"population stability index {against}, from 0.1 on, in {len(self.drifting)} of {len(self.drift)} columns: "
            f"{join_some(map(str, self.drifting), limit)}"
        )
