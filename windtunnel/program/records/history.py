"""The record of a fit or a refresh, as text, tables and plots."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from windtunnel.errors import InvalidOption
from windtunnel.program.records.fit_record import CandidateResult, Epoch, FitRecord
from windtunnel.program.records.history_notes import history_notes
from windtunnel.program.records.history_plots import plot_history

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CandidateResult", "Epoch", "History"]


@dataclass(frozen=True, repr=False)
class History(FitRecord):
    """The record of a ``fit`` or ``refresh``; ``str`` returns text, a notebook shows tables.

    Attributes
    ----------
    epochs : list of Epoch
        Epoch 0, before training, and every trained epoch. Epoch 0 of a residual model includes its interactions. A
        refresh has none.
    metric : str
        Name of the metric.
    greater_is_better : bool
    start, best : float
        Metric of the translation before and after.
    best_epoch : int
        The epoch whose weights fit kept; 0 where training did not improve on epoch 0.
    validated_on : str
        "validation rows", "held-out rows" (of the training rows), "out-of-fold rows" (the same in ``crossfit``, where
        members score them that were not fitted on them) or "training rows".
    seconds : float
        Wall time, with encoding and, in the first call of a process, the import of libraries.
    candidates : list of CandidateResult
        The models that fit chose from, in the order in which ties are decided.
    validation_rows : int or None
        Number of these rows; None for a loader that does not tell it.
    epoch_rule : str
        The rule for the best epoch, such as "the best auroc".
    stopped : str
        How training ended, such as "early: 3 validations without a better one (patience=3)".
    terms : list of TermSummary
        The strongest terms of the residual models; empty where rows are not in memory.
    calibration : Calibration or None
        Predicted and observed frequencies before and after; None if the source predicts no probabilities, or the
        validation rows are not in memory.
    refresh : RefreshDetails or None
        What a refresh found in new and old rows; None for a fit.
    start_loss : float
        Loss of the translation before, on the same rows as ``start``.
    shared_fraction : float or None
        The fraction of the validation rows of the caller that are training rows too; None if it is unknown.
    loss_name : str
        The loss, by the name that ``loss=`` takes, with its options, such as "quantile (alpha=0.9)".
    class_weights : dict or None
        The weight of each class, by its label as text, which losses and metrics are computed with; None without any.
    """

    def __repr__(self) -> str:
        return f"History({self.summary})"

    def __str__(self) -> str:
        epochs = ["", *self._epoch_lines()] if self.epochs else []
        return "\n".join([self.summary, "", *self._candidate_lines(), *epochs, "", *self.notes()])

    def to_frame(self, rows: Literal["epochs", "candidates"] | None = None) -> pd.DataFrame:
        """A row per epoch, or per candidate, with the attributes of ``Epoch`` or ``CandidateResult`` as columns.

        None gives the epochs, or the candidates of a history without epochs, as that of a refresh.
        The column ``metric`` has the name of the metric, and is left out where another one has it; ``kept`` says which
        row fit installed.
        """
        import pandas as pd

        if rows is None:
            rows = "epochs" if self.epochs else "candidates"
        if rows not in ("epochs", "candidates"):
            raise InvalidOption(f"to_frame(rows={rows!r}): give 'epochs' or 'candidates'")
        frame = pd.DataFrame([asdict(row) for row in getattr(self, rows)])
        if rows == "candidates" and self.metric == "loss":  # a column has it already
            frame = frame.drop(columns="metric")
        if rows == "epochs" and self.epochs:
            frame["kept"] = frame["epoch"] == self.kept.epoch
        return frame.rename(columns={"metric": self.metric})

    def plot(self) -> Any:
        """Draw losses by epoch, the metric by epoch, and, where candidates were tested, their gains with matplotlib.

        Returns
        -------
        array of matplotlib Axes
        """
        return plot_history(self)

    def notes(self) -> list[str]:
        """How to read the numbers, and what to do next, in sentences."""
        return history_notes(self)

    def _candidate_lines(self) -> list[str]:
        width = max([22, *(len(row.name) for row in self.candidates)])
        names = dict.fromkeys([self.metric, "loss"])
        lines = [f"  {'candidate':{width}}{''.join(f'  {name:>10}' for name in names)}"]
        for row in self.candidates:
            values = {self.metric: row.metric, "loss": row.loss}  # one of them if the loss is the metric
            lines.append("  ".join([f"{'*' if row.kept else ' '} {row.name:{width}}", *map(_number, values.values())]))
        return [*lines, "", *(f"- {row}" for row in self.candidates)]

    def _epoch_lines(self) -> list[str]:
        own = [] if self.metric == "loss" else [self.metric]
        names = ["train_loss", "val_loss", *own]
        lines = [f"  epoch     step{''.join(f'  {name:>10}' for name in names)}  seconds"]
        for row in self.epochs:
            mark = "*" if row.epoch == self.kept.epoch else " "
            values = [_number(value) for value in (row.train_loss, row.val_loss, row.metric)][: len(names)]
            numbers = "  ".join([*values, f"{row.seconds:7.2f}"])
            lines.append(f"{mark} {row.epoch:5d} {row.step:8,}  {numbers}{'  kept' if mark == '*' else ''}")
        return lines

    def _shown_candidates(self) -> pd.DataFrame:
        """The candidates without what stands in their list, and without epochs where there are none."""
        hidden = ["reason", "installed_part", *([] if self.epochs else ["epoch"])]
        return self.to_frame("candidates").drop(columns=hidden, errors="ignore")

    def _repr_html_(self) -> str:
        """The summary, candidates, notes and epochs as HTML, for notebooks."""
        notes = "".join(f"<li>{escape(str(line))}</li>" for line in [*self.candidates, *self.notes()])
        candidates, epochs = (
            frame.to_html(index=False, border=0, na_rep="-", float_format=lambda value: f"{value:.6g}")
            for frame in (self._shown_candidates(), self.to_frame("epochs"))
        )
        epochs *= bool(self.epochs)
        return f"<p><b>{escape(self.summary)}</b></p>{candidates}<ul>{notes}</ul>{epochs}"


def _number(value: float | None) -> str:
    return f"{'-' if value is None else format(value, '.6f'):>10}"
