"""The record of a fit or a refresh as plain data, so that a loaded artefact has it without Lightning."""

from __future__ import annotations

from dataclasses import dataclass, field

from windtunnel.program.records.fit_details import Calibration, TermSummary
from windtunnel.program.records.number_text import estimate_text, value_text
from windtunnel.program.records.refresh_details import RefreshDetails

NEEDS_MORE_ROWS = "More validation rows would help"
"""Stands in the reason why a candidate was rejected that gained less than the test asks for."""
PREFERRED = "is preferred to it"
"""Stands in the reason why a candidate was rejected that a boosted residual takes the place of."""
HARMS_OLD_ROWS = "the loss of old rows is higher by more than one standard error"
"""The reason why a refresh was rejected that would have gained on the new rows."""
JOINT = "joint training"
"""The candidate that is the translation with all of its steps trained together."""
HELD_OUT, OUT_OF_FOLD = "held-out rows", "out-of-fold rows"
"""Rows that fit holds out of the training rows; in ``crossfit`` members score them that have not seen them."""
FEWEST_ROWS = 100
"""With fewer validation rows a residual model is rejected unless it is significantly better."""
UNCHANGED = ("translation", "source pipeline")
"""Candidates that change no prediction of the source pipeline or of the translation before."""
ROUNDING = 1e-9
"""A change of the loss, relative to the loss, that is no larger comes from rounding."""
AT_LIMIT = "at the limit of"
"""How ``FitRecord.stopped`` begins where the training reached its number of epochs or steps."""


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
    step : int
        Optimizer steps since training began.
    """

    epoch: int
    train_loss: float | None
    val_loss: float
    metric: float
    learning_rate: float
    seconds: float
    step: int


@dataclass(frozen=True)
class CandidateResult:
    """A model that fit evaluated; ``str`` says in a line how it was tested, and why it was kept or not.

    Attributes
    ----------
    name : str
        "translation" (as it was before), "source pipeline" (with exact trees), "soft trees" (before their training),
        "tree-block weights", "interactions", "residual model", "boosted residual", "joint training", or several of
        these, as in "joint training + interactions" and "residual model + boosted"; of a refresh "anchor 50" or "anchor
        50 with replay".
    metric, loss : float or None
        Their values on all validation rows, with ``installed_part`` of the change; None where fit computes none.
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
    installed_part : float
        The part of its change that fit installed, above 0 and up to 1; of one that was rejected because this part is
        worse than another candidate, the part that it would have installed.
    tested_against : str
        The candidate that the test compares it with; empty for the source pipeline, or the model before a refresh.
    details : str
        What it consists of, such as the weights of tree blocks; empty where the name says all.
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
    installed_part: float = 1.0
    tested_against: str = ""
    details: str = ""

    def __str__(self) -> str:
        return self.text()

    def text(self, metric: str = "") -> str:
        """The line, with the value of the metric if its name is given."""
        facts = [f"{metric} {value_text(self.metric)}"] if metric and self.metric is not None else []
        if self.gain is not None and self.standard_error is not None:
            against = f" against {self.tested_against}" if self.tested_against else ""
            rows = "" if self.rows is None else f" on {self.rows:,} rows"
            facts.append(f"loss {self._change()}{against}{rows}")
        if self.details:
            facts.append(self.details)
        facts.append(self.reason.rstrip("."))
        if self.kept and self.installed_part < 1:
            facts.append(f"{self.installed_part:.1%} of its change is installed")
        return f"{self.name}{' (kept)' * self.kept}: {'; '.join(facts)}."

    def _change(self) -> str:
        """The change of the loss with its standard error; "unchanged" where only rounding changes scores."""
        assert self.gain is not None and self.standard_error is not None
        if max(abs(self.gain), self.standard_error) <= ROUNDING * abs(self.loss or 1.0):
            return "unchanged"
        return estimate_text(-self.gain, self.standard_error)


@dataclass(frozen=True, repr=False)
class FitRecord:
    """What a ``History`` holds, without its text and plots, which need this class; its docstring has the fields."""

    epochs: list[Epoch]
    metric: str
    greater_is_better: bool
    start: float
    start_loss: float
    best: float
    best_epoch: int
    validated_on: str
    seconds: float
    candidates: list[CandidateResult]
    validation_rows: int | None = None
    epoch_rule: str = ""
    stopped: str = ""
    terms: list[TermSummary] = field(default_factory=list)  # the strongest terms of the residual model
    calibration: Calibration | None = None  # None unless rows in memory validated probabilities of classes
    refresh: RefreshDetails | None = None  # None for a fit
    shared_fraction: float | None = None
    loss_name: str = ""
    class_weights: dict[str, float] | None = None

    @property
    def kept(self) -> CandidateResult:
        """The candidate that fit installed."""
        return next(candidate for candidate in self.candidates if candidate.kept)

    @property
    def changed(self) -> bool:
        """Whether this fit or refresh installed another model than the one before."""
        return any(candidate.kept and candidate.name not in UNCHANGED for candidate in self.candidates)

    @property
    def summary(self) -> str:
        """The result in one line."""
        rows = self.validated_on if self.validation_rows is None else f"{self.validation_rows:,} {self.validated_on}"
        # The best epoch is not among the recorded ones if an error ended it after its validation.
        last = max(len(self.epochs) - 1, self.best_epoch)
        epoch = f", epoch {self.best_epoch} of {last}" if self.best_epoch else ""
        call = "" if self.refresh is None else "refresh: "
        values = f"{self.metric} {value_text(self.start)} -> {value_text(self.best)}"
        kept = f"{self.kept.name}{epoch}" if self.changed else f"{self.kept.name} (unchanged)"
        return f"{call}{values} on {rows} in {self.seconds:.1f} s; kept: {kept}"
