"""The record of a fit: its epochs and candidates. Plain data, so that a loaded artefact has it without Lightning."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Epoch:
    """One row of the history.

    Attributes
    ----------
    epoch : int
        0 before training.
    train_loss : float or None
        Mean over the steps; None for epoch 0.
    val_loss, metric : float
        On the validation rows.
    learning_rate : float
    seconds : float
        Wall time of training and validation.
    """

    epoch: int
    train_loss: float | None
    val_loss: float
    metric: float
    learning_rate: float
    seconds: float


@dataclass(frozen=True)
class CandidateResult:
    """A model that fit evaluated.

    Attributes
    ----------
    name : str
        "translation" (as it was before fit), "source pipeline" (with exact trees), "tree-block weights",
        "interactions", "residual model" or "joint training".
    metric : float
        On all validation rows.
    loss : float or None
        On all validation rows; None where fit does not compute it.
    gain, standard_error : float or None
        Decrease of the loss on validation rows that had no part in fitting, against the model that it extends; None
        where fit does not test it.
    kept : bool
        Whether fit installed it.
    reason : str
        Why, or why not.
    """

    name: str
    metric: float
    loss: float | None
    gain: float | None
    standard_error: float | None
    kept: bool
    reason: str


@dataclass(frozen=True)
class History:
    """What ``fit`` did.

    Attributes
    ----------
    epochs : list of Epoch
        Epoch 0, before training, and every trained epoch. Epoch 0 of a residual model includes its interactions.
    metric : str
        Name of the metric.
    greater_is_better : bool
    start, best : float
        Metric of the translation before and after fit.
    best_epoch : int
        The epoch whose weights fit kept; 0 where training did not improve on epoch 0.
    validated_on : str
        "validation rows", "held-out rows" (of the training rows) or "training rows".
    seconds : float
        Wall time, with encoding.
    candidates : list of CandidateResult
        The models that fit chose from, in the order in which ties are decided.
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

    def __str__(self) -> str:
        lines = [f"epoch  train_loss    val_loss  {self.metric:>10}  seconds"]
        for row in self.epochs:
            train = "-" if row.train_loss is None else f"{row.train_loss:.6f}"
            mark = "  kept" if row.epoch == self.best_epoch and row.metric == self.best else ""
            lines.append(
                f"{row.epoch:5d}  {train:>10}  {row.val_loss:10.6f}  {row.metric:10.6f}  {row.seconds:7.2f}{mark}"
            )
        lines.append(
            f"{self.metric} on {self.validated_on}: {self.start:.6f} -> {self.best:.6f} in {self.seconds:.1f} s"
        )
        return "\n".join(lines)
