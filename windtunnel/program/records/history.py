"""The record of a fit or a refresh. Plain data, so that a loaded artefact has it without Lightning."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from windtunnel.program.records.fit_details import Calibration, TermSummary
from windtunnel.program.records.refresh_details import LARGE, RefreshDetails

if TYPE_CHECKING:
    import pandas as pd

UNCHANGED = ("translation", "source pipeline")
"""Candidates that score rows as the source pipeline does."""
DRIFTING = 8
"""Columns that a note on drift names."""
BLUE, ORANGE, GREY = "#1f6fb4", "#d1731f", "#777777"


@dataclass(frozen=True)
class Epoch:
    """One row of the history: a pass over the training rows, or ``val_check_interval`` steps, and its validation.

    Attributes
    ----------
    epoch : int
        0 before training.
    train_loss : float or None
        Mean over the steps; None for epoch 0.
    val_loss, metric : float
        Their values on the validation rows.
    learning_rate : float
    seconds : float
        Wall time of training and validation.
    step : int or None
        Optimizer steps since training began; None in files of older versions.
    """

    epoch: int
    train_loss: float | None
    val_loss: float
    metric: float
    learning_rate: float
    seconds: float
    step: int | None = None


@dataclass(frozen=True)
class CandidateResult:
    """A model that fit evaluated; ``str`` says in a line how it was tested, and why it was kept or not.

    Attributes
    ----------
    name : str
        "translation" (as it was before), "source pipeline" (with exact trees), "tree-block weights", "interactions",
        "residual model", "boosted residual", "joint training", or two of these, as in "joint training + interactions";
        of a refresh "anchor 50" or "anchor 50 with replay".
    metric, loss : float or None
        Their values on all validation rows, of the kept one as it was installed; None where fit does not compute them.
    gain, standard_error : float or None
        Decrease of the loss on validation rows that had no part in fitting, against the model that it extends, and the
        standard error of this mean; None where fit does not test it.
    kept : bool
        Whether fit installed it.
    reason : str
        Why it was kept, or why not.
    rows : int or None
        Validation rows of the test.
    epoch : int or None
        Its row of ``History.epochs``; None if it has none.
    """

    name: str
    metric: float | None
    loss: float | None
    gain: float | None
    standard_error: float | None
    kept: bool
    reason: str
    rows: int | None = None
    epoch: int | None = None

    def __str__(self) -> str:
        return self.text()

    def text(self, metric: str = "") -> str:
        """The line, with the value of the metric if its name is given."""
        facts = [f"{metric} {self.metric:.6f}"] if metric and self.metric is not None else []
        if self.gain is not None:
            rows = "" if self.rows is None else f" on {self.rows:,} rows"
            facts.append(f"loss {-self.gain:+.4f} ± {self.standard_error:.4f}{rows}")
        return f"{self.name}{' (kept)' * self.kept}: {'; '.join([*facts, self.reason.rstrip('.')])}."


@dataclass(frozen=True, repr=False)
class History:
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
        "validation rows", "held-out rows" (of the training rows) or "training rows".
    seconds : float
        Wall time, with encoding.
    candidates : list of CandidateResult
        The models that fit chose from, in the order in which ties are decided.
    validation_rows : int or None
        Number of these rows; None for a loader that does not tell it.
    epoch_rule : str
        The rule for the best epoch, such as "the best auroc".
    stopped : str
        How training ended, such as "early: 3 epochs without a lower loss".
    """

    epochs: list[Epoch]
    metric: str
    greater_is_better: bool
    start: float
    best: float
    best_epoch: int
    validated_on: str
    seconds: float
    candidates: list[CandidateResult] = field(default_factory=list)
    validation_rows: int | None = None
    epoch_rule: str = ""
    stopped: str = ""
    terms: list[TermSummary] = field(default_factory=list)  # the strongest terms of the residual model
    calibration: Calibration | None = None  # None unless rows in memory validated probabilities of classes
    refresh: RefreshDetails | None = None  # None for a fit

    @property
    def kept(self) -> CandidateResult | None:
        """The candidate that fit installed; None in files of older versions, which have no candidates."""
        return next((candidate for candidate in self.candidates if candidate.kept), None)

    def __repr__(self) -> str:
        return f"History({self.summary})"

    def __str__(self) -> str:
        epochs = ["", *self._epoch_lines()] if self.epochs else []
        return "\n".join([self.summary, "", *self._candidate_lines(), *epochs, "", *self.notes()])

    def to_frame(self, rows: Literal["epochs", "candidates"] = "epochs") -> pd.DataFrame:
        """A row per epoch, or per candidate, with the attributes of ``Epoch`` or ``CandidateResult`` as columns.

        The column ``metric`` has the name of the metric; ``kept`` says which row fit installed.
        """
        import pandas as pd

        if rows not in ("epochs", "candidates"):
            raise ValueError(f"to_frame(rows={rows!r}): give 'epochs' or 'candidates'")
        frame = pd.DataFrame([asdict(row) for row in getattr(self, rows)])
        if rows == "epochs" and self.epochs:
            frame["kept"] = frame["epoch"] == self._kept_epoch()
        return frame.rename(columns={"metric": self.metric})

    def plot(self) -> Any:
        """Draw losses by epoch, the metric by epoch, and, where candidates were tested, their gains with matplotlib.

        Returns
        -------
        array of matplotlib Axes
        """
        from matplotlib import pyplot as plt

        tested = [candidate for candidate in self.candidates if candidate.gain is not None]
        panels = 2 * bool(self.epochs) + bool(tested)
        _, axes = plt.subplots(1, panels, figsize=(4.5 * panels, 3.6), layout="constrained", squeeze=False)
        if self.epochs:
            self._plot_epochs(axes[0, 0], axes[0, 1])
        if tested:
            self._plot_gains(axes[0, -1], tested)
        for panel in axes[0]:
            panel.spines[["top", "right"]].set_visible(False)
        return axes[0]

    def _plot_epochs(self, losses: Any, metrics: Any) -> None:
        from matplotlib.ticker import MaxNLocator

        epochs = [row.epoch for row in self.epochs]
        by_epoch: dict[str, Any] = {"marker": "o", "markersize": 3}
        losses.plot(epochs[1:], [row.train_loss for row in self.epochs[1:]], color=GREY, label="training", **by_epoch)
        losses.plot(epochs, [row.val_loss for row in self.epochs], color=BLUE, label="validation", **by_epoch)
        losses.set_title("loss")
        losses.legend(frameon=False)
        metrics.axhline(self.start, color=GREY, linestyle="--", label=f"before fit {self.start:.4f}")
        metrics.plot(epochs, [row.metric for row in self.epochs], color=BLUE, **by_epoch)
        metrics.set_title(f"{self.metric} on the {self.validated_on}")
        kept = self.kept
        name = "kept" if kept is None else f"kept: {kept.name}"
        if kept is not None and kept.epoch is None:
            metrics.axhline(self.best, color=ORANGE, label=f"{name} {self.best:.4f}")
        else:
            star: dict[str, Any] = {"color": ORANGE, "markersize": 13, "label": f"{name} {self.best:.4f}"}
            metrics.plot(self.best_epoch, self.best, "*", **star)
        metrics.legend(frameon=False)
        for panel in (losses, metrics):
            panel.set_xlabel("epoch")
            panel.ticklabel_format(axis="y", useOffset=False)
            panel.xaxis.set_major_locator(MaxNLocator(integer=True))

    def _plot_gains(self, panel: Any, tested: list[CandidateResult]) -> None:
        from matplotlib.ticker import MaxNLocator

        panel.axvline(0, color="black", linewidth=0.8)
        panel.xaxis.set_major_locator(MaxNLocator(4))
        for place, candidate in enumerate(tested):
            assert candidate.gain is not None
            color = ORANGE if candidate.kept else GREY
            panel.errorbar(-candidate.gain, place, xerr=candidate.standard_error, fmt="o", color=color, capsize=4)
        panel.set_yticks(range(len(tested)), [candidate.name for candidate in tested])
        panel.set_ylim(len(tested) - 0.5, -0.5)
        panel.set_title("change of the loss ± standard error")

    def notes(self) -> list[str]:
        """How to read the numbers, and what to do next, in sentences."""
        if self.refresh is not None:
            return self._refresh_notes(self.refresh)
        notes = []
        names = [candidate.name for candidate in self.candidates]
        if any(candidate.name == "interactions" and candidate.epoch == 0 for candidate in self.candidates):
            notes.append(
                f"Epoch 0 includes the interactions, which need no training: so its {self.metric} is not the "
                f"{self.start:.6f} before fit."
            )
        if self.epoch_rule:
            notes.append(f"The best epoch has {self.epoch_rule}. Training ended {self.stopped}.")
        if len(names) > 1:
            notes.append(f"Of the candidates that were not rejected, the one with the best {self.metric} is kept.")
        if any(candidate.gain is not None for candidate in self.candidates):
            notes.append(
                "Loss a ± b: change of the mean loss per row, compared with the model that the candidate extends, and "
                "its standard error. Each half of the validation rows tests what was selected on the other half."
            )
        if any("of its change" in candidate.reason for candidate in self.candidates):
            notes.append(
                "Of a change with gain a and standard error b, the part 1 - (b / a)^2 is installed, after which "
                f"{self.metric} is computed again."
            )
        if self.validated_on == "held-out rows":
            notes.append(
                "If the source pipeline was fitted on the held-out rows, its scores on them are too good, which hides "
                "gains: give validation rows that it has not seen, or use windtunnel.crossfit."
            )
        return [*notes, self._advice()]

    def _refresh_notes(self, refresh: RefreshDetails) -> list[str]:
        """The notes of a refresh."""
        kept = self.kept is not None and self.kept.name != "translation"
        changes = [f"{'Refresh' if kept else 'No change'}: {row.text(self.metric)}." for row in refresh.changes]
        notes = [*changes, "Of the attempts that were not rejected, the one with the lowest validation loss is kept."]
        notes.append("Loss a ± b: change of the mean loss per validation row and its standard error.")
        notes.append("Anchor a: a value stays as near to the old one as if a further rows spoke for that.")
        if kept and self.validated_on == "held-out rows":
            unless = ", unless this raised the loss of the old rows" if refresh.old_rows else ""
            notes.append(f"After these numbers were taken, the held-out rows took part in a last fit{unless}.")
        notes.append(f"Drift of the inputs: {refresh.drift_text(DRIFTING)}.")
        return [*notes, self._refresh_advice(refresh, kept=kept)]

    def _refresh_advice(self, refresh: RefreshDetails, *, kept: bool) -> str:
        advice = []
        if kept:
            advice.append(
                f"Next: measure {self.metric} on later rows. {self.best:.6f} is optimistic, as these rows chose the "
                "attempt."
            )
        elif any("old rows" in candidate.reason for candidate in self.candidates):
            advice.append("Next: if what is predicted has changed, keep_old=False accepts a higher loss of old rows.")
        else:
            advice.append("Next: nothing; on these rows refresh found no gain. More new rows tell smaller gains apart.")
        if any(column.index >= LARGE for column in refresh.drifting):
            advice.append(
                f"Inputs drift much (from {LARGE} on): compare with the source fitted again on recent rows, which "
                "finds new splits; a refresh moves values only."
            )
        return " ".join(advice)

    def _advice(self) -> str:
        kept = self.kept
        if self.validated_on == "training rows":
            return f"Next: give validation rows; on training rows {self.metric} says little about new rows."
        if kept is not None and kept.name not in UNCHANGED:
            if self.best_epoch and self.best_epoch == len(self.epochs) - 1 and "limit" in self.stopped:
                more = f"epochs={2 * self.best_epoch}"
                if self.stopped.endswith("steps"):
                    more = f"max_steps={2 * (self.epochs[-1].step or 0)}"
                return f"Next: the last epoch is the best one, so longer training may help: {more}."
            return (
                f"Next: measure {self.metric} on test rows. {self.best:.6f} is optimistic, as these rows chose the "
                "candidate and the epoch."
            )
        if any("More validation rows" in candidate.reason for candidate in self.candidates):
            return (
                'Next: give more validation rows, so that smaller gains can be told from chance; select="best_epoch" '
                "overrides the test."
            )
        return "Next: nothing; on these rows fit found no gain over the pipeline."

    @property
    def summary(self) -> str:
        """The result in one line."""
        rows = self.validated_on if self.validation_rows is None else f"{self.validation_rows:,} {self.validated_on}"
        kept, last = self.kept, len(self.epochs) - 1
        name = "" if kept is None else f"; kept: {kept.name}"
        epoch = f", epoch {self.best_epoch} of {last}" if self.best_epoch else ""
        call = "" if self.refresh is None else "refresh: "
        return f"{call}{self.metric} {self.start:.6f} -> {self.best:.6f} on {rows} in {self.seconds:.1f} s{name}{epoch}"

    def _kept_epoch(self) -> int | None:
        if self.kept is not None:
            return self.kept.epoch
        return self.best_epoch if self.epochs and self.epochs[self.best_epoch].metric == self.best else None

    def _candidate_lines(self) -> list[str]:
        width = max([22, *(len(row.name) for row in self.candidates)])
        lines = [f"  {'candidate':{width}}  {self.metric:>10}        loss"]
        for row in self.candidates:
            lines.append(f"{'*' if row.kept else ' '} {row.name:{width}}  {_number(row.metric)}  {_number(row.loss)}")
        return [*lines, "", *(f"- {row}" for row in self.candidates)]

    def _epoch_lines(self) -> list[str]:
        lines = [f"  epoch  train_loss    val_loss  {self.metric:>10}  seconds"]
        for row in self.epochs:
            mark = "*" if row.epoch == self._kept_epoch() else " "
            numbers = f"{_number(row.train_loss)}  {_number(row.val_loss)}  {_number(row.metric)}  {row.seconds:7.2f}"
            lines.append(f"{mark} {row.epoch:5d}  {numbers}{'  kept' if mark == '*' else ''}")
        return lines

    def _shown_candidates(self) -> pd.DataFrame:
        """The candidates without their reasons, which stand in a list, and without epochs where there are none."""
        hidden = ["reason"] if self.epochs else ["reason", "epoch"]
        return self.to_frame("candidates").drop(columns=hidden, errors="ignore")

    def _repr_html_(self) -> str:
        """The summary, candidates, notes and epochs as HTML, for notebooks."""
        notes = "".join(f"<li>{escape(str(line))}</li>" for line in [*self.candidates, *self.notes()])
        candidates, epochs = (
            frame.to_html(index=False, border=0, na_rep="-", float_format=lambda value: f"{value:.6g}")
            for frame in (self._shown_candidates(), self.to_frame())
        )
        epochs *= bool(self.epochs)
        return f"<p><b>{escape(self.summary)}</b></p>{candidates}<ul>{notes}</ul>{epochs}"


def _number(value: float | None) -> str:
    return f"{'-' if value is None else format(value, '.6f'):>10}"
